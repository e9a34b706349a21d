"""What is in a Redis stream."""

from __future__ import annotations

from dataclasses import dataclass

from ppa_core.errors import BadInput
from ppa_core.runtime.sources.redis_stream import fetch
from ppa_core.runtime.sources.server import Server

_SAMPLE = 1000


@dataclass(frozen=True)
class StreamSummary:
    """`fields` are the names in the first `sampled` entries, by how often they are there."""

    entries: int
    first_id: str | None
    last_id: str | None
    fields: dict[str, int]
    sampled: int


def summarise(server: Server, key: str) -> StreamSummary:
    """The figures of a stream; BadInput if the key holds none."""
    with server.calls() as client:
        kind = client.type(key)
        if kind != b"stream":
            reason = "there is no such key" if kind == b"none" else f"it is a {kind.decode()}"
            raise BadInput(f"{server.address}#{key}", f"no stream: {reason}; name the key that XADD writes to")
        entries, last = client.xlen(key), client.xrevrange(key, count=1)
    sample = fetch(server, key, "0-0", "+", _SAMPLE)
    counts: dict[str, int] = {}
    for _, fields in sample:
        for name in fields:
            text = name.decode(errors="backslashreplace")
            counts[text] = counts.get(text, 0) + 1
    first_id, last_id = (entries_[0][0].decode() if entries_ else None for entries_ in (sample, last))
    return StreamSummary(entries, first_id, last_id, counts, len(sample))
