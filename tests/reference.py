"""Rates, OF and IC straight from their definitions, in plain loops over substreams: slow, and independent of the package."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from ppa_core.topology import Edge, Operator, Topology


@dataclass
class Reference:
    """The rates of a topology by task id, derived by the rules of the topology file."""

    topology: Topology
    input: dict[str, float] = field(default_factory=dict)
    output: dict[str, float] = field(default_factory=dict)
    streams: dict[str, list[dict[str, float]]] = field(default_factory=dict)
    """Of each task its input streams, each the rates of its substreams by upstream task."""
    mixes: dict[str, list[dict[str, float]]] = field(default_factory=dict)
    """The same with other numbers where a task has weight 0 under `full`: it sees the stream as its neighbours do."""

    def __post_init__(self) -> None:
        waiting = list(self.topology.operators)
        while waiting:
            operator = waiting.pop(0)
            edges = [edge for edge in self.topology.edges if edge.target == operator.name]
            if any(f"{edge.source}.1" not in self.output for edge in edges):
                waiting.append(operator)
                continue
            for n in range(operator.tasks):
                self._derive(operator, n, edges)

    def _derive(self, operator: Operator, n: int, edges: list[Edge]) -> None:
        task = f"{operator.name}.{n + 1}"
        self.streams[task] = [self._substreams(edge, operator, n) for edge in edges]
        self.mixes[task] = [self._mix(edge, rates) for edge, rates in zip(edges, self.streams[task], strict=True)]
        if operator.rate is not None:
            self.input[task] = self.output[task] = operator.rate[n]
        else:
            self.input[task] = sum(sum(stream.values()) for stream in self.streams[task])
            self.output[task] = self.input[task] * operator.selectivity

    def _substreams(self, edge: Edge, target: Operator, j: int) -> dict[str, float]:
        n1 = next(o.tasks for o in self.topology.operators if o.name == edge.source)
        n2, weights = target.tasks, target.weights or (1.0,) * target.tasks
        rates = {}
        for i in range(n1):
            task = f"{edge.source}.{i + 1}"
            sent = self.output[task]
            if edge.partitioning == "full":
                rate = sent * weights[j] / sum(weights)
            elif edge.partitioning == "split" and i == j * n1 // n2:
                rate = sent * weights[j] / sum(weights[k] for k in range(n2) if k * n1 // n2 == i)
            elif edge.partitioning in ("merge", "one-to-one") and j == i * n2 // n1:
                rate = sent
            else:
                continue
            rates[task] = self.topology.measured.get(f"{task}>{target.name}.{j + 1}", rate)
        return rates

    def _mix(self, edge: Edge, rates: dict[str, float]) -> dict[str, float]:
        measured = any((up, down) == (edge.source, edge.target) for up, down in map(_operators, self.topology.measured))
        return rates if measured or edge.partitioning != "full" else {up: self.output[up] for up in rates}


def _operators(substream: str) -> tuple[str, str]:
    """The operators of a substream: O1 and O3 of "O1.1>O3.1"."""
    up, down = substream.split(">")
    return up.rpartition(".")[0], down.rpartition(".")[0]


def output_fidelity(topology: Topology, alive: Collection[int]) -> float:
    """OF with exactly these tasks alive (and the external ones)."""
    rates = Reference(topology)
    loss = _losses(rates, alive, joins=True)
    fed = {edge.source for edge in topology.edges}
    sinks = [o.task(n) for o in topology.operators if o.name not in fed for n in range(1, o.tasks + 1)]
    return 1 - _mean([(rates.output[task], loss[task]) for task in sinks])


def internal_completeness(topology: Topology, alive: Collection[int]) -> float:
    """IC with exactly these tasks alive (and the external ones): processed tuples with the failure ÷ without it."""
    rates = Reference(topology)
    loss = _losses(rates, alive, joins=False)
    return 1 - _mean([(rates.input[task], loss[task]) for task in loss])


def _losses(rates: Reference, alive: Collection[int], *, joins: bool) -> dict[str, float]:
    """IL of every task's output; without `joins` every input is taken for independent."""
    loss: dict[str, float] = {}
    operators = {o.task(n): o for o in rates.topology.operators for n in range(1, o.tasks + 1)}
    numbers = {task: number for number, task in enumerate(operators)}
    for task, streams in rates.streams.items():  # upstream before downstream, as they were derived
        operator = operators[task]
        of_stream = [_mean([(rate, loss[up]) for up, rate in mix.items()]) for mix in rates.mixes[task]]
        if numbers[task] not in alive and not operator.external:
            loss[task] = 1.0
        elif not streams:
            loss[task] = 0.0
        elif operator.input == "correlated" and joins:
            kept = 1.0
            for lost in of_stream:
                kept *= 1 - lost
            loss[task] = 1 - kept
        else:
            loss[task] = _mean([(sum(stream.values()), lost) for stream, lost in zip(streams, of_stream, strict=True)])
    return loss


def _mean(weighted: list[tuple[float, float]]) -> float:
    """The weighted mean of (weight, value) pairs; the plain mean where all weights are 0."""
    total = sum(weight for weight, _ in weighted)
    if total == 0:
        return sum(value for _, value in weighted) / len(weighted)
    return sum(weight * value for weight, value in weighted) / total
