"""The stream of commands. Anyone with Redis access can write anything to it, so it is read in bounded time and kept usable."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping
from typing import Any

from monitoring.connection import Connection, MonitorDown

SECONDS = 0.5
"""Time limit of one read; the rest is read the next time."""
PAGE = 1_000
_PAGE_BYTES = 4 << 20
_FUTURE = 86_400_000
"""Milliseconds. An id so far ahead was not given by Redis, and would prevent new entries."""


class Inbox:
    """Removes what it reads. `repaired` is a message if the stream had to be removed because it was unusable."""

    def __init__(self, connection: Connection, name: str) -> None:
        self._connection, self._name = connection, name
        self._page = PAGE
        self.repaired = ""

    def read(self) -> Iterator[Mapping[bytes, bytes]]:
        """The fields of the entries, oldest first. MonitorDown if the monitor does not answer."""
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

    def repair(self) -> None:
        """Remove the stream if no command can be added: it has another type, or an id from the far future."""
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
            self.repaired = "the stream of commands was unusable because someone else wrote to it; it was removed"

    def _next(self) -> list[Any]:
        try:
            with self._connection.pipeline() as pipe:
                pipe.xrange(self._name, count=self._page)
                (found,) = self._connection.read(pipe)
        except MonitorDown:
            self._read_less()
            raise
        if isinstance(found, Exception):
            self.repair()
        return found if isinstance(found, list) else []

    def _read_less(self) -> None:
        """After a timeout: if the monitor answers now, the page was too large. A single entry that is too large is removed."""
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
