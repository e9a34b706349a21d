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
            with self._connection.pipeline() as pipe:
                pipe.xdel(self._name, *(id_ for id_, _ in entries))
                self._connection.execute(pipe)
            if len(entries) < self._page:
                return
            self._page = max(1, self._page // 4) if size > _PAGE_BYTES else min(PAGE, self._page * 2)

    def mend(self) -> None:
        """Remove a stream that takes no command any more: of another type, or with an id from the far future."""
        with self._connection.pipeline() as pipe:
            pipe.xinfo_stream(self._name)
            (known,) = self._connection.execute(pipe)
        if isinstance(known, Exception):
            usable = "no such key" in str(known) or "permission" in str(known).lower()
        else:
            usable = _milliseconds(known.get("last-generated-id", b"")) < time.time() * 1000 + _FUTURE
        if not usable:
            with self._connection.pipeline() as pipe:
                pipe.unlink(self._name)
                self._connection.execute(pipe)
            self.mended = "the stream of commands was unusable: someone else wrote to it; it was removed"

    def _next(self) -> list[Any]:
        try:
            with self._connection.pipeline() as pipe:
                pipe.xrange(self._name, count=self._page)
                (found,) = self._connection.read(pipe)
        except MonitorDown:
            self._read_less()
            raise
        if isinstance(found, Exception):
            self.mend()
        return found if isinstance(found, list) else []

    def _read_less(self) -> None:
        """After a page that did not arrive in time. If the monitor answers, that page was too large, be it a single entry."""
        with self._connection.pipeline() as pipe:
            pipe.xlen(self._name)
            (length,) = self._connection.execute(pipe)
        if self._page == 1 and isinstance(length, int) and length:
            with self._connection.pipeline() as pipe:
                pipe.xtrim(self._name, maxlen=length - 1, approximate=False)
                self._connection.execute(pipe)
        self._page = max(1, self._page // 8)


def _milliseconds(id_: bytes) -> int:
    found = re.match(rb"\d+", id_)
    return int(found[0]) if found else 0
