"""PlanStructuredTopology (paper, Algorithm 3): grow the plan by segments, the MC-trees of the topology's units.

Heuristic. Each round, every segment that is not yet replicated is a candidate: as it is, if it raises the metric, which
means that it completes an MC-tree with what is replicated; else together with connected tasks of the other units. The
candidate of the highest profit density, gain per new task, joins the plan.
Cost: a round values up to `CELLS` / tasks segments in one batch and completes up to `COMPLETED` more; at most R rounds.
Limits: a greedy choice without revision; units with more than `SEGMENTS` segments are known in part.

Corrected from the paper's listing: P is the *union* with the best candidate (an intersection is printed); the search
returns when *no* candidate gains (the condition is printed the other way round) and goes on otherwise; a candidate may take
what is left of R, not what is used of it; connected tasks come from a dynamic programme over the cheapest completing sets
instead of a breadth-first search that takes one segment of every unit, because an operator that does not join needs only one
of its streams; the rest of the budget is spent on single tasks.

On a topology that is not structured, every `full` edge is a boundary between units, wherever it stands.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ppa_core.fidelity import Mask
from ppa_core.planners.completion import completion, largest_tree
from ppa_core.planners.decompose import Segment, segments, units
from ppa_core.planners.problem import Outcome, Problem, Status, Trace
from ppa_core.topology.rates import Floats

SEGMENTS = 4_000
"""Segments of one unit that are looked at."""

COMPLETED = 12
"""Segments per round that are completed with tasks of other units."""

CELLS = 100_000
"""How many segments times tasks are valued per round; in a larger topology, the best of the last rounds first."""

REFRESH = 16
"""After this many rounds all segments are valued again."""

_ZERO = 1e-15


def plan(problem: Problem) -> Outcome:
    """The paper's segment search, over the units of the whole topology."""
    trace = Trace(problem)
    parts = units(problem.topology)
    pool = Pool(problem, [s for k, unit in enumerate(parts) for s in segments(problem.topology, unit, k, SEGMENTS)])
    trace.add((), f"{len(parts)} units with {len(pool.segments)} segments")
    while trace.left > 0:
        alive = trace.mask
        found = pool.offer(alive, trace.left) or single(problem, alive)
        if found is None:
            break
        trace.add(found.tasks, note(problem, found))
    trace.spend_rest()
    return Outcome(frozenset(trace.chosen), Status.HEURISTIC, tuple(trace.steps))


@dataclass(frozen=True)
class Found:
    """Tasks to add, what the metric gains by them, and what they are."""

    tasks: frozenset[int]
    gain: float
    what: str


class Pool:
    """The segments that are not replicated yet, with the density each had when it was last valued."""

    def __init__(self, problem: Problem, found: list[Segment]) -> None:
        self.compiled = problem.compiled
        self.segments = list(dict.fromkeys(s.tasks - problem.topology.external_tasks for s in found))
        self.density: Floats = np.full(len(self.segments), np.inf)
        self.largest = largest_tree(self.compiled)
        self.round = 0

    def offer(self, alive: Mask, left: int) -> Found | None:
        """The candidate of the highest profit density that fits, if one gains."""
        self._forget_replicated(alive)
        if not self.segments:
            return None
        if self.round % REFRESH == 0:
            self.density[:] = np.inf
        self.round += 1
        count = max(16, CELLS // self.compiled.tasks)
        picked = [int(k) for k in np.argsort(-self.density, kind="stable")[:count]]
        new = [frozenset(t for t in self.segments[k] if not alive[t]) for k in picked]
        gain = self._gains(alive, new)
        self.density[picked] = [g / len(tasks) for g, tasks in zip(gain, new, strict=True)]
        candidates = [Found(t, float(g), "segment") for t, g in zip(new, gain, strict=True) if g > _ZERO and len(t) <= left]
        candidates += self._completed(alive, [self.segments[k] for k, g in zip(picked, gain, strict=True) if g <= _ZERO], left)
        return max(candidates, key=lambda c: (c.gain / len(c.tasks), -len(c.tasks), -min(c.tasks)), default=None)

    def _completed(self, alive: Mask, idle: list[frozenset[int]], left: int) -> list[Found]:
        """Segments that gain nothing alone, with the tasks of other units that complete them."""
        if not idle:
            return []
        sets = [e.tasks for e in completion(self.compiled, alive, self.largest).around(idle, left, COMPLETED)]
        gain = self._gains(alive, sets)
        return [Found(t, float(g), "connected segments") for t, g in zip(sets, gain, strict=True) if g > _ZERO]

    def _gains(self, alive: Mask, sets: list[frozenset[int]]) -> Floats:
        columns = np.repeat(alive[:, None], len(sets) + 1, axis=1)
        for k, tasks in enumerate(sets):
            columns[list(tasks), k] = True
        worth = self.compiled.batch(columns)
        return np.asarray(worth[:-1] - worth[-1])

    def _forget_replicated(self, alive: Mask) -> None:
        keep = [k for k, tasks in enumerate(self.segments) if not all(alive[t] for t in tasks)]
        if len(keep) < len(self.segments):
            self.segments, self.density = [self.segments[k] for k in keep], self.density[keep]


def note(problem: Problem, found: Found) -> str:
    """A step of the story: the tasks upstream first, what they gain, and what they cost."""
    topology = problem.topology
    place = {name: i for i, name in enumerate(topology.order)}
    ids = sorted(topology.ids(found.tasks), key=lambda task: place[task.rpartition(".")[0]])
    count = "1 task" if len(ids) == 1 else f"{len(ids)} tasks"
    return f"{found.what} {' -> '.join(ids)}: +{found.gain:.4f} {problem.metric.value.upper()} for {count}"


def single(problem: Problem, alive: Mask) -> Found | None:
    """The task that gains most by itself."""
    gain = problem.compiled.gains(alive)
    gain[alive] = 0.0
    task = int(gain.argmax())
    return Found(frozenset((task,)), float(gain[task]), "single task") if gain[task] > _ZERO else None
