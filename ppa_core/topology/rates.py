"""Derived rates in tuples/s: the input and output rate of each task, and the rate of each substream."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from ppa_core.errors import TopologyError
from ppa_core.topology.model import Topology
from ppa_core.topology.operators import MAX_RATE, Edge, Operator, Partitioning

DENSE = 1_000_000
"""A `full` edge with measured rates is stored as a matrix up to this many substreams."""

Floats = NDArray[np.float64]
Ints = NDArray[np.intp]


@dataclass(frozen=True)
class Flow:
    """The rates on one edge, in the most compact form for its partitioning.

    one-to-one, merge: `rates[i]` for the one substream of upstream task i, which ends at task `other[i]`.
    split: `rates[j]` for the one substream of downstream task j, which starts at task `other[j]`.
    full: `rates[i]` is sent by upstream task i, and downstream task j receives the fraction `share[j]` of it. If rates were
    measured on the edge, `rates` is the whole matrix (N1, N2), `sent` are the derived output rates, and `share` is None. If
    the matrix would have more than `DENSE` elements, `seen` holds the measured rates as (upstream tasks, downstream tasks,
    rates), which replace the product `rates[i] · share[j]`.
    """

    edge: Edge
    rates: Floats
    other: Ints | None = None
    share: Floats | None = None
    seen: tuple[Ints, Ints, Floats] | None = None
    sent: Floats | None = None

    @property
    def dense(self) -> bool:
        return self.rates.ndim == 2

    def received(self, tasks: int) -> Floats:
        """The rate of this input stream at each of the `tasks` downstream tasks."""
        if self.dense:
            return np.asarray(self.rates.sum(axis=0))
        if self.share is not None:
            return np.asarray(self.unseen(tasks) * self.share + self._seen(tasks))
        if self.edge.partitioning is Partitioning.SPLIT:
            return self.rates
        assert self.other is not None
        return np.bincount(self.other, weights=self.rates, minlength=tasks).astype(np.float64)

    def unseen(self, tasks: int) -> Floats:
        """For each downstream task of a `full` edge: the output rate of all upstream tasks without a measured rate to it."""
        total = np.full(tasks, self.rates.sum())
        if self.seen is not None:
            up, down, _ = self.seen
            total -= np.bincount(down, weights=self.rates[up], minlength=tasks)
            total[np.bincount(down, minlength=tasks) == len(self.rates)] = 0.0  # exactly 0, without rounding errors
        return np.asarray(np.maximum(total, 0.0))

    def _seen(self, tasks: int) -> Floats:
        if self.seen is None:
            return np.zeros(tasks)
        return np.bincount(self.seen[1], weights=self.seen[2], minlength=tasks).astype(np.float64)

    def rate(self, i: int, j: int) -> float:
        """The rate of the substream from upstream task i to downstream task j (both counted from 0)."""
        if self.dense:
            return float(self.rates[i, j])
        if self.share is not None:
            if self.seen is not None:
                up, down, rates = self.seen
                there = np.flatnonzero((up == i) & (down == j))
                if len(there):
                    return float(rates[there[0]])
            return float(self.rates[i] * self.share[j])
        return float(self.rates[j if self.edge.partitioning is Partitioning.SPLIT else i])


@dataclass(frozen=True)
class Rates:
    """Rates of a topology, by task number. The input rate of a source is its rate."""

    topology: Topology
    input: Floats
    output: Floats
    flows: dict[tuple[str, str], Flow]

    def substreams(self) -> Iterator[tuple[int, int, float]]:
        """Every substream as (upstream task, downstream task, rate); a `full` edge has N1·N2 of them."""
        for edge in self.topology.edges:
            flow = self.flows[edge.source, edge.target]
            up, down = self.topology.span[edge.source].start, self.topology.span[edge.target].start
            for u, d in self.topology.links(edge):
                yield u, d, flow.rate(u - up, d - down)


@lru_cache(maxsize=64)
def derive(topology: Topology) -> Rates:
    """The rates of all tasks and substreams: derived from the sources' rates, or measured where available."""
    n = len(topology.tasks)
    rates = Rates(topology, np.zeros(n), np.zeros(n), {})
    measured = _measured_by_edge(topology)
    for name in topology.order:
        operator, span = topology.by_name[name], topology.span[name]
        own = slice(span.start, span.stop)
        if operator.rate is not None:
            rates.input[own] = rates.output[own] = operator.rate
            continue
        for edge in topology.inputs[name]:
            up = topology.span[edge.source]
            flow = _flow(edge, rates.output[up.start : up.stop], operator, measured.get((edge.source, name), {}))
            rates.flows[edge.source, name] = flow
            rates.input[own] += flow.received(operator.tasks)
        with np.errstate(over="ignore"):
            rates.output[own] = rates.input[own] * operator.selectivity
        if not (rates.output[own] < MAX_RATE).all():
            raise TopologyError(f"operator {name!r}", "its rate overflows; check the selectivities upstream")
    rates.input.flags.writeable = rates.output.flags.writeable = False
    return rates


def _measured_by_edge(topology: Topology) -> dict[tuple[str, str], dict[tuple[int, int], float]]:
    found: dict[tuple[str, str], dict[tuple[int, int], float]] = {}
    for key, value in topology.measured.items():
        up, _, down = key.partition(">")
        (source, _, i), (target, _, j) = up.rpartition("."), down.rpartition(".")
        found.setdefault((source, target), {})[int(i) - 1, int(j) - 1] = value
    return found


def _flow(edge: Edge, sent: Floats, target: Operator, measured: dict[tuple[int, int], float]) -> Flow:
    n1, n2 = len(sent), target.tasks
    weights = np.array(target.weights) if target.weights else np.ones(n2)
    match edge.partitioning:
        case Partitioning.FULL:
            share = weights / weights.sum()
            if not measured:
                return Flow(edge, sent.copy(), share=share)
            if n1 * n2 > DENSE:
                pairs = np.array(list(measured), dtype=np.intp)
                return Flow(edge, sent.copy(), share=share, seen=(pairs[:, 0], pairs[:, 1], np.array(list(measured.values()))))
            matrix = np.outer(sent, share)
            for (i, j), value in measured.items():
                matrix[i, j] = value
            return Flow(edge, matrix, sent=sent.copy())
        case Partitioning.SPLIT:
            parent = np.arange(n2) * n1 // n2
            rates = sent[parent] * (weights / np.bincount(parent, weights=weights)[parent])
            for (_, j), value in measured.items():
                rates[j] = value
            return Flow(edge, rates, other=parent)
        case _:
            child = np.arange(n1) * n2 // n1
            rates = sent.copy()
            for (i, _), value in measured.items():
                rates[i] = value
            return Flow(edge, rates, other=child)
