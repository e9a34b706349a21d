"""Decomposition of a topology (paper, section IV.C): into full and structured sub-topologies, units, and segments.

**Sub-topologies.** Operators tied by edges that are not `full` depend on each other's choice of tasks, so they stay
together: every group of two or more is a *structured* sub-topology. The operators that remain have only `full` edges; each
connected group of them is a *full* sub-topology. So every operator is in exactly one sub-topology, every edge between two
of them is `full`, and no decomposition with these properties has fewer parts. The paper finds the same parts by searches
from the sink upwards. Where a DAG has a `full` edge beside a chain of other edges, it stays inside its structured
sub-topology and is a boundary between units.

**Units** cut a structured sub-topology so that the number of segments does not multiply. An edge is a boundary if it is
`full`, or if it is a `merge` whose downstream operator joins streams or splits its output. The paper looks at that operator
only; here the rule reaches through further edges of the unit (merge, one-to-one, split multiplies just as well).

**Segments** are the MC-trees of a unit: for a task of a unit's last operators, one upstream task of each stream of a join
and of one stream of any other operator, up to the unit's first operators.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from itertools import islice, product

from ppa_core.topology import Edge, Input, Partitioning, Topology


class Kind(StrEnum):
    """How the operators of a sub-topology are tied to each other."""

    FULL = "full"
    STRUCTURED = "structured"


@dataclass(frozen=True)
class SubTopology:
    """A part of a topology: its operators, upstream first, and the edges between them."""

    kind: Kind
    operators: tuple[str, ...]
    edges: tuple[Edge, ...]


@dataclass(frozen=True)
class Unit:
    """A part of a sub-topology in which MC-trees do not multiply: its operators, upstream first, and its inner edges."""

    operators: tuple[str, ...]
    edges: tuple[Edge, ...]


@dataclass(frozen=True)
class Segment:
    """An MC-tree of a unit, as task numbers."""

    unit: int
    tasks: frozenset[int]


def decompose(topology: Topology) -> tuple[SubTopology, ...]:
    """The fewest sub-topologies with only `full` edges between them, the most upstream first."""
    tied = [edge for edge in topology.edges if edge.partitioning is not Partitioning.FULL]
    groups = _components(topology.order, tied)
    alone = {group[0] for group in groups if len(group) == 1}
    loose = [edge for edge in topology.edges if edge.source in alone and edge.target in alone]
    parts = [(Kind.STRUCTURED, group) for group in groups if len(group) > 1]
    parts += [(Kind.FULL, group) for group in _components([o for o in topology.order if o in alone], loose)]
    place = {name: i for i, name in enumerate(topology.order)}
    parts.sort(key=lambda part: place[part[1][0]])
    return tuple(SubTopology(kind, group, _inner(topology, group)) for kind, group in parts)


def is_full(topology: Topology) -> bool:
    """Whether every edge is `full`."""
    return all(edge.partitioning is Partitioning.FULL for edge in topology.edges)


def boundaries(topology: Topology, operators: Iterable[str]) -> frozenset[Edge]:
    """The edges among these operators at which a unit ends."""
    inside = set(operators)
    cut: set[Edge] = set()
    multiplies: set[str] = set()
    for name in reversed(topology.order):
        if name not in inside:
            continue
        kept = [e for e in topology.outputs[name] if e.target in inside and e not in cut]
        joins = topology.by_name[name].input is Input.CORRELATED and len(topology.inputs[name]) > 1
        if joins or any(e.partitioning is Partitioning.SPLIT or e.target in multiplies for e in kept):
            multiplies.add(name)
        for edge in topology.inputs[name]:
            merges = edge.partitioning is Partitioning.MERGE and name in multiplies
            if edge.source in inside and (merges or edge.partitioning is Partitioning.FULL):
                cut.add(edge)
    return frozenset(cut)


def units(topology: Topology, operators: Iterable[str] | None = None) -> tuple[Unit, ...]:
    """The units of a sub-topology's operators (default: of the whole topology, its `full` edges being boundaries)."""
    inside = set(topology.order if operators is None else operators)
    order = [name for name in topology.order if name in inside]
    cut = boundaries(topology, order)
    kept = [e for e in topology.edges if e.source in inside and e.target in inside and e not in cut]
    return tuple(
        Unit(group, tuple(e for e in kept if e.source in group and e.target in group)) for group in _components(order, kept)
    )


def segments(topology: Topology, unit: Unit, number: int = 0, limit: int = 10_000) -> tuple[Segment, ...]:
    """The segments of a unit (at most `limit`), without repetition. `number` is kept in each as its unit.

    A stream that enters through a boundary is another unit's affair: a join asks nothing of it here, and another operator
    may live on it alone, so its task is a segment by itself as well.
    """
    ahead = _Upstream(topology, unit)
    last = [name for name in unit.operators if not any(edge.source == name for edge in unit.edges)]
    found: dict[frozenset[int], Segment] = {}
    for name in last:
        for task in topology.span[name]:
            for tasks in islice(ahead.trees(name, task), limit):
                found.setdefault(tasks, Segment(number, tasks))
                if len(found) >= limit:
                    return tuple(found.values())
    return tuple(found.values())


class _Upstream:
    """Walks the links of a unit against the stream."""

    def __init__(self, topology: Topology, unit: Unit) -> None:
        self.topology = topology
        self.edges = {name: tuple(e for e in unit.edges if e.target == name) for name in unit.operators}
        self.feeders: dict[Edge, dict[int, list[int]]] = {}
        for edge in unit.edges:
            links = self.feeders.setdefault(edge, {})
            for up, down in topology.links(edge):
                links.setdefault(down, []).append(up)

    def trees(self, name: str, task: int) -> Iterator[frozenset[int]]:
        inner = self.edges[name]
        whole = len(inner) == len(self.topology.inputs[name])
        joins = self.topology.by_name[name].input is Input.CORRELATED
        if not inner or not (whole or joins):
            yield frozenset((task,))
        if not inner:
            return
        if joins:
            for parts in product(*(tuple(self._stream(edge, task)) for edge in inner)):
                yield frozenset((task,)).union(*parts)
            return
        for edge in inner:
            for part in self._stream(edge, task):
                yield part | {task}

    def _stream(self, edge: Edge, task: int) -> Iterator[frozenset[int]]:
        for up in self.feeders[edge].get(task, ()):
            yield from self.trees(edge.source, up)


def _inner(topology: Topology, group: Iterable[str]) -> tuple[Edge, ...]:
    inside = set(group)
    return tuple(edge for edge in topology.edges if edge.source in inside and edge.target in inside)


def _components(names: Iterable[str], edges: Iterable[Edge]) -> list[tuple[str, ...]]:
    """The connected groups of names, in the order of `names`."""
    names = list(names)
    group = {name: {name} for name in names}
    for edge in edges:
        one, other = group[edge.source], group[edge.target]
        if one is not other:
            one |= other
            group.update(dict.fromkeys(other, one))
    seen: set[str] = set()
    found = []
    for name in names:
        if name not in seen:
            seen |= group[name]
            found.append(tuple(n for n in names if n in group[name]))
    return found
