"""A supervised run: a driver process that is restarted if it dies. It reports events and takes commands."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

from ppa_core.driver.config import Config
from ppa_core.engine import run_events
from ppa_core.engine.event_codec import cut
from ppa_core.engine.event_fields import MOST_REASON
from ppa_core.engine.run_events import BatchFinished, BatchProgress, Heartbeat, OutputPublished, RunEvent
from ppa_core.errors import PpaError
from ppa_core.process.driver import Driver, DriverExited

RESTARTS = 3
"""Maximum number of restarts in a row of a driver that published nothing."""

_log = logging.getLogger(__name__)


class SupervisedRun:
    """One run. `run` returns when the run has ended or was stopped, and raises the error if it failed."""

    def __init__(self, config: Config, report: Callable[[RunEvent], None]) -> None:
        self.config, self.report = config, report
        self._batch = -1
        self._driver: Driver | None = None
        self._stopping = False

    def run(self) -> None:
        try:
            self._run()
        except PpaError as error:
            self.report(run_events.Failed(time.time(), self._batch, cut(error, MOST_REASON)))
            raise

    def _run(self) -> None:
        deaths = 0
        while True:
            try:
                if self._drive():
                    return
            except DriverExited as error:
                if self._stopping:
                    return
                deaths = 1 if self._published else deaths + 1
                if deaths > RESTARTS:
                    raise
                _log.warning("the driver died and is restarted; its log is %s", error.log, extra={"batch": self._batch})
                self.report(run_events.DriverDied(time.time(), self._batch, cut(error, MOST_REASON)))

    def send(self, word: str, arguments: dict[str, Any] | None = None, id_: str = "") -> bool:
        """Send a command to the driver; False if no driver is running."""
        driver = self._driver
        if driver is None:
            return False
        driver.send(word, arguments, id_)
        return True

    def stop(self) -> None:
        """Let `run` return soon, after the current batch."""
        self._stopping = True
        self.send("stop")

    def kill(self) -> None:
        """Kill the driver. A signal handler calls this at any moment, so it waits for no lock and for no `send`."""
        self._stopping = True
        driver = self._driver
        if driver is not None:
            driver.kill()

    def _drive(self) -> bool:
        self._published = False
        with Driver(self.config) as driver:
            self._driver = driver
            try:
                if self._stopping:  # `kill` sets it before it looks for a driver
                    return True
                for event in driver.events():
                    if isinstance(event, OutputPublished):
                        self._published, self._batch = True, max(self._batch, event.batch)
                    self.report(event)
                return True
            finally:
                self._driver = None


def is_ordinary(event: object) -> bool:
    """Whether an event occurs in every batch or heartbeat: such events may be dropped if the terminal is blocked."""
    match event:
        case OutputPublished(status="accurate") | BatchFinished() | BatchProgress() | Heartbeat():
            return True
        case _:
            return False
