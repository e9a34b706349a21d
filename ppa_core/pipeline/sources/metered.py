"""A size limit for responses of a Redis server: a larger one is not received completely."""

from __future__ import annotations

import re
from typing import Any

from redis.connection import DefaultParser

PAGE_BYTES = 16 << 20
"""Maximum size of a response. A response of small values takes about ten times as much memory in this process."""

_KEPT = 256
"""Number of bytes kept from the beginning of a response: enough for the id of the first entry."""

_FIRST_ID = re.compile(rb"\*\d+\r\n\*2\r\n\$\d+\r\n(\d+-\d+)\r\n")


class TooMuch(Exception):
    """A response above the limit; `first_id` is the id of its first entry, if it has entries."""

    def __init__(self, first_id: str | None) -> None:
        super().__init__("the server's response is larger than the limit")
        self.first_id = first_id


class _Meter:
    """A socket that raises TooMuch after `PAGE_BYTES` bytes."""

    def __init__(self, sock: Any) -> None:
        self._sock = sock
        self.begin()

    def begin(self) -> None:
        self._count, self._head = 0, b""

    def recv(self, size: int, *flags: int) -> bytes:
        content: bytes = self._sock.recv(size, *flags)
        self._received(content, len(content))
        return content

    def recv_into(self, buffer: Any, *more: int) -> int:
        count: int = self._sock.recv_into(buffer, *more)
        self._received(buffer, count)
        return count

    def _received(self, content: Any, count: int) -> None:
        if len(self._head) < _KEPT:
            self._head += bytes(content[: min(count, _KEPT - len(self._head))])
        self._count += count
        if self._count > PAGE_BYTES:
            found = _FIRST_ID.match(self._head)
            raise TooMuch(found[1].decode() if found else None)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sock, name)


class Metered(DefaultParser):  # type: ignore[misc, valid-type]
    """A response parser that raises TooMuch, which closes the connection."""

    def on_connect(self, connection: Any, **options: Any) -> None:
        self._meter = _Meter(connection._sock)
        super().on_connect(connection, **options)
        self._sock = self._meter
        buffer: Any = getattr(self, "_buffer", None)
        if hasattr(buffer, "_sock"):  # the pure Python parser reads through this buffer
            buffer._sock = self._meter

    def read_response(self, *arguments: Any, **options: Any) -> Any:
        self._meter.begin()
        return super().read_response(*arguments, **options)
