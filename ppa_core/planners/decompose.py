"""Decomposition of a topology (paper, section IV.C): into full and structured sub-topologies, units, and segments.

**Sub-topologies.** Operators tied by edges that are not `full` depend on each other's choice of tasks, so they stay
together: every group of two or more is a *structured* sub-topology. The operators that remain have only `full` edges; each
connected group of them is a *full* sub-topology. So every operator is in exactly one sub-topology, every edge between two
of them is `full`, and no decomposition with these properties has fewer parts. The paper finds the same parts by searches
from the sink upwards. Where a DAG has a `full` edge beside a chain of other edges, it stays inside its structured
sub-topology and is a boundary between units.

**Units** cut a structured sub-topology where the number of segments would multiply. An edge is a boundary if it is
`full`, or if it is a `merge` whose downstream operator joins streams or splits its output. The paper looks at that operator
only; here the rule reaches through further edges of the unit (merge, one-to-one, split multiplies just as well). Operators
that live on any of several streams can still multiply the segments; enumeration is therefore limited.

**Segments** are the MC-trees of a unit: for a task of a unit's last operators, one upstream task of each stream of a join
and of one stream of any other operator, up to the unit's first operators. A task that is reached along two paths chooses
once. So the segments are sets of tasks, and none is there only because two paths chose differently.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from itertools import product

from ppa_core.topology import Edge, Input, Partitioning, Topology

WORK = 100
"""Steps for each segment that is asked for: an end of the enumeration where many ways lead to the same tasks."""

_Options = tuple[tuple[str, int], ...]
_Waiting = tuple[str, int, "_Waiting"] | None


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
    """A part of a sub-topology in which no merge multiplies MC-trees: its operators, upstream first, and its inner edges."""

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
    inner = _inner(topology.edges, [group for _, group in parts])
    return tuple(SubTopology(kind, group, edges) for (kind, group), edges in zip(parts, inner, strict=True))


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
    groups = _components(order, kept)
    return tuple(Unit(group, edges) for group, edges in zip(groups, _inner(kept, groups), strict=True))


def segments(topology: Topology, unit: Unit, number: int = 0, limit: int = 10_000) -> tuple[Segment, ...]:
    """The segments of a unit (at most `limit`), without repetition. `number` is kept in each as its unit.

    A stream that enters through a boundary is another unit's affair: a join asks nothing of it here, and another operator
    may live on it alone, so its task is a segment by itself as well. The walk ends after `WORK` · `limit` steps (and one
    for each task of the unit), whatever was found by then.
    """
    ahead = _Upstream(topology, unit)
    feeding = {edge.source for edge in unit.edges}
    work = WORK * limit + sum(len(topology.span[name]) for name in unit.operators)
    found: dict[frozenset[int], Segment] = {}
    for name in unit.operators:
        if name in feeding:
            continue
        for task in topology.span[name]:
            for tasks in ahead.trees(name, task, work):
                found.setdefault(tasks, Segment(number, tasks))
                if len(found) >= limit:
                    return tuple(found.values())
            if ahead.steps >= work:
                return tuple(found.values())
    return tuple(found.values())


class _Upstream:
    """Walks the links of a unit against the stream."""

    def __init__(self, topology: Topology, unit: Unit) -> None:
        self.topology = topology
        self.steps = 0
        self.edges: dict[str, list[Edge]] = {name: [] for name in unit.operators}
        for edge in unit.edges:
            self.edges[edge.target].append(edge)

    def trees(self, name: str, task: int, work: int) -> Iterator[frozenset[int]]:
        """The trees above a task, until `steps` has come to `work`: depth first, undoing the last choice that has others left.

        `waiting` is a linked list, and `taken` the tasks in the order in which they came, so that undoing costs nothing.
        """
        tree: set[int] = set()
        taken: list[int] = []
        waiting: _Waiting = (name, task, None)
        undo: list[tuple[int, _Waiting, Iterator[_Options]]] = []
        while self.steps < work:
            while waiting is not None and self.steps < work:
                name, task, waiting = waiting
                if task in tree:
                    continue
                self.steps += 1
                tree.add(task)
                taken.append(task)
                ways = self._ways(name, task)
                undo.append((len(taken), waiting, ways))
                waiting = _with(waiting, next(ways))
            if waiting is None:
                yield frozenset(tree)
            while undo:
                count, waiting, ways = undo[-1]
                tree.difference_update(taken[count:])
                del taken[count:]
                options = next(ways, None)
                if options is not None:
                    waiting = _with(waiting, options)
                    break
                undo.pop()
            else:
                return
            self.steps += 1

    def _ways(self, name: str, task: int) -> Iterator[_Options]:
        """What may feed a task inside the unit: for each way, all the upstream tasks with their operators."""
        inner = self.edges[name]
        if self.topology.by_name[name].input is Input.CORRELATED:
            yield from product(*([(edge.source, up) for up in self._feeders(edge, task)] for edge in inner))
            return
        if len(inner) < len(self.topology.inputs[name]) or not inner:
            yield ()
        for edge in inner:
            for up in self._feeders(edge, task):
                yield ((edge.source, up),)

    def _feeders(self, edge: Edge, task: int) -> range:
        """The tasks that send to this one along an edge that is not `full`."""
        up, down = self.topology.span[edge.source], self.topology.span[edge.target]
        row, n1, n2 = task - down.start, len(up), len(down)
        if edge.partitioning is Partitioning.SPLIT:
            return up[row * n1 // n2 : row * n1 // n2 + 1]
        return up[-(-row * n1 // n2) : -(-(row + 1) * n1 // n2)]


def _with(waiting: _Waiting, options: _Options) -> _Waiting:
    for name, task in reversed(options):
        waiting = (name, task, waiting)
    return waiting


def _inner(edges: Iterable[Edge], groups: list[tuple[str, ...]]) -> list[tuple[Edge, ...]]:
    """The edges within each group of operators."""
    home = {name: k for k, group in enumerate(groups) for name in group}
    found: list[list[Edge]] = [[] for _ in groups]
    for edge in edges:
        k = home.get(edge.source)
        if k is not None and home.get(edge.target) == k:
            found[k].append(edge)
    return [tuple(inside) for inside in found]


def _components(names: Iterable[str], edges: Iterable[Edge]) -> list[tuple[str, ...]]:
    """The connected groups of names, in the order of `names`."""
    group = {name: [name] for name in names}
    for edge in edges:
        one, other = group[edge.source], group[edge.target]
        if one is not other:
            if len(one) < len(other):
                one, other = other, one
            one += other
            group.update(dict.fromkeys(other, one))
    place = {name: k for k, name in enumerate(group)}
    whole = {id(found): found for found in group.values()}
    return [tuple(sorted(found, key=place.__getitem__)) for found in whole.values()]
