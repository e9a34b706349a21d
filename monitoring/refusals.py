"""Counts refused entries, so that a flood of them does not fill the audit log."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable

WINDOW = 60.0
"""Seconds between two reports of the counts; the first is reported at once."""
LINES = 5
"""Maximum number of refused commands per window that get a separate line."""


class RefusalCounter:
    """Counts entries without a valid signature, and repeated commands, by the reason of the refusal."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._counted: Counter[str] = Counter()
        self._reported = self._opened = -WINDOW
        self._lines = 0

    def one_more(self) -> bool:
        """Whether a refused command gets a separate line."""
        if self._clock() - self._opened > WINDOW:
            self._opened, self._lines = self._clock(), 0
        self._lines += 1
        return self._lines <= LINES

    def count(self, reason: str) -> None:
        self._counted[reason[:200]] += 1

    def due(self, closing: bool = False) -> list[str]:
        """The lines to write now, one for each reason."""
        if not self._counted or (self._clock() - self._reported < WINDOW and not closing):
            return []
        lines = [f"{many} {'entries' if many > 1 else 'entry'}: {reason}" for reason, many in sorted(self._counted.items())]
        self._counted.clear()
        self._reported = self._clock()
        return lines[:10]
