"""Damage to what a node holds: done by a client of its own, as bad memory or another program would."""

from __future__ import annotations

from typing import Any

from redis import Redis

from ppa_core.placement.nodes import Node

KINDS = ("segments", "manifests", "outputs", "ledger")


def flipped(content: bytes, bit: int) -> bytes:
    """The content with one bit turned over; a byte if there is none."""
    if not content:
        return b"\x00"
    place = bit % (8 * len(content))
    changed = bytearray(content)
    changed[place // 8] ^= 1 << place % 8
    return bytes(changed)


class Vandal:
    """Someone who can write to a node."""

    def __init__(self, node: Node) -> None:
        self._client: Any = Redis.from_url(node.url, protocol=2)

    def __enter__(self) -> Vandal:
        return self

    def __exit__(self, *error: object) -> None:
        self._client.close()

    def contents(self, *kinds: str) -> dict[tuple[str, bytes], bytes]:
        """All that a node holds of these kinds, by key and field."""
        found: dict[tuple[str, bytes], bytes] = {}
        for key in sorted(key.decode() for key in self._client.scan_iter("ppa:*")):
            if key.split(":")[2] in kinds:
                found |= {(key, field): value for field, value in self._client.hgetall(key).items()}
        return found

    def put(self, key: str, field: bytes, value: bytes) -> None:
        self._client.hset(key, field, value)

    def flip(self, *kinds: str, bit: int = 100) -> int:
        """Turn over one bit in every value of these kinds; how many there were."""
        found = self.contents(*kinds)
        for (key, field), value in found.items():
            self.put(key, field, flipped(value, bit))
        return len(found)
