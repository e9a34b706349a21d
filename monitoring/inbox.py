"""The stream of commands as an inbox that anyone may have filled with anything: read in bounded time, and kept usable."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping
from typing import Any

from monitoring.connection import Connection, MonitorDown

SECONDS = 0.5
"""That one reading may take, however much there is; the rest is for the next."""
PAGE = 1_000
_PAGE_BYTES = 4 << 20
_FUTURE = 86_400_000
"""Milliseconds from now: Redis gives no id beyond, so someone else did, and none could be added after it."""


class Inbox:
    """What is read is removed: it is looked at once. `mended` says what had to be done for commands to come through."""

    def __init__(self, connection: Connection, name: str) -> None:
        self._connection, self._name = connection, name
        self._page = PAGE
        self.mended = ""

    def read(self) -> Iterator[Mapping[bytes, bytes]]:
        """The fields of the entries, oldest first. MonitorDown if the monitor is away."""
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            entries = self._next()
            if not entries:
                return
            size = 0
            for _, fields in entries:
                known = fields if isinstance(fields, dict) else {}
                size += sum(map(len, known.values()))
                yield known
            self._connection.run(("XDEL", self._name, *(id_ for id_, _ in entries)))
            if len(entries) < self._page:
                return
            self._page = max(1, self._page // 4) if size > _PAGE_BYTES else min(PAGE, self._page * 2)

    def mend(self) -> None:
        """Remove a stream that takes no command any more: of another type, or with an id from the far future."""
        (known,) = self._connection.run(("XINFO", "STREAM", self._name))
        if isinstance(known, Exception):
            usable = "no such key" in str(known) or "permission" in str(known).lower()
        else:
            usable = _milliseconds(known) < time.time() * 1000 + _FUTURE
        if not usable:
            self._connection.run(("UNLINK", self._name))
            self.mended = "the stream of commands was unusable: someone else wrote to it; it was removed"

    def _next(self) -> list[Any]:
        command = ("XRANGE", self._name, "-", "+", "COUNT", self._page)
        try:
            (found,) = self._connection.read(command)
        except MonitorDown:
            (length,) = self._connection.run(("XLEN", self._name))  # it answers: there is too much in a page
            if self._page == 1 and isinstance(length, int) and length:
                self._connection.run(("XTRIM", self._name, "MAXLEN", length - 1))
            self._page = max(1, self._page // 8)
            raise
        if isinstance(found, Exception):
            self.mend()
        return found if isinstance(found, list) else []


def _milliseconds(known: Any) -> int:
    """Of the last id that a stream has given."""
    pairs = known if isinstance(known, dict) else dict(zip(known[::2], known[1::2], strict=False))
    last = next((value for name, value in pairs.items() if name in (b"last-generated-id", "last-generated-id")), b"")
    found = re.match(r"\d+", last.decode("ascii", "replace") if isinstance(last, bytes) else str(last))
    return int(found[0]) if found else 0
