"""Entries of a Redis stream that others write to: mutated ones among well-formed ones."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

from redis import Redis

from ppa_core.nodes.embedded import launch
from ppa_core.pipeline.sources.redis_stream import RedisStream
from ppa_core.pipeline.sources.server import RedisServer
from tests.fuzz.mutating import TOKENS, mutant
from tests.fuzz.records import SCHEMA, Row, check_batch, row_of
from tests.support.stored import EVERYTHING

_WELL_FORMED, _MUTANTS = 20, 60


def fields_of(row: Row) -> dict[bytes, bytes]:
    texts = [b"" if value is None else str(value).encode() for value in row]
    return dict(zip((name.encode() for name in SCHEMA.names), texts, strict=True))


class Entries:
    def __init__(self, url: str) -> None:
        self.server, self.number = RedisServer(url), count()
        self.client: Any = Redis.from_url(url, protocol=2)

    def round(self, random: Random) -> int:
        key, rows = f"fuzz:in{next(self.number)}", [row_of(random) for _ in range(_WELL_FORMED)]
        entries = [fields_of(row) for row in rows]
        for _ in range(_MUTANTS):
            entries.insert(random.randrange(len(entries) + 1), self.mutant_entry(random))
        for entry in entries:
            self.client.execute_command("XADD", key, "*", *(part for pair in entry.items() for part in pair))
        source = RedisStream(self.server, key, SCHEMA, 1)
        try:
            found, refused = check_batch(source, rows)
            assert found + refused == len(entries), f"{found} rows and {refused} refused of {len(entries)} entries"
        finally:
            self.client.unlink(source._marks, source._owner)
            self.client.unlink(key)
        return _MUTANTS

    def mutant_entry(self, random: Random) -> dict[bytes, bytes]:
        found = fields_of(row_of(random))
        for _ in range(random.choice((1, 1, 2))):
            name = random.choice(list(found))
            value = found.pop(name)
            match random.randrange(4):
                case 0:
                    found[mutant(name, random)] = value
                case 1:
                    found[name] = random.choice(TOKENS)
                case 2 if found:
                    pass
                case _:
                    found[name] = mutant(value, random)
        return found


@contextmanager
def stream_entries(folder: Path) -> Iterator[Entries]:
    with launch(1, 1, 1, 128, EVERYTHING) as nodes:
        target = Entries(nodes.cluster["n1"].url)
        yield target
        target.client.close()
