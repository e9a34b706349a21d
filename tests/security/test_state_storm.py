"""Bits flipped at random while batches and replays run: machine, workers and real nodes, everything but Spark.

Whatever is published as accurate or as a correction is, byte for byte, what a run without damage publishes. `make storm` runs
this with new seeds.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import pytest

from ppa_core.drills.local import Local
from ppa_core.engine.events import (
    AttemptFailed,
    AwaitReplay,
    BatchDone,
    BatchReady,
    CopiesDamaged,
    Emit,
    Event,
    ReplayDone,
    RunBatch,
    Sweep,
)
from ppa_core.engine.machine import Machine
from ppa_core.engine.orders import Order
from ppa_core.engine.recovery import Graph
from ppa_core.nodes.embedded import EmbeddedNodes, launch
from ppa_core.nodes.store import Store
from ppa_core.placement.place import place
from ppa_core.queries.tree import tree
from ppa_core.worker.stage import StageResult
from tests.security.damage import Vandal, flipped
from tests.support.local import outputs

PIPELINE = tree(rate=40, window=4, keys=20)
BATCHES, AFTER = 12, 8


class Storm:
    """A host without Spark: it does what the machine says, and tells it which copies were lost."""

    def __init__(self, nodes: EmbeddedNodes, random: Random) -> None:
        self.random, self.nodes = random, nodes
        self.stores = {node.name: Store(node, f"storm{random.random()}") for node in nodes.cluster.nodes}
        topology = PIPELINE.topology()
        graph = Graph.of(topology, {operator.name: operator.lookback_batches for operator in PIPELINE.operators})
        plan = frozenset(task for task in graph.tasks if random.random() < 0.4)
        self.machine = Machine(graph, place(graph.tasks, nodes.cluster.nodes, plan), checkpoint_every=4)
        self.local = Local(PIPELINE, 2, stores=self.stores.__getitem__)
        self.truth = Local(PIPELINE, 1)
        self.made: dict[tuple[int, int], dict[tuple[str, int], bytes]] = {}
        self.pending: RunBatch | None = None
        self.published: dict[int, list[str]] = {}
        self.lost = 0

    def tell(self, event: Event) -> None:
        for instruction in self.machine.handle(event):
            match instruction:
                case RunBatch():
                    self.pending = instruction
                case AwaitReplay():
                    self.replay()
                case Emit():
                    self.publish(instruction)
                case Sweep(task, nodes, keep, first) if not self.machine.missing:
                    for node in nodes:
                        self.stores[node].sweep(task, keep, first)

    def publish(self, emit: Emit) -> None:
        self.published.setdefault(emit.batch, []).append(emit.status)
        if emit.status != "tentative":
            assert self.made[emit.batch, emit.attempt] == self.expected[emit.batch], emit

    def batch(self, number: int) -> None:
        while self.pending is None:
            self.tell(BatchReady(number))
        while self.pending is not None:
            run, self.pending = self.pending, None
            result = self.run((run.order,))
            if self.machine.running is run:
                self.tell(AttemptFailed(run.order.attempt) if result.skipped else BatchDone(run.order.attempt))

    def replay(self) -> None:
        replay = self.machine.replaying
        if replay is not None:
            result = self.run(replay.orders)
            if self.machine.replaying is replay:
                self.tell(AttemptFailed(replay.attempt) if result.skipped else ReplayDone(replay.attempt))

    def run(self, orders: Sequence[Order]) -> StageResult:
        """Run a job, with damage before it, and tell of the copies that it found lost."""
        self.damage()
        result = self.local.run(*orders)
        for order in orders:
            self.made[order.batch, order.attempt] = {k: v for k, v in outputs(result).items() if k[1] == order.batch}
        assert not result.down
        for node, task in sorted(result.lost):
            self.stores[node].drop(task)
        self.lost += len(result.lost)
        self.tell(CopiesDamaged(frozenset(result.lost)))
        return result

    def damage(self) -> None:
        """Some bits of some values in some nodes, and at times what workers have cached is gone."""
        if self.random.random() < 0.4:
            self.local.forget()
        for node in self.nodes.cluster.nodes:
            if self.random.random() < 0.25:
                with Vandal(node) as vandal:
                    for (key, field), value in vandal.contents("segments", "manifests", "outputs").items():
                        if self.random.random() < 0.1:
                            vandal.put(key, field, flipped(value, self.random.getrandbits(30)))

    @property
    def expected(self) -> dict[int, dict[tuple[str, int], bytes]]:
        if not hasattr(self, "_expected"):
            found = [outputs(self.truth.run(self.truth.order(batch))) for batch in range(BATCHES + AFTER)]
            self._expected = dict(enumerate(found))
        return self._expected


def flip_bits(seed: int) -> int:
    """A storm of one seed; how many copies it cost."""
    with launch(3, 3, 3, 64) as nodes:
        storm = Storm(nodes, Random(seed))
        for number in range(BATCHES):
            storm.batch(number)
            if storm.random.random() < 0.6:
                storm.replay()
        storm.damage = lambda: None  # type: ignore[method-assign]
        for number in range(BATCHES, BATCHES + AFTER):
            storm.batch(number)
            storm.replay()
        assert not storm.machine.missing
        assert all(history in (["accurate"], ["tentative", "correction"]) for history in storm.published.values())
        assert sorted(storm.published) == list(range(BATCHES + AFTER))
        for store in storm.stores.values():
            store.close()
        return storm.lost


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_no_flipped_bit_is_ever_published(seed: int) -> None:
    assert flip_bits(seed) > 10
