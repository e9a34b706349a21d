"""What a `Writer` wrote last: a Redis that is killed may have lost it although it acknowledged it, so it is kept a while."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

from monitoring.routes import Route

SECONDS = 5.0
"""In which what was written may still be lost with the server."""
MOST_BYTES = 8 << 20


@dataclass
class Item:
    """A record on its way: where it goes, what is sent, and the id it was first sent with."""

    route: Route
    content: bytes
    id: tuple[int, int] | None = None
    sent: bool = False


class RecentWrites:
    """The items written in the last SECONDS, of at most MOST_BYTES."""

    def __init__(self) -> None:
        self._items: deque[tuple[float, Item]] = deque()
        self._bytes = 0

    def add(self, item: Item) -> None:
        now = time.monotonic()
        self._items.append((now, item))
        self._bytes += len(item.content)
        while self._items and (self._items[0][0] < now - SECONDS or self._bytes > MOST_BYTES):
            self._bytes -= len(self._items.popleft()[1].content)

    def take_lost(self, ends: Mapping[str, tuple[int, int]]) -> list[Item]:
        """Those that are beyond the end of their stream, or are in none: to be sent once more. Nothing is kept any longer."""
        lost = []
        for _, item in self._items:
            series = item.route.series
            if series is None or (item.id or (0, 0)) > ends[series.name]:
                item.sent = True
                lost.append(item)
        self._items.clear()
        self._bytes = 0
        return lost
