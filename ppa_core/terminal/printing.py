"""Non-blocking printing: lines are printed in a separate thread, however slow the terminal is.

A terminal may be stopped (Ctrl-S), and the reader of a pipe may not read. The caller adds a line to a queue and continues.
While nothing can be printed, lines wait; if there are too many, ordinary ones are dropped and counted.
"""

from __future__ import annotations

import logging
import select
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

Line = TypeVar("Line")

MOST = 1_000
"""Maximum number of ordinary lines waiting to be printed; ten times as many of all others."""
PATIENCE = 30.0
"""At the end, the remaining lines are dropped after this many seconds without progress."""

_LOOK_AGAIN = 0.2

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Dropped:
    """This many lines were dropped, because they could not be printed."""

    lines: int


class Printing(Generic[Line]):
    """Calls `printers` with each line, in a separate thread. Their exceptions are raised here, at the next line or the end.

    `ordinary` says which lines can be dropped first: ten times as many of the others can wait.
    """

    def __init__(
        self,
        *printers: Callable[[Line | Dropped], None],
        ordinary: Callable[[Line], bool] = lambda line: False,
        patience: float = PATIENCE,
    ) -> None:
        self.dropped = 0
        self._printers, self._ordinary, self._patience = list(printers), ordinary, patience
        self._lines: deque[Line] = deque()
        self._wake = threading.Condition()
        self._closing = self._given_up = self._raised = False
        self._printed_at = time.monotonic()
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="ppa-printing", daemon=True)
        self._thread.start()

    def __call__(self, line: Line) -> None:
        """Queue a line for printing; returns at once."""
        if self._error is not None:
            self._raised = True
            raise self._error
        with self._wake:
            if len(self._lines) >= (MOST if self._ordinary(line) else 10 * MOST):
                self.dropped += 1
                return
            self._lines.append(line)
            self._wake.notify()

    def add(self, printer: Callable[[Line | Dropped], None]) -> None:
        """Add a function to call, from the next line on."""
        self._printers.append(printer)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Print the remaining lines, as long as there is progress."""
        with self._wake:
            self._closing, self._printed_at = True, time.monotonic()
            self._wake.notify()
        while self._thread.is_alive():
            self._thread.join(_LOOK_AGAIN)
            if time.monotonic() - self._printed_at > self._patience:
                self._given_up = True
                self._thread.join(5 * _LOOK_AGAIN)
                _log.warning("%d lines were not printed: standard output or standard error is blocked", len(self._lines))
                return
        if self._error is not None and kind is None and not self._raised:
            raise self._error

    def _run(self) -> None:
        try:
            while (line := self._next()) is not None:
                while not writable():
                    if self._given_up:
                        return
                for printer in self._printers:
                    printer(line)
                for stream in (sys.stdout, sys.stderr):
                    if stream is not None:
                        stream.flush()
                self._printed_at = time.monotonic()
        except Exception as error:  # noqa: BLE001 - raised again in the thread that queues lines
            _log.debug("printing ended", exc_info=True)
            self._error = error

    def _next(self) -> Line | Dropped | None:
        """The next line; after the waiting lines, the number of dropped ones; None at the end."""
        with self._wake:
            while not (self._lines or self.dropped or self._closing):
                self._wake.wait()
            if self._lines:
                return self._lines.popleft()
            if self.dropped:
                dropped, self.dropped = self.dropped, 0
                return Dropped(dropped)
            return None


def writable(seconds: float = _LOOK_AGAIN, *streams: Any) -> bool:
    """Whether a line can be written to standard output and standard error, or to these streams, within `seconds`."""
    for stream in streams or (sys.stdout, sys.stderr):
        try:
            waiting = select.poll()
            waiting.register(stream.fileno(), select.POLLOUT)
            if not waiting.poll(1000 * seconds):
                return False
        except (AttributeError, OSError, ValueError):  # not a file, or closed: writing will raise
            continue
    return True
