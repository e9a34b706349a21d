"""PlanStructuredTopology (paper, Algorithm 3): grow the plan by segments, the MC-trees of the topology's units.

Heuristic. Each round, every segment that is not yet replicated is a candidate: as it is, if it raises the metric, which
means that it completes an MC-tree with what is replicated; else together with connected tasks of the other units. The
candidate of the highest profit density, gain per new task, joins the plan.
Cost: a round values up to `CELLS` / tasks segments in one batch and completes up to `COMPLETED` more; at most R rounds, and
far fewer in topologies of more than `extensions.HUGE` tasks, where many candidates of about the same density join at once.
Limits: a greedy choice without revision; units with more than `SEGMENTS` segments are known in part; after the problem's
time limit the rest of the budget is spent at once.

Corrected from the paper's listing: P is the *union* with the best candidate (an intersection is printed); the search
returns when *no* candidate gains (the condition is printed the other way round) and continues otherwise; a candidate may take
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
from ppa_core.planners.extensions import HUGE, ZERO, Deadline, Extension, gains_of_sets, gains_of_tasks, together
from ppa_core.planners.next_trees import NextTrees
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

TREES = 5
"""How many sets that complete a tree are valued exactly."""

SHOWN = 24
"""Tasks of a step that its note names."""


def plan(problem: Problem) -> Outcome:
    """The paper's segment search, over the units of the whole topology."""
    deadline, trace = Deadline(problem.time_limit), Trace(problem)
    parts = units(problem.topology)
    pool = Pool(problem, [s for k, unit in enumerate(parts) for s in segments(problem.topology, unit, k, SEGMENTS)])
    trace.add((), f"{counted(len(parts), 'unit')} with {counted(len(pool.segments), 'segment')}")
    while trace.left > 0 and not stopped(trace, deadline):
        alive = trace.mask
        found = pool.offer(alive, trace.left) or single(problem, alive) or next_tree(problem, alive, trace.left)
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
        if self.compiled.tasks > HUGE:
            count = max(count, min(left // 16, 80 * CELLS // self.compiled.tasks))
        picked = [int(k) for k in np.argsort(-self.density, kind="stable")[:count]]
        new = [frozenset(t for t in self.segments[k] if not alive[t]) for k in picked]
        gain = gains_of_sets(self.compiled, alive, new)
        self.density[picked] = [g / len(tasks) for g, tasks in zip(gain, new, strict=True)]
        candidates = [Found(t, float(g), "segment") for t, g in zip(new, gain, strict=True) if g > ZERO and len(t) <= left]
        candidates += self._completed(alive, [self.segments[k] for k, g in zip(picked, gain, strict=True) if g <= ZERO], left)
        candidates.sort(key=lambda c: (-c.gain / len(c.tasks), len(c.tasks), min(c.tasks)))
        return self._several(alive, candidates, left)

    def _several(self, alive: Mask, candidates: list[Found], left: int) -> Found | None:
        """The first candidate; in a huge topology, with all that are about as dense."""
        if self.compiled.tasks <= HUGE or len(candidates) < 2:
            return candidates[0] if candidates else None
        union = together([Extension(c.tasks, c.gain) for c in candidates], left)
        return Found(union, float(gains_of_sets(self.compiled, alive, [union])[0]), "segments")

    def _completed(self, alive: Mask, idle: list[frozenset[int]], left: int) -> list[Found]:
        """Segments that gain nothing alone, with the tasks of other units that complete them."""
        if not idle:
            return []
        sets = [e.tasks for e in completion(self.compiled, alive, self.largest).around(idle, left, COMPLETED)]
        gain = gains_of_sets(self.compiled, alive, sets)
        return [Found(t, float(g), "connected segments") for t, g in zip(sets, gain, strict=True) if g > ZERO]

    def _forget_replicated(self, alive: Mask) -> None:
        keep = [k for k, tasks in enumerate(self.segments) if not all(alive[t] for t in tasks)]
        if len(keep) < len(self.segments):
            self.segments, self.density = [self.segments[k] for k in keep], self.density[keep]


def counted(count: int, what: str) -> str:
    """A number with its noun, in the plural if it is not 1."""
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def note(problem: Problem, found: Found) -> str:
    """The description of a step: the tasks, upstream first, their gain, and their number."""
    topology = problem.topology
    place = {name: i for i, name in enumerate(topology.order)}
    ids = sorted(topology.ids(found.tasks), key=lambda task: place[task.rpartition(".")[0]])
    shown = ids if len(ids) <= SHOWN else [*ids[: SHOWN - 1], "…"]
    gain = f"+{found.gain:.4f} {problem.metric.value.upper()} for {counted(len(ids), 'task')}"
    return f"{found.what} {' -> '.join(shown)}: {gain}"


def stopped(trace: Trace, deadline: Deadline) -> bool:
    """Whether the time limit is reached; if so, the trace says it."""
    if deadline.passed:
        trace.add((), f"stopped at the time limit of {trace.problem.time_limit:g} s")
    return deadline.passed


def single(problem: Problem, alive: Mask) -> Found | None:
    """The task that gains most by itself."""
    gain = gains_of_tasks(problem.compiled, alive)
    task = int(gain.argmax())
    return Found(frozenset((task,)), float(gain[task]), "single task") if gain[task] > ZERO else None


def best_tree(problem: Problem, alive: Mask, left: int) -> Found | None:
    """The set of the highest density that completes a tree, wherever its tasks are; in a huge topology, several of them."""
    compiled = problem.compiled
    table = completion(compiled, alive, largest_tree(compiled))
    if compiled.tasks <= HUGE:
        return _densest(problem, alive, [extension.tasks for extension in table.best(left, TREES)])
    found = table.apart(left, max(TREES, left // 16))
    return _densest(problem, alive, [together(found, left)] if found else [], "trees")


def next_tree(problem: Problem, alive: Mask, left: int) -> Found | None:
    """The same where `best_tree` finds nothing: among the smallest sets, tasks that trees share counted once."""
    bar = min(ZERO, problem.compiled.value(alive))  # where nothing is yet, no gain is rounding
    return _densest(problem, alive, NextTrees(problem.compiled, alive, left).best(4 * TREES), bar=bar)


def _densest(problem: Problem, alive: Mask, sets: list[frozenset[int]], what: str = "tree", bar: float = ZERO) -> Found | None:
    gain = gains_of_sets(problem.compiled, alive, sets)
    found = [Found(tasks, float(g), what) for tasks, g in zip(sets, gain, strict=True) if g > bar]
    return max(found, key=lambda f: (f.gain / len(f.tasks), -len(f.tasks)), default=None)
