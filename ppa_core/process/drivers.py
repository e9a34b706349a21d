"""The drivers of a run: the one that runs, and with a strict lease a standby driver that takes over if it dies or hangs.

active driver   events --> the run's events
standby driver  session up, workers started; waits for the lease; "took over" --> the old one is killed, this one is active

The first standby driver is started with the active one, later ones when the active one has settled: Spark's start takes all of
a small machine for some seconds.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from queue import SimpleQueue
from typing import Any

from ppa_core.closeable import Closeable
from ppa_core.driver.config import TAKE_OVER, Config
from ppa_core.engine.event_codec import cut
from ppa_core.engine.event_fields import MOST_REASON
from ppa_core.engine.run_events import BatchFinished, DriverDied, DriverTookOver, Ended, RunEvent, StandbyReady
from ppa_core.errors import PpaError
from ppa_core.process.driver import PATIENCE, Driver, DriverExited

SETTLED = 3
"""Batches after which the active driver has settled."""
STANDBY_RESTARTS = 3
"""Maximum number of restarts in a row of a standby driver that does not become ready."""

_log = logging.getLogger(__name__)


class Drivers(Closeable):
    """One driver, or two. `events` yields what happens in the run, whichever driver runs it."""

    def __init__(self, config: Config, prefix: Sequence[str] = ()) -> None:
        self.config, self._prefix = config, prefix
        self.active: Driver | None = None
        self.standby: Driver | None = None
        self.ready = False
        """Whether the standby driver can take over."""
        self._items: SimpleQueue[tuple[Driver, RunEvent | PpaError | None]] = SimpleQueue()
        self._started: list[Driver] = []
        self._over = self._stopping = False
        self._deaths = 0
        self._batches = 0
        """Batches that the active driver has finished since it took over."""
        self.active = self._new(config)
        self._start_standby()

    def close(self) -> None:
        """Kill all drivers, and release what they held."""
        self.kill()
        for driver in self._started:
            driver.close()

    def events(self) -> Iterator[RunEvent]:
        """The events, up to and including `Ended`. Raises PpaError if the run failed, DriverExited if the driver ended
        unexpectedly and no standby driver can take over."""
        batch = -1
        while True:
            driver, item = self._items.get()
            match item:
                case None:
                    if driver is self.active:
                        return
                case StandbyReady():
                    self.ready, self._deaths = driver is self.standby, 0
                    yield item
                case DriverTookOver():
                    self._promote(driver)
                    yield item
                case PpaError() if driver is self.standby and self.active is not None:
                    self._standby_ended(item)
                case DriverExited() if driver is self.active and self._can_take_over():
                    assert self.standby is not None
                    driver.kill()  # with its children
                    self.active = None
                    self.standby.send(TAKE_OVER)
                    yield DriverDied(time.time(), batch, cut(item, MOST_REASON))
                case PpaError():
                    if driver in (self.active, self.standby):
                        raise item
                case Ended() if driver is not self.active:
                    _log.info("a driver that was replaced has ended the run for itself")
                case _ if driver is self.standby:
                    _log.debug("standby driver: %s", item)
                case _:
                    batch = max(batch, item.batch)
                    if isinstance(item, BatchFinished) and driver is self.active:
                        self._settled()
                    yield item

    def send(self, word: str, arguments: dict[str, Any] | None = None, id_: str = "") -> bool:
        """Send a command to the driver that runs; False if none does."""
        driver = self.active
        if driver is None:
            return False
        driver.send(word, arguments, id_)
        return True

    def stop(self) -> None:
        """Let the run end after the current batch, whichever driver runs it; nobody takes over any more."""
        self._stopping = True
        self.send("stop")

    def kill(self) -> None:
        """Kill all drivers. A signal handler calls this at any moment, so it waits for no lock."""
        self._over = True
        for driver in list(self._started):
            driver.kill()

    # ------------------------------------------------------------------------------------------------------------- starting

    def _can_take_over(self) -> bool:
        return self.ready and self.standby is not None and not (self._over or self._stopping)

    def _settled(self) -> None:
        """The active driver has finished a batch."""
        self._batches += 1
        if self._batches >= SETTLED and self.standby is None and self._deaths <= STANDBY_RESTARTS:
            self._start_standby()

    def _start_standby(self) -> None:
        if self.config.strict_lease and not self._over:
            self.standby = self._new(replace(self.config, standby=True), patience=float("inf"))

    def _new(self, config: Config, patience: float = PATIENCE) -> Driver:
        driver = Driver(config, patience, self._prefix)
        self._started.append(driver)
        if self._over:  # `kill` sets it before it looks for drivers
            driver.kill()
        threading.Thread(target=self._pump, args=(driver,), name="ppa-driver-events", daemon=True).start()
        return driver

    def _pump(self, driver: Driver) -> None:
        try:
            for event in driver.events():
                self._items.put((driver, event))
            self._items.put((driver, None))
        except PpaError as error:
            self._items.put((driver, error))

    def _promote(self, driver: Driver) -> None:
        """The standby driver runs now. The old one is killed, wherever it hangs: it holds memory, and must not be resumed."""
        old, self.active, self.standby = self.active, driver, None
        self.ready, self._batches = False, 0
        driver.patience = PATIENCE
        if old is not None and old is not driver:
            old.kill()
        if self._stopping:
            driver.send("stop")

    def _standby_ended(self, error: PpaError) -> None:
        self._deaths += 1
        self.ready, self.standby = False, None
        if not self._over:
            then = "it is restarted" if self._deaths <= STANDBY_RESTARTS else "the run continues without one"
            _log.warning("the standby driver ended; %s: %s", then, error)
