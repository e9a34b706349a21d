"""Refused entries, counted: a flood of them must not fill the audit log, which has room for so many lines."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable

WINDOW = 60.0
"""Seconds between two times that what was counted is told; the first is told at once."""
LINES = 5
"""Of these seconds, refused commands that may have a line of their own."""


class RefusalCounter:
    """Entries without a valid signature, and the same signed command again and again, by the reason of their refusal."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._counted: Counter[str] = Counter()
        self._told = self._opened = -WINDOW
        self._lines = 0

    def one_more(self) -> bool:
        """Whether a refused command may have a line of its own."""
        if self._clock() - self._opened > WINDOW:
            self._opened, self._lines = self._clock(), 0
        self._lines += 1
        return self._lines <= LINES

    def count(self, reason: str) -> None:
        self._counted[reason[:200]] += 1

    def due(self, closing: bool = False) -> list[str]:
        """What is to be told now, a line a reason."""
        if not self._counted or (self._clock() - self._told < WINDOW and not closing):
            return []
        told = [f"{many} {'entries' if many > 1 else 'entry'}: {reason}" for reason, many in sorted(self._counted.items())]
        self._counted.clear()
        self._told = self._clock()
        return told[:10]
