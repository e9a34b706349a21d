"""Numbers of commands: each sender counts its own from 1, and a number that was taken is never taken again.

A command's id is `<sender>-<number>`. Of every sender only the highest number is kept. A sender is forgotten when there are too
many of them, the one of longest ago first, and never before REMEMBER seconds have passed: whatever it had signed by then has
expired. So the memory is bounded, and forgetting opens no door.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from typing import Any

REMEMBER = 300.0
"""Seconds for which a sender is never forgotten; far more than any command holds."""
KEPT = 64
"""Senders that are remembered for longer."""

_ID = re.compile(r"([0-9a-z]{8,32})-([1-9][0-9]{0,14})")


def parse(id_: str) -> tuple[str, int]:
    """The sender and the number in a command's id; ValueError if it is none."""
    found = _ID.fullmatch(id_)
    if found is None:
        raise ValueError("not the id of a command")
    return found[1], int(found[2])


class Numbers:
    """The highest number of each sender, and when it was taken."""

    def __init__(self, known: Mapping[str, Any] | None = None) -> None:
        self._highest: dict[str, tuple[int, float]] = {}
        self.learn(known or {})

    def highest(self, sender: str) -> int:
        """The highest number taken; 0 if the sender is not known."""
        return self._highest.get(sender, (0, 0.0))[0]

    def take(self, id_: str, now: float | None = None) -> bool:
        """Take a command's number; False if it, or a higher one of the same sender, was taken before."""
        sender, number = parse(id_)
        if number <= self.highest(sender):
            return False
        now = time.time() if now is None else now
        self._highest.pop(sender, None)
        self._highest[sender] = (number, now)
        for old, (_, at) in list(self._highest.items())[: max(0, len(self._highest) - KEPT)]:
            if at + REMEMBER < now:
                del self._highest[old]
        return True

    def learn(self, known: Mapping[str, Any]) -> None:
        """Take what another one has taken, as `taken` gave it. What is no number of a sender is ignored."""
        for sender, entry in known.items():
            try:
                number, at = int(entry[0]), float(entry[1])
                parse(f"{sender}-{number}")
            except (ValueError, TypeError, IndexError, KeyError):
                continue
            if number > self.highest(sender):
                self._highest[sender] = (number, at)

    def taken(self) -> dict[str, tuple[int, float]]:
        """The highest number of each sender and when it was taken: what `learn` takes."""
        return {sender: (number, round(at, 3)) for sender, (number, at) in self._highest.items()}
