"""What nodes hold: of mutated values a store gives out what was written, or nothing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random
from typing import Any

from redis import Redis

from ppa_core.nodes.embedded import launch
from ppa_core.nodes.store import NodeDown, Store
from ppa_core.pipeline.tables import digest
from ppa_core.placement.nodes import Node
from tests.fuzz.mutating import mutant

_TASK = "A.1"
_BATCHES = 3


class Contents:
    def __init__(self, node: Node) -> None:
        self.store = Store(node, "fuzz")
        self.client: Any = Redis.from_url(node.url, protocol=2)

    def close(self) -> None:
        for opened in (self.store, self.client):
            opened.close()

    def round(self, random: Random) -> int:
        self.store.forget()
        segments = [random.randbytes(random.choice((0, 1, 40, 300))) for _ in range(4)]
        named = {digest(content): content for content in segments}
        manifests = {b: {f"s{i}": digest(content) for i, content in enumerate(segments[: b + 2])} for b in range(_BATCHES)}
        outputs = {b: random.randbytes(random.choice((0, 1, 100))) for b in range(_BATCHES)}
        for batch in range(_BATCHES):
            wanted = set(manifests[batch].values())
            new = {name: content for name, content in named.items() if name in wanted}
            self.store.write(_TASK, batch, 1, manifests[batch], new, outputs[batch])
        self.store.write_ledger(3, '{"head": 3}')
        mutants = self.mutate(random)
        self.check(manifests, named, outputs, random)
        return mutants

    def mutate(self, random: Random) -> int:
        """Some values changed, exchanged, taken away, renamed, or replaced by what is of another type."""
        kept: list[tuple[str, bytes, bytes]] = []
        for kind in ("manifests", "segments", "outputs"):
            key = f"ppa:fuzz:{kind}:{_TASK}"
            kept += [(key, name, value) for name, value in self.client.hgetall(key).items()]
        kept += [("ppa:fuzz:ledger", name, value) for name, value in self.client.hgetall("ppa:fuzz:ledger").items()]
        chosen = random.sample(kept, random.randrange(1, len(kept) + 1))
        for key, name, value in chosen:
            match random.randrange(12):
                case 0:
                    self.client.hdel(key, name)
                case 1:
                    self.client.hset(key, mutant(name, random), value)
                case 2:
                    self.client.hset(key, name, random.choice(kept)[2])
                case _:
                    self.client.hset(key, name, mutant(value, random))
        if random.random() < 0.03:
            self.client.set(random.choice(kept)[0], b"of another type")
        return len(chosen)

    def check(
        self, manifests: dict[int, dict[str, str]], named: dict[str, bytes], outputs: dict[int, bytes], random: Random
    ) -> None:
        for batch in range(_BATCHES):
            try:
                assert self.store.manifest(_TASK, batch, 1) in (None, manifests[batch])
                assert self.store.outputs([(_TASK, batch, 1)]) in ([None], [outputs[batch]])
                found = self.store.segments(_TASK, list(named))
                assert found.items() <= named.items()
                self.store.lacking(_TASK, list(named))
                if random.random() < 0.3:
                    self.store.sweep(_TASK, {(batch, 1)}, batch)
            except NodeDown:
                continue  # it answers, but not as it should: the node counts as lost
        with suppress(NodeDown):
            assert self.store.read_ledger() in (None, (3, '{"head": 3}'))


@contextmanager
def node_contents(folder: Path) -> Iterator[Contents]:
    with launch(1, 1, 1, 64) as nodes:
        target = Contents(nodes.cluster["n1"])
        yield target
        target.close()
