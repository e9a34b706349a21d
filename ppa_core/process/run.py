"""A supervised run: its driver is restarted if it dies and no standby driver takes over. It takes commands."""

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
from ppa_core.process.driver import DriverExited
from ppa_core.process.drivers import Drivers

RESTARTS = 3
"""Maximum number of restarts in a row of a driver that published nothing."""

_log = logging.getLogger(__name__)


class SupervisedRun:
    """One run. `run` returns when the run has ended or was stopped, and raises the error if it failed."""

    def __init__(self, config: Config, report: Callable[[RunEvent], None]) -> None:
        self.config, self.report = config, report
        self._batch = -1
        self._drivers: Drivers | None = None
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
        drivers = self._drivers
        return drivers is not None and drivers.send(word, arguments, id_)

    def stop(self) -> None:
        """Let `run` return soon, after the current batch."""
        self._stopping = True
        if self._drivers is not None:
            self._drivers.stop()

    def kill(self) -> None:
        """Kill the drivers. A signal handler calls this at any moment, so it waits for no lock and for no `send`."""
        self._stopping = True
        drivers = self._drivers
        if drivers is not None:
            drivers.kill()

    def _drive(self) -> bool:
        self._published = False
        with Drivers(self.config) as drivers:
            self._drivers = drivers
            try:
                if self._stopping:  # `kill` sets it before it looks for drivers
                    return True
                for event in drivers.events():
                    if isinstance(event, OutputPublished):
                        self._published, self._batch = True, max(self._batch, event.batch)
                    self.report(event)
                return True
            finally:
                self._drivers = None


def is_ordinary(event: object) -> bool:
    """Whether an event occurs in every batch or heartbeat: such events may be dropped if the terminal is blocked."""
    match event:
        case OutputPublished(status="accurate") | BatchFinished() | BatchProgress() | Heartbeat():
            return True
        case _:
            return False
