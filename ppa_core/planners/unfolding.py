"""The planning problem as a linear mixed-integer programme, joins included.

x_t ∈ {0, 1} says "t is replicated". A variable y stands for the survival of a task's output, *scaled*: joins make
products of survivals, and instead of a bilinear y ≤ s1 · s2 the stream s1 is unfolded again with s2 as the scale of
everything in it. A source task then has y ≤ x_t and y ≤ scale, every other task y ≤ x_t and y ≤ its scaled supply,
which is linear in the y of its upstream tasks. For binary x the largest feasible y is the product itself, in any DAG.

Tightenings, none of which cuts off all optimal plans:
- merge: the contribution of each upstream task, not only their sum, is bounded by x_t;
- order: of two tasks of an operator with the same neighbours, the one that sends more is replicated first;
- reach: a plan spends at most R − need(O) + 1 tasks on operator O, if the smallest MC-tree through O has need(O) tasks,
  so survivals have upper bounds below 1 that serve as the coefficients of x.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from ppa_core.fidelity import Compiled, Metric
from ppa_core.fidelity.compiled import InputStream
from ppa_core.planners.problem import Problem
from ppa_core.topology import Partitioning, derive
from ppa_core.topology.rates import Floats

MAX_VARIABLES = 300_000
"""A larger programme could not be solved in reasonable time."""

ONE = -1
"""The scale of what no join multiplies."""

Terms = list[tuple[float, int]]


class TooLarge(Exception):
    """The programme would pass `MAX_VARIABLES`."""


@dataclass
class Programme:
    """Maximise `value` · v subject to Σ coefficient · v ≤ limit row by row, 0 ≤ v ≤ upper, the first `tasks` binary."""

    tasks: int
    value: list[float] = field(default_factory=list)
    lower: list[float] = field(default_factory=list)
    upper: list[float] = field(default_factory=list)
    starts: list[int] = field(default_factory=lambda: [0])
    columns: list[int] = field(default_factory=list)
    coefficients: list[float] = field(default_factory=list)
    limits: list[float] = field(default_factory=list)

    @property
    def worth(self) -> float:
        """What the objective would be with every variable at its upper bound."""
        return float(np.dot(self.value, self.upper))

    def variable(self, upper: float, lower: float = 0.0) -> int:
        if len(self.value) >= MAX_VARIABLES:
            raise TooLarge
        self.value.append(0.0)
        self.lower.append(lower)
        self.upper.append(upper)
        return len(self.value) - 1

    def at_most(self, terms: Terms, limit: float = 0.0) -> None:
        if not terms:
            return
        self.columns.extend(v for _, v in terms)
        self.coefficients.extend(c for c, _ in terms)
        self.starts.append(len(self.columns))
        self.limits.append(limit)


class Unfolding:
    """Builds the programme of a problem, from the valued tasks upstream, each (task, scale) once."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.compiled = problem.compiled
        self.programme = Programme(self.compiled.tasks)
        self.stage_of = {i: stage for stage in self.compiled.stages for i in range(stage.own.start, stage.own.stop)}
        self.reach = reach(problem)
        self.ceiling = ceilings(self.compiled, self.reach)
        self.known: dict[tuple[object, ...], int] = {}
        self.open: deque[tuple[int, int, int]] = deque()

    def build(self) -> Programme:
        programme, external = self.programme, self.compiled.external
        for i in range(self.compiled.tasks):
            programme.variable(1.0 if self.ceiling[i] > 0 else 0.0, lower=1.0 if external[i] else 0.0)
        programme.at_most([(1.0, i) for i in range(self.compiled.tasks) if not external[i]], self.problem.room)
        for valued in np.flatnonzero(self.compiled.values):
            programme.value[self.task(int(valued), ONE)] += float(self.compiled.values[valued])
        while self.open:
            self.define(*self.open.popleft())
        for chain in dominance(self.compiled):
            for first, second in pairwise(chain):
                programme.at_most([(1.0, second), (-1.0, first)])
        for stage in self.compiled.stages:
            own = range(stage.own.start, stage.own.stop)
            if self.reach[stage.name] < len(own) and not external[own[0]]:
                programme.at_most([(1.0, i) for i in own], self.reach[stage.name])
        return programme

    def task(self, i: int, scale: int) -> int:
        """The variable y of task i under a scale; defined later if it is new."""
        key = (i, scale)
        if key not in self.known:
            self.known[key] = self.programme.variable(self.ceiling[i] * self.top(scale))
            self.open.append((i, scale, self.known[key]))
        return self.known[key]

    def top(self, scale: int) -> float:
        return 1.0 if scale == ONE else self.programme.upper[scale]

    def define(self, i: int, scale: int, y: int) -> None:
        """The rows of y(i, scale)."""
        stage, programme = self.stage_of[i], self.programme
        if not self.compiled.external[i]:
            programme.at_most([(1.0, y), (-programme.upper[y], i)])
        k = i - stage.own.start
        if not stage.streams:
            if scale != ONE:
                programme.at_most([(1.0, y), (-1.0, scale)])
            return
        supply: Terms = []
        if stage.joins:
            narrow_last = sorted(range(len(stage.streams)), key=lambda j: stage.streams[j].kind is not Partitioning.FULL)
            for j in narrow_last[:-1]:
                scale = self.sum_of(self.stream(i, k, j, scale))
            supply = self.stream(i, k, narrow_last[-1], scale)
        else:
            for j in range(len(stage.streams)):
                share = float(stage.mix[j][k, 0]) if len(stage.streams) > 1 else 1.0
                supply += [(share * c, v) for c, v in self.stream(i, k, j, scale)]
        programme.at_most([(1.0, y), *((-c, v) for c, v in supply)])

    def sum_of(self, terms: Terms) -> int:
        """A variable for a weighted sum; the same one for the same sum."""
        if len(terms) == 1 and terms[0][0] == 1.0:
            return terms[0][1]
        key = ("sum", *terms)
        if key not in self.known:
            upper = min(1.0, sum(c * self.programme.upper[v] for c, v in terms))
            self.known[key] = self.programme.variable(upper)
            self.programme.at_most([(1.0, self.known[key]), *((-c, v) for c, v in terms)])
        return self.known[key]

    def stream(self, i: int, k: int, j: int, scale: int) -> Terms:
        """Input stream j of task i (number k of its operator) under a scale, as a weighted sum of variables."""
        stream = self.stage_of[i].streams[j]
        first, weight = stream.up.start, stream.weight
        match stream.kind:
            case Partitioning.ONE_TO_ONE:
                return [(1.0, self.task(first + k, scale))]
            case Partitioning.SPLIT:
                assert stream.parent is not None
                return [(1.0, self.task(first + int(stream.parent[k]), scale))]
            case Partitioning.MERGE:
                assert weight is not None and stream.child is not None
                group = np.flatnonzero(stream.child == k)
                parts = [self.task(first + int(u), scale) for u in group]
                if len(parts) > 1 and not self.compiled.external[i]:
                    parts = [self.within(part, i) for part in parts]
                return [(float(weight[u]), part) for u, part in zip(group, parts, strict=True)]
            case _:
                assert weight is not None
                same = weight.ndim == 1 and stream.patch is None
                key = ("full", stream.up.start, stream.up.stop, scale) if same else ("full", i, j, scale)
                if key not in self.known:
                    row = stream.row(k)
                    whole = self.sum_of([(float(w), self.task(first + u, scale)) for u, w in enumerate(row) if w > 0])
                    limit = best_sum(row * self.ceiling[stream.up], self.reach[self.stage_of[first].name]) * self.top(scale)
                    self.programme.upper[whole] = min(self.programme.upper[whole], limit)
                    self.known[key] = whole
                return [(1.0, self.known[key])]

    def within(self, part: int, i: int) -> int:
        """The contribution of `part` to task i: no more than `part`, and nothing without i."""
        inside = self.programme.variable(self.programme.upper[part])
        self.programme.at_most([(1.0, inside), (-1.0, part)])
        self.programme.at_most([(1.0, inside), (-self.programme.upper[part], i)])
        return inside


