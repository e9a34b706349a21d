"""The topology: operators, their parallel tasks, and the edges between them. Frozen, and validated when constructed."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Any

from ppa_core.errors import RequestError, TopologyError
from ppa_core.topology.operators import (
    MAX_RATE,
    Edge,
    Input,
    Operator,
    Partitioning,
    check_number,
    check_operators,
    is_partitioning,
    is_text,
    place_of,
)

__all__ = ["Edge", "Input", "Operator", "Partitioning", "Topology"]


@dataclass(frozen=True)
class Topology:
    """A DAG of operators. The constructor validates it, so every `Topology` object is valid.

    Tasks are numbered from 0 in the order of `operators`; `tasks[i]` is the id of task i. `measured` is copied and
    read-only.
    """

    name: str
    operators: tuple[Operator, ...]
    edges: tuple[Edge, ...]
    measured: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not is_text(self.name):
            raise TopologyError("name", f"{str(self.name)[:60]} is not a string")
        if not self.name.isprintable():
            raise TopologyError("name", f"{self.name[:60]!r} contains a character that is not printable")
        object.__setattr__(self, "measured", MappingProxyType(dict(self.measured)))
        check_operators(self.operators)
        _check_edges(self)
        _check_roles(self)
        _check_measured(self)
        _check_overflow(self)

    def __reduce__(self) -> tuple[Any, ...]:
        """Copy and pickle only the defining fields, not the cached properties."""
        return type(self), (self.name, self.operators, self.edges, dict(self.measured))

    def __hash__(self) -> int:
        return hash((self.name, self.operators, self.edges, tuple(sorted(self.measured.items()))))

    @cached_property
    def by_name(self) -> dict[str, Operator]:
        return {operator.name: operator for operator in self.operators}

    @cached_property
    def inputs(self) -> dict[str, tuple[Edge, ...]]:
        """The edges into each operator: one input stream each."""
        return _grouped(self.operators, self.edges, lambda edge: edge.target)

    @cached_property
    def outputs(self) -> dict[str, tuple[Edge, ...]]:
        """The edges out of each operator."""
        return _grouped(self.operators, self.edges, lambda edge: edge.source)

    @cached_property
    def order(self) -> tuple[str, ...]:
        """The operators' names, upstream before downstream."""
        return _topological_order(self)

    @cached_property
    def sources(self) -> tuple[str, ...]:
        return tuple(operator.name for operator in self.operators if not self.inputs[operator.name])

    @cached_property
    def sinks(self) -> tuple[str, ...]:
        return tuple(operator.name for operator in self.operators if not self.outputs[operator.name])

    @cached_property
    def tasks(self) -> tuple[str, ...]:
        return tuple(operator.task(n) for operator in self.operators for n in range(1, operator.tasks + 1))

    @cached_property
    def index(self) -> dict[str, int]:
        """Task id to task number."""
        return {task: i for i, task in enumerate(self.tasks)}

    @cached_property
    def span(self) -> dict[str, range]:
        """The task numbers of each operator."""
        spans, start = {}, 0
        for operator in self.operators:
            spans[operator.name] = range(start, start + operator.tasks)
            start += operator.tasks
        return spans

    @cached_property
    def external_tasks(self) -> frozenset[int]:
        """Tasks of external sources: they never fail and take no budget."""
        return frozenset(i for operator in self.operators if operator.external for i in self.span[operator.name])

    def numbers(self, tasks: Iterable[str]) -> frozenset[int]:
        """Task numbers of task ids. Raises RequestError for an unknown id."""
        found = set()
        for task in tasks:
            if task not in self.index:
                raise RequestError(f"task {task!r}", f"not in topology {self.name!r}; its tasks are {self._some_tasks()}")
            found.add(self.index[task])
        return frozenset(found)

    def ids(self, numbers: Iterable[int]) -> tuple[str, ...]:
        """Task ids of task numbers, in the topology's order."""
        return tuple(self.tasks[i] for i in sorted(numbers))

    def links(self, edge: Edge) -> Iterator[tuple[int, int]]:
        """The substreams of an edge as pairs of task numbers (upstream, downstream)."""
        up, down = self.span[edge.source], self.span[edge.target]
        match edge.partitioning:
            case Partitioning.FULL:
                yield from ((u, d) for u in up for d in down)
            case Partitioning.SPLIT:
                yield from ((up[j * len(up) // len(down)], down[j]) for j in range(len(down)))
            case _:
                yield from ((up[i], down[i * len(down) // len(up)]) for i in range(len(up)))

    def _some_tasks(self) -> str:
        shown = [f"{o.name}.1 … {o.name}.{o.tasks}" if o.tasks > 1 else f"{o.name}.1" for o in self.operators[:4]]
        return ", ".join(shown) + (", …" if len(self.operators) > 4 else "")


def _grouped(operators: Iterable[Operator], edges: Iterable[Edge], key: Callable[[Edge], str]) -> dict[str, tuple[Edge, ...]]:
    groups: defaultdict[str, list[Edge]] = defaultdict(list)
    for edge in edges:
        groups[key(edge)].append(edge)
    return {operator.name: tuple(groups[operator.name]) for operator in operators}


def _topological_order(topology: Topology) -> tuple[str, ...]:
    waiting = {operator.name: len(topology.inputs[operator.name]) for operator in topology.operators}
    ready = deque(name for name, count in waiting.items() if count == 0)
    order: list[str] = []
    while ready:
        name = ready.popleft()
        order.append(name)
        for edge in topology.outputs[name]:
            waiting[edge.target] -= 1
            if waiting[edge.target] == 0:
                ready.append(edge.target)
    if len(order) < len(topology.operators):
        stuck = [name for name, count in waiting.items() if count > 0]
        raise TopologyError("edges", f"cycle among {', '.join(map(repr, stuck[:6]))}; a topology must be acyclic")
    return tuple(order)


def _check_edges(topology: Topology) -> None:
    pairs: set[tuple[str, str]] = set()
    for i, edge in enumerate(topology.edges):
        place = f"edges[{i}] {edge.source!r}->{edge.target!r}"
        for end, name in (("from", edge.source), ("to", edge.target)):
            if name not in topology.by_name:
                raise TopologyError(f"{place}.{end}", f"unknown operator {name!r}")
        if edge.source == edge.target:
            raise TopologyError(place, "an operator cannot feed itself")
        if (edge.source, edge.target) in pairs:
            raise TopologyError(place, "duplicate edge between these two operators")
        pairs.add((edge.source, edge.target))
        if not is_partitioning(edge.partitioning):
            raise TopologyError(f"{place}.partitioning", f"{edge.partitioning!r} is not one of {', '.join(Partitioning)}")
        _check_counts(place, topology, edge)
    _ = topology.order


def _check_counts(place: str, topology: Topology, edge: Edge) -> None:
    target = topology.by_name[edge.target]
    n1, n2 = topology.by_name[edge.source].tasks, target.tasks
    fits, rule = {
        Partitioning.ONE_TO_ONE: (n1 == n2, "the same number of tasks on both sides"),
        Partitioning.MERGE: (n1 > n2, "more tasks upstream than downstream"),
        Partitioning.SPLIT: (n1 < n2, "fewer tasks upstream than downstream"),
        Partitioning.FULL: (True, ""),
    }[edge.partitioning]
    if not fits:
        raise TopologyError(f"{place}.partitioning", f"{edge.partitioning} needs {rule}, but there are {n1} and {n2}")
    if edge.partitioning is Partitioning.SPLIT and target.weights:
        share = [0.0] * n1
        for j, weight in enumerate(target.weights):
            share[j * n1 // n2] += weight
        if 0 in share:
            starved = f"{edge.source}.{share.index(0) + 1}"
            raise TopologyError(place, f"all tasks of {edge.target!r} fed by {starved} have weight 0; its output has no target")


def _check_roles(topology: Topology) -> None:
    for i, operator in enumerate(topology.operators):
        place = place_of(i, operator)
        if topology.inputs[operator.name]:
            if operator.rate is not None:
                raise TopologyError(f"{place}.rate", "only a source has a rate, and this operator has incoming edges")
            if operator.external:
                raise TopologyError(f"{place}.external", "only a source can be external, and this operator has incoming edges")
            continue
        if operator.rate is None:
            raise TopologyError(place, "no edge leads here, so it is a source and needs a 'rate'")
        if operator.selectivity != 1:
            raise TopologyError(f"{place}.selectivity", "a source's rate is its output rate; remove the selectivity")
        if operator.weights:
            raise TopologyError(f"{place}.weights", "a source has no input to distribute; give a list as its 'rate' instead")
        if operator.input is Input.CORRELATED:
            raise TopologyError(f"{place}.input", "a source has no input to join; remove this field")


def _check_measured(topology: Topology) -> None:
    if not topology.measured:
        return
    known = {(edge.source, edge.target): edge for edge in topology.edges}
    for key, value in topology.measured.items():
        place = f"measured[{key!r}]"
        up, arrow, down = key.partition(">") if is_text(key) else ("", "", "")
        if not arrow or up not in topology.index or down not in topology.index:
            raise TopologyError(place, "not a substream; write it as 'O1.1>O3.1' with two tasks of this topology")
        edge = known.get((up.rpartition(".")[0], down.rpartition(".")[0]))
        if edge is None or not _linked(topology, edge, topology.index[up], topology.index[down]):
            raise TopologyError(place, f"{up} sends nothing to {down} in this topology")
        check_number(place, value)


def _linked(topology: Topology, edge: Edge, up: int, down: int) -> bool:
    n1, n2 = len(topology.span[edge.source]), len(topology.span[edge.target])
    i, j = up - topology.span[edge.source].start, down - topology.span[edge.target].start
    match edge.partitioning:
        case Partitioning.FULL:
            return True
        case Partitioning.SPLIT:
            return i == j * n1 // n2
        case _:
            return j == i * n2 // n1


def _check_overflow(topology: Topology) -> None:
    """Refuse rates that overflow a float. The totals computed here are upper bounds of all derived rates."""
    measured: defaultdict[tuple[str, str], float] = defaultdict(float)
    for key, value in topology.measured.items():
        up, _, down = key.partition(">")
        measured[up.rpartition(".")[0], down.rpartition(".")[0]] += value
    out: dict[str, float] = {}
    for name in topology.order:
        operator = topology.by_name[name]
        input_rate = sum(out[edge.source] + measured[edge.source, name] for edge in topology.inputs[name])
        out[name] = sum(operator.rate) if operator.rate is not None else input_rate * operator.selectivity
        if not (input_rate < MAX_RATE and out[name] < MAX_RATE):
            raise TopologyError(f"operator {name!r}", "its rate overflows; check the selectivities upstream")
