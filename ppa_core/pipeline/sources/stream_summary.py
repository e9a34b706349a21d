"""Summary of a Redis stream."""

from __future__ import annotations

from dataclasses import dataclass

from ppa_core.errors import BadInput
from ppa_core.pipeline.sources.limits import DEFAULT_LIMITS
from ppa_core.pipeline.sources.metered import TooMuch
from ppa_core.pipeline.sources.redis_stream import fetch
from ppa_core.pipeline.sources.server import RedisServer
from ppa_core.safety.printable import printable

_SAMPLE = 1000
_LONGEST_NAME = 200


@dataclass(frozen=True)
class StreamSummary:
    """`fields` are the names in the first `sampled` entries with their counts, up to the number that a source accepts."""

    entries: int
    first_id: str | None
    last_id: str | None
    fields: dict[str, int]
    sampled: int


def summarise(server: RedisServer, key: str) -> StreamSummary:
    """Summarise a stream. Raises BadInput if the key does not hold one."""
    with server.calls() as client:
        kind = client.type(key)
        if kind != b"stream":
            reason = "no such key" if kind == b"none" else f"the key holds a {kind.decode()}"
            raise BadInput(f"{server.address}#{key}", f"not a stream: {reason}; give the key that XADD writes to")
        entries = client.xlen(key)
    sample = fetch(server, key, "0-0", "+", _SAMPLE, DEFAULT_LIMITS.batch_bytes)
    counts: dict[str, int] = {}
    for _, fields in sample:
        for name in list(fields or ())[: DEFAULT_LIMITS.columns]:
            text = printable(name.decode(errors="backslashreplace"), _LONGEST_NAME)
            if text in counts or len(counts) < DEFAULT_LIMITS.columns:
                counts[text] = counts.get(text, 0) + 1
    first_id = sample[0][0].decode() if sample else None
    return StreamSummary(entries, first_id, _last_id(server, key), counts, len(sample))


def _last_id(server: RedisServer, key: str) -> str | None:
    try:
        with server.calls(metered=True) as client:
            last = client.xrevrange(key, count=1)
    except TooMuch as error:
        return error.first_id
    return last[0][0].decode() if last else None
