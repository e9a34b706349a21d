"""What tasks come to without any failure. A state or output is made of hashes of all that went into it."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

from ppa_core.engine.recovery import Graph
from ppa_core.topology import Build, Topology

Value = tuple[str, ...]

LOOKBACK = {"A": 3, "B": None, "C": 1, "D": 2}
"""How many batches back the state of each operator of the small topology reaches; B never forgets."""


def digest(*parts: Any) -> str:
    return blake2b(repr(parts).encode(), digest_size=8).hexdigest()


def small_topology(sinks: int = 1) -> Topology:
    """Two sources, a merge, a join of two branches; the sink has one task that all feed, or two that have a half each."""
    into = "full" if sinks == 1 else "one-to-one"
    return (
        Build("world")
        .source("S", 4, rate=1, external=True)
        .source("T", 2, rate=1, external=True)
        .operator("A", 4, {"S": "one-to-one"})
        .operator("B", 2, {"A": "merge"})
        .operator("C", 2, {"T": "one-to-one"})
        .operator("D", sinks, {"B": into, "C": into}, join=True)
        .done()
    )


class Truth:
    """Right results, and how a task comes to them."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.sinks = [task for task in graph.tasks if not graph.consumers[task]]
        self._known: dict[tuple[str, int], tuple[Value, Value]] = {}

    def of(self, task: str, batch: int) -> tuple[Value, Value]:
        """State and output of a task after a batch."""
        if batch < 0:
            return (), ()
        if (task, batch) not in self._known:
            before = self.of(task, batch - 1)[0]
            inputs = [self.of(feeder, batch)[1] for feeder in self.graph.feeders[task]]
            self._known[task, batch] = self.step(task, batch, before, inputs)
        return self._known[task, batch]

    def result(self, batch: int) -> str:
        """What is published of a batch."""
        return digest([self.of(task, batch)[1] for task in self.sinks])

    def step(self, task: str, batch: int, before: Value, inputs: Sequence[Value | None]) -> tuple[Value, Value]:
        """A window over what went in: the state is the last `lookback_batches` batches, or a hash of all."""
        entry, lookback = digest(task, batch, list(inputs)), self.graph.lookback_batches.get(task)
        window: Value = (*before, entry) if lookback is not None else (digest(before, entry),)
        kept = len(window) if lookback is None else min(lookback, len(window))
        return window[len(window) - kept :], (digest("output", window),)
