"""A run under supervision: a driver process that is started again when it dies, told what to do, and listened to."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

from ppa_core.driver.main import Config, Line
from ppa_core.errors import PpaError
from ppa_core.process.driver import Driver, DriverDied

RESTARTS = 3
"""How often a driver is started again that died before it published anything."""

_log = logging.getLogger(__name__)


class SupervisedRun:
    """One run. `run` returns when the run has ended or was stopped, and raises what made it fail."""

    def __init__(self, config: Config, tell: Callable[[Line], None]) -> None:
        self.config, self.tell = config, tell
        self._driver: Driver | None = None
        self._lock = threading.Lock()
        self._stopping = False

    def run(self) -> None:
        try:
            self._run()
        except PpaError as error:
            self.tell({"kind": "failed", "reason": str(error)})
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
                self.tell({"kind": "driver died", "reason": str(error)})

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
                for line in driver.lines():
                    self._published |= line["kind"] == "output"
                    self.tell(line)
                return True
            finally:
                with self._lock:
                    self._driver = None
