"""Slow processes on a test bed: stopped and continued in turn, so that everything they do takes longer.

A proxy (`delays.py`) would have to stand before every node all the time, and would answer for a node that was killed.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

_RUNNING = 0.03
"""Seconds between two stops."""
_LOOK_AGAIN = 1.0
"""Seconds after which new processes are looked for."""


class Slowness:
    """Processes that are stopped for `seconds` again and again, until `end`."""

    def __init__(self, pids: Callable[[], Sequence[int]], seconds: float) -> None:
        self._pids, self._seconds, self._over = pids, seconds, threading.Event()
        self._thread = threading.Thread(target=self._run, name="ppa-slowness", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Let the processes run as before; they do when this returns."""
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        pids, looked = self._pids(), time.monotonic()
        while not self._over.is_set():
            if time.monotonic() - looked > _LOOK_AGAIN:
                pids, looked = self._pids(), time.monotonic()
            _signal(pids, signal.SIGSTOP)
            self._over.wait(self._seconds)
            _signal(pids, signal.SIGCONT)
            self._over.wait(_RUNNING)


def _signal(pids: Sequence[int], number: signal.Signals) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)
