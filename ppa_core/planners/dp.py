"""Dynamic programming (paper, Algorithm 1): all unions of MC-trees that fit the budget, smallest first.

Optimal when it finishes: what a plan is worth depends only on the complete MC-trees in it, so the best plan is a union of
MC-trees, and every such union is reached by adding one tree at a time. Candidate plans are bit masks, kept by size and
never twice; only those that no further tree fits into are valued, many at once, because the metric never falls when tasks
are added. Cost: O(2^T) plans for T trees, T up to O(M^N). Limits: it stops at `PLANS` candidates, `TREES` different trees,
`BYTES` of memory for either, or when `SHARE` of the problem's time limit is used; the best plan so far is then filled up, the
status is `time_limit` and no bound is given.

For the metric IC a tree that ends before the sink has a value, so every path from a source to any task is a unit. A path is
reached step by step through its own beginnings, so the units that matter are single tasks with an input: a source's
task, or one with an alive (or external) task upstream. One input is enough: IC is blind to joins.

Corrected: the listing drops a plan from the candidates once it cannot grow and then chooses among those that are left;
here such plans are exactly the ones that are valued. Trees larger than R are left out at once. Trees with the same tasks,
which DAGs with sharing have, count once. External tasks are never part of a plan.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import numpy as np

from ppa_core.errors import RequestError
from ppa_core.fidelity import Mask, Metric
from ppa_core.planners.extensions import Deadline
from ppa_core.planners.problem import Outcome, Problem, Status, Trace
from ppa_core.planners.search import fill
from ppa_core.topology import Partitioning
from ppa_core.topology.mctrees import trees

PLANS = 200_000
TREES = 20_000
BYTES = 256_000_000
SHARE = 0.8
_SCANNED = 2_000_000
_CELLS = 2_000_000

Growth = Callable[[int], Iterable[int]]
"""From a candidate plan to the larger ones, one unit more each."""


def plan(problem: Problem) -> Outcome:
    """The optimal plan, or the best one found before the time or memory limit."""
    deadline, trace, search = Deadline(problem.time_limit), Trace(problem), _Search(problem)
    best = search.run()
    tasks = [int(t) for t in np.flatnonzero(search.mask([best])[:, 0])]
    if search.complete:
        trace.add(tasks, f"best of {search.seen} candidate plans from {search.units}")
        trace.spend_rest()
        return Outcome(frozenset(trace.chosen), Status.OPTIMAL, tuple(trace.steps), problem.value(trace.chosen))
    trace.add(tasks, f"stopped after {search.seen} candidate plans from {search.units}; the best so far")
    fill(trace, deadline)
    return Outcome(frozenset(trace.chosen), Status.TIME_LIMIT, tuple(trace.steps))


class _Search:
    """One run of the dynamic programme."""

    def __init__(self, problem: Problem) -> None:
        self.problem, self.room = problem, problem.room
        self.deadline = Deadline(SHARE * problem.time_limit)
        self.most = BYTES // (problem.compiled.tasks // 8 + 32)
        """Plans that there is memory for."""
        self.complete, self.seen, self.units = True, 1, ""
        self.best, self.worth = 0, problem.value(())

    def run(self) -> int:
        """The best candidate plan as a bit mask; `complete` says whether all were seen."""
        grow = self._by_tree() if self.problem.metric is Metric.OF else self._by_task()
        levels: list[set[int]] = [set() for _ in range(self.room + 1)]
        levels[0].add(0)
        final: list[int] = []
        for size, level in enumerate(levels):
            for current in sorted(level):
                if not self._expand(current, grow, levels):
                    final.append(current)
                if self.seen > min(PLANS, self.most) or self.deadline.passed:
                    self.complete = False
                    some = max(1, min(10_000, 4 * _CELLS // self.problem.compiled.tasks))
                    self._value(final[:some])
                    self._value([p for rest in reversed(levels[size:]) for p in sorted(rest)[:some]][:some])
                    return self.best
            if len(final) * self.problem.compiled.tasks > _CELLS:
                self._value(final)
                final = []
            level.clear()
        self._value(final)
        return self.best

    def _expand(self, current: int, grow: Growth, levels: list[set[int]]) -> bool:
        grew = False
        for k, larger in enumerate(grow(current)):
            size = larger.bit_count()
            if size <= self.room and larger != current:
                grew = True
                if larger not in levels[size]:
                    levels[size].add(larger)
                    self.seen += 1
            if k % 256 == 255 and (self.seen > self.most or self.deadline.passed):
                break
        return grew

    def _by_tree(self) -> Growth:
        units = sorted(self._trees(), key=lambda tree: (tree.bit_count(), tree))
        self.units = f"{len(units)} MC-trees" + ("" if self.complete else " (not all)")
        return lambda current: (current | tree for tree in units)

    def _trees(self) -> set[int]:
        """The different MC-trees that fit, external tasks left out; not `complete` if there are too many."""
        found: set[int] = set()
        external = self.problem.topology.external_tasks
        try:
            for k, tree in enumerate(trees(self.problem.topology)):
                own = tree - external
                if len(own) <= self.room:
                    found.add(_bits(own))
                if len(found) >= min(TREES, self.most) or k >= _SCANNED or (k % 64 == 0 and self.deadline.passed):
                    self.complete = False
                    break
        except RequestError:  # even the number of trees is too long to write down
            self.complete = False
        return found

    def _by_task(self) -> Growth:
        compiled = self.problem.compiled
        self.units = f"{int(self.problem.replicable.sum())} tasks, each with an input"

        def grow(current: int) -> Iterator[int]:
            own = self.mask([current])[:, 0]
            fed = self._fed(own | compiled.external)
            return (current | 1 << int(t) for t in np.flatnonzero(fed & ~own & self.problem.replicable))

        return grow

    def _fed(self, alive: Mask) -> Mask:
        """The tasks of sources, and those with an alive task upstream."""
        fed = np.zeros(len(alive), dtype=bool)
        for stage in self.problem.compiled.stages:
            own = fed[stage.own]
            own |= not stage.streams
            for stream in stage.streams:
                up = alive[stream.up]
                match stream.kind:
                    case Partitioning.ONE_TO_ONE:
                        own |= up
                    case Partitioning.SPLIT:
                        own |= up[stream.parent]
                    case Partitioning.MERGE:
                        own |= np.logical_or.reduceat(up, stream.starts)  # type: ignore[arg-type]
                    case _:
                        own |= up.any()
        return fed

    def mask(self, plans: list[int]) -> Mask:
        """Plans as columns of alive tasks."""
        n = self.problem.compiled.tasks
        width = -(-n // 8)
        data = np.frombuffer(b"".join(p.to_bytes(width, "little") for p in plans), dtype=np.uint8)
        return np.unpackbits(data.reshape(len(plans), width), axis=1, count=n, bitorder="little").T.astype(bool)

    def _value(self, plans: list[int]) -> None:
        """Keep the best of these plans, the first one among equals."""
        step = max(1, _CELLS // self.problem.compiled.tasks)
        for start in range(0, len(plans), step):
            chunk = plans[start : start + step]
            worth = self.problem.compiled.batch(self.mask(chunk))
            k = int(worth.argmax())
            if worth[k] > self.worth:
                self.best, self.worth = chunk[k], float(worth[k])


def _bits(tasks: Iterable[int]) -> int:
    mask = 0
    for task in tasks:
        mask |= 1 << task
    return mask
