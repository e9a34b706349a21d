"""Collects the events of a running pipeline and writes them to Redis; the caller never waits.

with Monitor(address, info, query.accuracy) as monitor:
    for event in driver.events():
        monitor.watch(event)
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from typing import Any

from monitoring.collector import Collector
from monitoring.connection import Address
from monitoring.inputs import Accuracy, PreviousState, ReadTable
from monitoring.reader import MonitorReader
from monitoring.records import PipelineInfo
from monitoring.writer import Writer
from ppa_core.closeable import Closeable
from ppa_core.engine.run_events import RunEvent
from ppa_core.errors import PpaError

_log = logging.getLogger(__name__)

MAX_QUEUED = 10_000
"""Events that can wait to be collected. If there are more, the oldest are dropped and counted."""


class Monitor(Closeable):
    """`watch` appends an event to a queue and returns. A thread collects and writes them."""

    def __init__(self, address: Address, info: PipelineInfo, accuracy: Accuracy | None = None) -> None:
        self.missed = 0
        """Events that were dropped, or could not be handled."""
        previous = read_previous(address, info)  # first, because the writer registers the run
        self.writer = Writer(address, info)
        self._collector = Collector(info, accuracy, previous)
        self._queue: deque[tuple[RunEvent, ReadTable | None]] = deque()
        self._wake = threading.Condition()
        self._closing = False
        for record in self._collector.begin(info.started if previous is None else round(time.time(), 3)):
            self.writer.write(record)
        self._thread = threading.Thread(target=self._run, name="ppa-monitor-collector", daemon=True)
        self._thread.start()

    def watch(self, event: RunEvent, table: ReadTable | None = None) -> None:
        """Record an event; returns immediately. `table` reads the output that the event is about."""
        with self._wake:
            if len(self._queue) >= MAX_QUEUED:
                self._queue.popleft()
                self.missed += 1
            self._queue.append((event, table))
            self._wake.notify()

    def close(self, timeout: float = 5.0) -> bool:
        """Write what is queued, within the timeout. Whether everything was written."""
        with self._wake:
            self._closing = True
            self._wake.notify()
        self._thread.join(timeout)
        return self.writer.close(timeout)

    def _run(self) -> None:
        while True:
            with self._wake:
                while not (self._queue or self._closing):
                    self._wake.wait()
                if not self._queue:
                    break
                queued = self._queue.popleft()
            self._collect(*queued)
        for record in self._collector.end():
            self.writer.write(record)

    def _collect(self, event: RunEvent, table: ReadTable | None) -> None:
        try:
            found: list[Any] = self._collector.handle(event, table)
        except Exception:  # noqa: BLE001 - an event that fails must not stop the monitor
            _log.exception("an event could not be handled", extra={"batch": getattr(event, "batch", "")})
            self.missed += 1
            return
        for record in found:
            self.writer.write(record)


def read_previous(address: Address, info: PipelineInfo) -> PreviousState | None:
    """What the monitor has stored about this run; None if the run is new, or if the monitor does not answer."""
    reader = MonitorReader(address, timeout=1.0)
    try:
        state = reader.state(info.pipeline)
        if state is None:
            return None
        return PreviousState(state.incident or next(iter(reader.incidents(info.pipeline, 1)), None), state.totals)
    except PpaError:
        _log.info("the stored state of the run cannot be read", exc_info=True)
        return None
    finally:
        reader.close()