def reach(problem: Problem) -> dict[str, int]:
    """How many tasks of each operator a plan of the budget can use at most, if every chosen task is to count."""
    topology, room = problem.topology, problem.room
    need = tree_sizes(problem) if problem.metric is Metric.OF else {operator.name: 1 for operator in topology.operators}
    return {
        operator.name: operator.tasks if operator.external else max(0, min(operator.tasks, room - need[operator.name] + 1))
        for operator in topology.operators
    }


def tree_sizes(problem: Problem) -> dict[str, int]:
    """The size of the smallest MC-tree through each operator, external tasks not counted; a lower bound in DAGs."""
    topology = problem.topology
    tree = all(len(edges) <= 1 for edges in topology.outputs.values())
    joins = {stage.name: stage.joins for stage in problem.compiled.stages}
    cost = {operator.name: 0 if operator.external else 1 for operator in topology.operators}
    above: dict[str, int] = {}
    for name in topology.order:
        inputs = [above[edge.source] for edge in topology.inputs[name]] or [0]
        together = sum(inputs) if tree else max(inputs)  # shared operators must not count twice
        above[name] = cost[name] + (together if joins[name] else min(inputs))
    below: dict[str, int] = {}
    for name in reversed(topology.order):
        onwards = []
        for edge in topology.outputs[name]:
            partners = [above[e.source] for e in topology.inputs[edge.target] if e is not edge]
            onwards.append(below[edge.target] + cost[edge.target] + (sum(partners) if tree and joins[edge.target] else 0))
        below[name] = min(onwards, default=0)
    return {name: above[name] + below[name] for name in above}


