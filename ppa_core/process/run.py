"""A run under supervision: a driver process that is started again when it dies. Events come out, commands go in."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Any

from ppa_core.driver.config import Config
from ppa_core.engine import run_events
from ppa_core.engine.event_codec import cut
from ppa_core.engine.event_fields import MOST_REASON
from ppa_core.engine.run_events import BatchFinished, BatchProgress, Heartbeat, OutputPublished, RunEvent
from ppa_core.errors import PpaError
from ppa_core.process.driver import Driver, DriverDied

RESTARTS = 3
"""How often a driver is started again that died before it published anything."""

_log = logging.getLogger(__name__)


class SupervisedRun:
    """One run. `run` returns when the run has ended or was stopped, and raises what made it fail."""

    def __init__(self, config: Config, tell: Callable[[RunEvent], None]) -> None:
        self.config, self.tell = config, tell
        self._batch = -1
        self._driver: Driver | None = None
        self._lock = threading.Lock()
        self._stopping = False

    def run(self) -> None:
        try:
            self._run()
        except PpaError as error:
            self.tell(run_events.Failed(time.time(), self._batch, cut(error, MOST_REASON)))
            raise

    def _run(self) -> None:
        deaths = 0
        while True:
            try:
                if self._drive():
                    return
            except DriverDied as error:
                if self._stopping:
                    return
                deaths = 1 if self._published else deaths + 1
                if deaths > RESTARTS:
                    raise
                _log.warning("the driver died and is started again; its log is in %s", error.log)
                self.tell(run_events.DriverDied(time.time(), self._batch, cut(error, MOST_REASON)))

    def send(self, word: str, arguments: dict[str, Any] | None = None, id_: str = "") -> bool:
        """Have a command carried out; False if no driver runs at the moment."""
        with self._lock:
            if self._driver is None:
                return False
            self._driver.send(word, arguments, id_)
            return True

    def stop(self) -> None:
        """Let `run` return soon, after the batch under way."""
        self._stopping = True
        self.send("stop")

    def kill(self) -> None:
        """End the driver at once."""
        self._stopping = True
        with self._lock:
            if self._driver is not None:
                self._driver.kill()

    def _drive(self) -> bool:
        self._published = False
        with Driver(self.config) as driver:
            with self._lock:
                self._driver = driver
            try:
                if self._stopping:
                    return True
                for event in driver.events():
                    if isinstance(event, OutputPublished):
                        self._published, self._batch = True, max(self._batch, event.batch)
                    self.tell(event)
                return True
            finally:
                with self._lock:
                    self._driver = None


def is_ordinary(event: object) -> bool:
    """Whether an event comes with every batch or heartbeat: of those, some may be missing on a terminal that is blocked."""
    match event:
        case OutputPublished(status="accurate") | BatchFinished() | BatchProgress() | Heartbeat():
            return True
        case _:
            return False
