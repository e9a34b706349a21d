"""How much of the machine other programs took while something was measured."""

from __future__ import annotations

import threading
from contextlib import suppress
from types import TracebackType
from typing import Self

import psutil

_SECONDS = 1.0
_OF_CORES = 8
"""From `user` to `steal`; the times of guests, which follow, are part of these."""


class Others:
    """Adds up, in a thread, the CPU time of this process with all its children, and that of the whole machine."""

    def __init__(self) -> None:
        self._own: dict[tuple[int, float], float] = {}
        self._spent = 0.0
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="peers-others", daemon=True)

    def __enter__(self) -> Self:
        self._before = _machine()
        self._look(first=True)
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._done.set()
        self._thread.join()
        busy, total = (after - before for after, before in zip(_machine(), self._before, strict=True))
        self.share = share(busy, self._spent, total)

    def _watch(self) -> None:
        while not self._done.wait(_SECONDS):
            self._look()

    def _look(self, first: bool = False) -> None:
        for process in (this := psutil.Process(), *this.children(recursive=True)):
            with suppress(psutil.Error):
                who, times = (process.pid, process.create_time()), process.cpu_times()
                now = times.user + times.system
                self._spent += 0.0 if first else now - self._own.get(who, 0.0)
                self._own[who] = now


def share(busy: float, own: float, total: float) -> float:
    """The share of the machine that others took: all busy time without our own."""
    return min(1.0, max(0.0, busy - own) / total) if total else 0.0


def _machine() -> tuple[float, float]:
    """The busy and the whole CPU time of all cores so far."""
    times = psutil.cpu_times()
    total = float(sum(times[:_OF_CORES]))
    return total - times.idle - times.iowait, total
