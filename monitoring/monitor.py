"""A `Monitor` of a running pipeline: events are collected and written, and whoever reports them never waits.

with Monitor(address, info, query.accuracy) as monitor:
    for event in driver.events():
        monitor.watch(event)
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from types import TracebackType
from typing import Any, Self

from monitoring.collector import Collector
from monitoring.connection import Address
from monitoring.inputs import Accuracy, Before, ReadTable
from monitoring.reader import MonitorReader
from monitoring.records import PipelineInfo
from monitoring.writer import Writer
from ppa_core.engine.run_events import RunEvent
from ppa_core.errors import PpaError

_log = logging.getLogger(__name__)

MOST_SEEN = 10_000
"""Events that wait to be collected; there are only many when they come faster than a thread can follow."""


class Monitor:
    """`watch` takes events; it appends to a queue and returns. A thread of its own does the rest."""

    def __init__(self, address: Address, info: PipelineInfo, accuracy: Accuracy | None = None) -> None:
        self.missed = 0
        """Events that fell out of the queue, or could not be handled."""
        before = known_before(address, info)  # first of all: the writer makes the run known
        self.writer = Writer(address, info)
        self._collector = Collector(info, accuracy, before)
        self._seen: deque[tuple[RunEvent, ReadTable | None]] = deque()
        self._wake = threading.Condition()
        self._closing = False
        for record in self._collector.begin(info.started if before is None else round(time.time(), 3)):
            self.writer.tell(record)
        self._thread = threading.Thread(target=self._run, name="ppa-monitor-collector", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def watch(self, event: RunEvent, table: ReadTable | None = None) -> None:
        """Have an event written down; returns at once. `table` reads the output that it is about."""
        with self._wake:
            if len(self._seen) >= MOST_SEEN:
                self._seen.popleft()
                self.missed += 1
            self._seen.append((event, table))
            self._wake.notify()

    def close(self, timeout: float = 5.0) -> bool:
        """Write what is left, for at most so long. Whether everything was written."""
        with self._wake:
            self._closing = True
            self._wake.notify()
        self._thread.join(timeout)
        return self.writer.close(timeout)

    def _run(self) -> None:
        while True:
            with self._wake:
                while not (self._seen or self._closing):
                    self._wake.wait()
                if not self._seen:
                    break
                seen = self._seen.popleft()
            self._collect(*seen)
        for record in self._collector.end():
            self.writer.tell(record)

    def _collect(self, event: RunEvent, table: ReadTable | None) -> None:
        try:
            found: list[Any] = self._collector.handle(event, table)
        except Exception:  # noqa: BLE001 - whatever was reported: the pipeline goes on, and so does the monitor
            _log.exception("an event could not be handled", extra={"batch": getattr(event, "batch", "")})
            self.missed += 1
            return
        for record in found:
            self.writer.tell(record)


def known_before(address: Address, info: PipelineInfo) -> Before | None:
    """What the monitor knows of this run from a driver before; None if this is the first, or the monitor does not answer."""
    reader = MonitorReader(address, timeout=1.0)
    try:
        state = reader.state(info.pipeline)
        if state is None:
            return None
        return Before(state.incident or next(iter(reader.incidents(info.pipeline, 1)), None), state.totals)
    except PpaError:
        _log.info("the monitor does not say what it knows of the run", exc_info=True)
        return None
    finally:
        reader.close()
