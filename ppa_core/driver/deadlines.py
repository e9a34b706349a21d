"""Deadlines: every batch has an output by its deadline, whatever the reason why its job is not done.

Batch b covers the interval that ends at `began + b * interval`; its deadline is `seconds` later. A batch without an output by
then gets an empty one, tentative, with all tasks missing; its job continues, and its result is published as the correction.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from math import ceil

MARGIN = 0.1
"""Seconds before the deadline: publishing takes a while too."""
_LOOK_AGAIN = 0.05
_SOON = 3
"""A driver took over soon if the next batch is overdue by less than this many deadlines."""


class Deadlines:
    """The schedule of a run. Without an interval (batches as fast as possible) there are no deadlines."""

    def __init__(self, interval: float, seconds: float, passed: Callable[[int], None]) -> None:
        self.interval, self.seconds, self._passed = interval, seconds, passed
        self.began = 0.0
        self._next = 0
        """The next batch that needs an output."""
        self._waiting = True
        """Whether nobody waits for outputs: before the first one, and while the run is paused."""
        self._owed = 0
        """Batches before this one get an output although their deadline has passed."""
        self._lock = threading.Lock()

    def start(self, next_batch: int, began: float) -> None:
        """The schedule is known: batch 0 was due at `began`, and this batch is the next one."""
        with self._lock:
            self._next, self.began = max(self._next, next_batch), began

    def resume(self, next_batch: int, began: float, now: float) -> None:
        """This driver continues a schedule, and the next batch has no output yet. If it took over soon, batches whose deadline
        passed meanwhile get an empty output at once: it will be some seconds until it has computed one."""
        self.start(next_batch, began)
        overdue = now - self.due(next_batch)
        if overdue < _SOON * self.seconds:
            self._waiting = False
            self._owed = next_batch + ceil((overdue - self.seconds) / self.interval)

    @property
    def known(self) -> bool:
        """Whether there are deadlines, and the schedule is known."""
        return bool(self.interval and self.began)

    def due(self, batch: int) -> float:
        """The end of the batch's interval, in seconds since 1970."""
        return self.began + batch * self.interval

    def published(self, batch: int) -> None:
        """The batch has an output."""
        with self._lock:
            self._next, self._waiting = max(self._next, batch + 1), False

    def pause(self) -> None:
        """Until the next output is published, nobody waits for one."""
        with self._lock:
            self._waiting = True

    def left(self, batch: int, now: float) -> float:
        """Seconds until the batch's deadline; infinite if there is none."""
        return self.due(batch) + self.seconds - now if self.known else float("inf")

    def run(self, stopping: threading.Event) -> None:
        """Watch the deadlines until the run stops."""
        while self.interval and not stopping.wait(_LOOK_AGAIN):
            self.check(time.time())

    def check(self, now: float) -> None:
        """Report the next batch if its deadline is about to pass. If that passed while nobody watched, as in a pause or a
        restart, it is late in any case, and so are those after it: outputs come in order."""
        with self._lock:
            batch, left = self._next, self.left(self._next, now)
            missed = left <= -self.interval / 2 and batch >= self._owed
            if self._waiting or left > MARGIN or missed:
                return
            self._next += 1
        self._passed(batch)
