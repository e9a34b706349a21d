"""Sequence numbers of commands: each sender counts from 1, and a number is never accepted twice.

A command's id is `<sender>-<number>`. Only the highest number of each sender is kept. If there are too many senders, the oldest
are removed, but not before REMEMBER seconds have passed: by then, all commands that they had signed have expired. So memory is
bounded, and a removed sender's commands still cannot be replayed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

REMEMBER = 300.0
"""Seconds for which a sender is always kept; much longer than any command is valid."""
KEPT = 64
"""Senders that are kept for longer."""

_ID = re.compile(r"([0-9a-z]{8,32})-([1-9][0-9]{0,14})")


def parse(id_: str) -> tuple[str, int]:
    """The sender and the number in a command's id; ValueError if it is not a valid id."""
    found = _ID.fullmatch(id_)
    if found is None:
        raise ValueError("not the id of a command")
    return found[1], int(found[2])


class SequenceNumbers:
    """The highest number of each sender, and when it was accepted."""

    def __init__(self, known: Mapping[str, Any] | None = None) -> None:
        self._highest: dict[str, tuple[int, float]] = {}
        self.learn(known or {})

    def highest(self, sender: str) -> int:
        """The highest number accepted; 0 if the sender is unknown."""
        return self._highest.get(sender, (0, 0.0))[0]

    def take(self, id_: str, now: float) -> bool:
        """Accept a command's number; False if it, or a higher one of the same sender, was accepted before."""
        sender, number = parse(id_)
        if number <= self.highest(sender):
            return False
        self._highest.pop(sender, None)
        self._highest[sender] = (number, now)
        for old, (_, at) in list(self._highest.items())[: max(0, len(self._highest) - KEPT)]:
            if at + REMEMBER < now:
                del self._highest[old]
        return True

    def learn(self, known: Mapping[str, Any]) -> None:
        """Add the numbers that another instance accepted (from `taken`). Invalid entries are ignored."""
        for sender, entry in known.items():
            try:
                number, at = int(entry[0]), float(entry[1])
                parse(f"{sender}-{number}")
            except (ValueError, TypeError, IndexError, KeyError):
                continue
            if number > self.highest(sender):
                self._highest[sender] = (number, at)

    def taken(self) -> dict[str, tuple[int, float]]:
        """The highest number of each sender and when it was accepted: the input of `learn`."""
        return {sender: (number, round(at, 3)) for sender, (number, at) in self._highest.items()}
