"""PlanFullTopology (paper, Algorithm 4): operator by operator, the task that gains most goes first.

Heuristic; for a chain of `full` edges the order within each operator is the best one. The tasks of an operator are
ranked by δ, what one adds to the metric while the rest of its operator is dead and all other operators live. A first
complete tree is taken, then again and again the next task of that operator where it raises the metric most.
Cost: one linear pass for the ranks, since the metric is linear in the tasks of one operator (one for each task of operators
that reach a join twice), and one per chosen task, O(R·(N·M)); the paper counts the candidates, O(N·R). In large topologies
several tasks are chosen at once; after the problem's time limit the rest of the budget is spent at once.

Corrected: the paper's plan stays empty if R is below the number of operators. A tree may need fewer tasks: one stream is
enough for an operator that does not join. So with R ≥ N one task of each operator is taken, else the cheapest tree that fits.

On a topology that is not full, the first tasks are chosen among those linked to the ones chosen downstream, and only if they
make a tree; when the next task of no operator gains anything alone, the task of any rank that does is taken, and if there is
none, the set of tasks of the highest density that completes a tree. External sources are alive from the start and take no
place.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from ppa_core.fidelity import Mask
from ppa_core.planners.extensions import HUGE, ZERO, Deadline, gains_of_sets, gains_of_tasks
from ppa_core.planners.problem import Outcome, Problem, Status, Trace
from ppa_core.planners.structured import Found, best_tree, next_tree, note, single, stopped
from ppa_core.topology import Edge, Partitioning
from ppa_core.topology.rates import Floats

SMALL = 300
"""Up to this many tasks, one is taken at a time."""

EXACT = 50_000_000
"""Entangled tasks times tasks up to which the ranks of entangled tasks are exact; beyond, to first order."""


def plan(problem: Problem) -> Outcome:
    """The paper's rule for full topologies, applied to any topology."""
    deadline, trace, ranks = Deadline(problem.time_limit), Trace(problem), Ranks(problem, problem.topology.order)
    first = _one_of_each(problem, ranks.delta)
    fits = 0 < len(first) <= problem.room
    shown = ", ".join(problem.topology.ids(first)[:24]) + (", …" if len(first) > 24 else "")
    description = f"one task of each of {len(first)} operators: {shown}"
    if fits and problem.value(first) > 0:
        trace.add(first, description)
    while trace.left > 0 and not stopped(trace, deadline):
        alive, left = trace.mask, trace.left
        found = ranks.offer(alive, left) or single(problem, alive) or best_tree(problem, alive, left)
        found = found or next_tree(problem, alive, left)
        if found is not None:
            trace.add(found.tasks, note(problem, found))
        elif fits and not trace.chosen:
            trace.add(first, description)  # a tree so deep that its value rounds to 0
        else:
            break
    trace.spend_rest()
    return Outcome(frozenset(trace.chosen), Status.HEURISTIC, tuple(trace.steps))


def _one_of_each(problem: Problem, delta: Floats) -> frozenset[int]:
    """The task of each operator with the largest δ, among those linked to all the tasks taken downstream if possible."""
    topology, chosen = problem.topology, dict[str, int]()
    for name in reversed(topology.order):
        span = topology.span[name]
        linked = np.zeros(len(span))
        for edge in topology.outputs[name]:
            linked += _feeds(problem, edge, chosen[edge.target])
        best = np.lexsort((np.arange(len(span)), -delta[span.start : span.stop], -linked))
        chosen[name] = span.start + int(best[0])
    return frozenset(chosen.values()) - topology.external_tasks


def _feeds(problem: Problem, edge: Edge, task: int) -> Mask:
    """Which tasks of the edge's source send to this task of its target."""
    up, down = problem.topology.span[edge.source], problem.topology.span[edge.target]
    row = task - down.start
    match edge.partitioning:
        case Partitioning.FULL:
            return np.ones(len(up), dtype=bool)
        case Partitioning.SPLIT:
            return np.asarray(np.arange(len(up)) == row * len(up) // len(down))
        case _:
            return np.asarray(np.arange(len(up)) * len(down) // len(up) == row)


class Ranks:
    """The tasks of some operators in the order of δ."""

    def __init__(self, problem: Problem, operators: Iterable[str]) -> None:
        self.compiled = problem.compiled
        inside = set(operators)
        self.stages = [stage for stage in self.compiled.stages if stage.name in inside]
        self.delta = self.compiled.slopes(np.ones((self.compiled.tasks, 1)))[:, 0]
        self.delta[self.compiled.external] = 0.0
        entangled = set(self.compiled.entangled.tolist())
        if len(entangled) * self.compiled.tasks <= EXACT:
            for stage in self.stages:
                if stage.own.start in entangled:
                    self._rank_entangled(stage.own)

    def _rank_entangled(self, own: slice) -> None:
        alive = np.ones(self.compiled.tasks, dtype=bool)
        alive[own] = False
        self.delta[own] = gains_of_sets(self.compiled, alive, [(task,) for task in range(own.start, own.stop)])

    def offer(self, alive: Mask, left: int) -> Found | None:
        """The next task of that operator where it gains most, if it gains and there is room.

        In a large topology it is several tasks of that operator: their gains do not depend on each other.
        """
        gain = gains_of_tasks(self.compiled, alive)
        best, where = ZERO, None
        for stage in self.stages:
            waiting = np.where(alive[stage.own], -1.0, self.delta[stage.own])
            head = int(waiting.argmax())
            if waiting[head] >= 0 and gain[stage.own.start + head] > best:
                best, where = gain[stage.own.start + head], (stage.own.start, waiting)
        if where is None or left < 1:
            return None
        start, waiting = where
        several = 1 if self.compiled.tasks <= SMALL else max(1, left // (64 if self.compiled.tasks <= HUGE else 16))
        heads = start + np.argsort(-waiting, kind="stable")[: min(several, int((waiting >= 0).sum()))]
        heads = heads[gain[heads] > ZERO]
        return Found(frozenset(int(i) for i in heads), float(gain[heads].sum()), "next of the operator:")
