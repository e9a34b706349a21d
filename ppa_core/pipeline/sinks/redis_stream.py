"""Records in a Redis stream, one entry per record, for the user's own programs: fields as text, tuples as a JSON list."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from ppa_core.errors import BadInput
from ppa_core.pipeline.sinks.records import Mode, Newest, Published, SinkRecord, document, from_document
from ppa_core.pipeline.sources.server import RedisServer

_PAGE = 100
_TEXTS = ("status", "schema")


class RedisSink:
    """Adds records to the stream `key`: batch, revision, status, epoch, of, missing, at, rows and schema.

    The stream keeps the last `max_entries`.
    """

    def __init__(self, server: RedisServer, key: str, max_entries: int = 10_000) -> None:
        if max_entries < 1:
            raise BadInput(f"sink {server.address}#{key}", f"max_entries is {max_entries}; it must be at least 1")
        self.server, self.key, self.max_entries = server, key, max_entries
        with server.calls() as client:
            kind = client.type(key)
        if kind not in (b"none", b"stream"):
            raise BadInput(f"sink {server.address}#{key}", f"the key holds a {kind.decode()}, not a stream; choose another key")

    def __call__(self, record: Published) -> None:
        found = document(record)
        fields = {name: value if name in _TEXTS else json.dumps(value, allow_nan=False) for name, value in found.items()}
        with self.server.calls() as client:
            client.xadd(self.key, fields, maxlen=self.max_entries, approximate=False)

    def close(self) -> None:
        """Nothing to do: connections are shared by the process."""


def read_stream(server: RedisServer, key: str, mode: Mode) -> Iterator[SinkRecord]:
    """The valid record of each batch that is still in the stream, in the order of batches."""
    found: Newest[str] = Newest(mode)
    after = "0-0"
    with server.calls() as client:
        kind = client.type(key)
    if kind != b"stream":
        reason = "no such key" if kind == b"none" else f"the key holds a {kind.decode()}, not a stream"
        raise BadInput(f"{server.address}#{key}", f"{reason}; give the stream of a sink")
    with server.calls() as client:
        while page := client.xrange(key, f"({after}", "+", count=_PAGE):
            for entry_id, fields in page:
                place = f"{server.address}#{key}, entry {entry_id.decode()}"
                batch, revision, status, epoch = _head(place, fields)
                found.note(batch, revision, status, entry_id.decode(), epoch)
            after = page[-1][0].decode()
    for entry_id in found.in_order():
        with server.calls() as client:
            entry = client.xrange(key, entry_id, entry_id)
        if entry:  # it may have been trimmed in the meantime
            texts = {name.decode(): value.decode() for name, value in entry[0][1].items()}
            yield from_document({name: text if name in _TEXTS else json.loads(text) for name, text in texts.items()})


def _head(place: str, fields: dict[bytes, Any]) -> tuple[int, int, str, int]:
    try:
        return int(fields[b"batch"]), int(fields[b"revision"]), fields[b"status"].decode(), int(fields.get(b"epoch", 1))
    except (KeyError, ValueError):
        raise BadInput(place, "not a record of a sink; give a stream that only a sink writes to") from None
