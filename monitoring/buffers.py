"""The writer's records before and after they are sent: a bounded queue, and the most recent writes.

Recent writes are kept for a while because a Redis server that is killed can lose writes that it has acknowledged.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

from monitoring.routes import Route

SECONDS = 5.0
"""Seconds for which a written record is kept."""
MAX_BYTES = 8 << 20


@dataclass
class Item:
    """An encoded record, where it is stored, and the id that it was first sent with."""

    route: Route
    content: bytes
    id: tuple[int, int] | None = None
    sent: bool = False


class BoundedQueue:
    """Items that wait to be sent. If there are too many, the oldest are dropped."""

    def __init__(self, max_items: int, max_bytes: int) -> None:
        self._items: deque[Item] = deque()
        self._bytes, self._max_items, self._max_bytes = 0, max_items, max_bytes

    def __len__(self) -> int:
        return len(self._items)

    def append(self, item: Item) -> int:
        """Add an item; how many old ones were dropped for it."""
        self._items.append(item)
        self._bytes += len(item.content)
        dropped = 0
        while len(self._items) > self._max_items or self._bytes > self._max_bytes:
            self.popleft()
            dropped += 1
        return dropped

    def appendleft(self, item: Item) -> None:
        self._items.appendleft(item)
        self._bytes += len(item.content)

    def popleft(self) -> Item:
        item = self._items.popleft()
        self._bytes -= len(item.content)
        return item

    def clear(self) -> None:
        self._items.clear()
        self._bytes = 0


class RecentWrites:
    """The items written in the last SECONDS, at most MAX_BYTES in total."""

    def __init__(self) -> None:
        self._items: deque[tuple[float, Item]] = deque()
        self._bytes = 0

    def add(self, item: Item) -> None:
        now = time.monotonic()
        self._items.append((now, item))
        self._bytes += len(item.content)
        while self._items and (self._items[0][0] < now - SECONDS or self._bytes > MAX_BYTES):
            self._bytes -= len(self._items.popleft()[1].content)

    def take_lost(self, ends: Mapping[str, tuple[int, int]]) -> list[Item]:
        """Remove all items, and return those that must be sent again: after the end of their stream, or in none."""
        lost = []
        for _, item in self._items:
            series = item.route.series
            if series is None or (item.id or (0, 0)) > ends[series.name]:
                item.sent = True
                lost.append(item)
        self._items.clear()
        self._bytes = 0
        return lost