def ceilings(compiled: Compiled, reach: dict[str, int]) -> Floats:
    """An upper bound of every task's survival when no operator has more alive tasks than it can reach."""
    top = np.ones(compiled.tasks)
    name_at = {stage.own.start: stage.name for stage in compiled.stages}
    for stage in compiled.stages:
        if not reach[stage.name]:
            top[stage.own] = 0.0
            continue
        if not stage.streams:
            continue
        parts = []
        for stream in stage.streams:
            part = stream.forward(top[:, None])[:, 0]
            if stream.kind is Partitioning.FULL:
                assert stream.weight is not None
                each = stage.own.stop - stage.own.start if stream.patch or stream.weight.ndim == 2 else 1
                rows = (stream.row(k) * top[stream.up] for k in range(each))
                part = np.array([best_sum(row, reach[name_at[stream.up.start]]) for row in rows])
            parts.append(np.broadcast_to(part, (stage.own.stop - stage.own.start,)))
        if stage.joins:
            top[stage.own] = np.prod(parts, axis=0)
        elif len(parts) == 1:
            top[stage.own] = parts[0]
        else:
            top[stage.own] = sum(m[:, 0] * part for m, part in zip(stage.mix, parts, strict=True))
    return np.minimum(top, 1.0)


def best_sum(row: Floats, count: int) -> float:
    """The sum of the `count` largest entries."""
    return float(np.sort(row)[::-1][:count].sum())


def dominance(compiled: Compiled) -> Iterator[list[int]]:
    """Chains of tasks of one operator with the same neighbours, those that send more first (where all consumers agree)."""
    topology = compiled.topology
    output = derive(topology).output
    measured = {tuple(task.rpartition(".")[0] for task in key.split(">")) for key in topology.measured}
    for stage in compiled.stages:
        name, size = stage.name, stage.own.stop - stage.own.start
        edges = [*topology.inputs[name], *topology.outputs[name]]
        if size == 1 or topology.by_name[name].external or any((e.source, e.target) in measured for e in edges):
            continue
        groups: dict[tuple[object, ...], list[int]] = {}
        for k in range(size):
            key = (*(_upstream(stage.streams[j], k) for j in range(len(stage.streams))), *_mix_at(stage.mix, k, stage.joins))
            key += tuple(_downstream(topology.by_name[e.target].tasks, e.partitioning, k, size) for e in topology.outputs[name])
            groups.setdefault(key, []).append(stage.own.start + k)
        worth = compiled.values if compiled.metric is Metric.IC or not topology.outputs[name] else output
        for group in groups.values():
            if len(group) > 1:
                chain = sorted(group, key=lambda i: (-worth[i], i))
                if compiled.metric is Metric.OF or all(np.diff(output[chain]) <= 0):
                    yield chain


def _upstream(stream: InputStream, k: int) -> object:
    match stream.kind:
        case Partitioning.FULL:
            return "all"
        case Partitioning.SPLIT:
            assert stream.parent is not None
            return int(stream.parent[k])
        case _:
            return ("own", k)


def _downstream(targets: int, partitioning: Partitioning, k: int, size: int) -> object:
    match partitioning:
        case Partitioning.FULL:
            return "all"
        case Partitioning.SPLIT:
            return ("own", k)
        case _:
            return k * targets // size


def _mix_at(mix: tuple[Floats, ...], k: int, joins: bool) -> tuple[float, ...]:
    return () if joins or len(mix) < 2 else tuple(round(float(m[k, 0]), 12) for m in mix)
