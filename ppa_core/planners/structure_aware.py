"""StructureAware (paper, Algorithm 5): every full or structured part of the topology is planned by its own algorithm.

Heuristic. The topology is decomposed into sub-topologies with `full` edges between them. Again and again each of them
offers its next extension: a structured one the best set of connected segments (Algorithm 3), a full one the next task of
its best operator (Algorithm 4). Another offer is the best set of tasks that completes a tree across sub-topologies; a plan
always begins with one. The offer with the highest profit density, gain of the metric on the whole topology per new task,
is taken if it fits. If no offer gains anything, the smallest next tree is searched for.

Cost: at most R rounds, each valuing the offers of N sub-topologies in a few linear passes; in large topologies an offer
stands for several rounds, and beyond `extensions.HUGE` tasks many extensions of about the same density are taken at once.
Limits: a greedy choice without revision; `default` revises. After the problem's time limit the rest of the budget is spent
at once, so the same problem has the same plan only if the limit is not met.

Corrected from the paper's listing: usage grows with every extension taken; nothing is planned for R below the number of
operators, though a tree may need fewer tasks (one stream feeds an operator that does not join) or, under joins, more: here
any tree that fits counts; increments are those of the whole topology, not of the sub-topology by itself; what is left after
the last whole extension goes to the best one that still fits, then to the tasks whose single failure costs most.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from ppa_core.fidelity import Mask
from ppa_core.planners.decompose import Kind, SubTopology, decompose, segments, units
from ppa_core.planners.extensions import ALIKE, HUGE, Deadline
from ppa_core.planners.full import SMALL, Ranks
from ppa_core.planners.problem import Outcome, Problem, Status, Trace
from ppa_core.planners.structured import SEGMENTS, Found, Pool, best_tree, next_tree, note, stopped

Offer = Callable[[Mask, int], Found | None]
"""What a part would add to the alive tasks, within the room that is left."""


def plan(problem: Problem) -> Outcome:
    """The union of the parts' extensions, best profit density first."""
    deadline, trace = Deadline(problem.time_limit), Trace(problem)
    parts = decompose(problem.topology)
    trace.add((), _summary(parts))
    grow(trace, [offer_of(problem, part) for part in parts], deadline)
    trace.spend_rest()
    return Outcome(frozenset(trace.chosen), Status.HEURISTIC, tuple(trace.steps))


def grow(trace: Trace, offers: list[Offer], deadline: Deadline) -> None:
    """Take the best offer that fits, until none gains or the time is up."""
    problem = trace.problem
    makers: list[Offer] = [*offers, partial(best_tree, problem)]
    lasting = 1 if problem.compiled.tasks <= SMALL else 8  # rounds that an offer stands
    standing: dict[int, Found] = {}
    asked = range(len(makers))
    rounds = 0
    while trace.left > 0 and not stopped(trace, deadline):
        alive = trace.mask
        for k in asked:
            found = makers[k](alive, trace.left)
            if found:
                standing[k] = found
            if deadline.passed:
                break
        if not standing and len(asked) < len(makers):
            asked = range(len(makers))
            continue
        if not standing:
            last = next_tree(problem, alive, trace.left)
            if last is None:
                return
            trace.add(last.tasks, note(problem, last))
            continue
        best = _best(standing, problem.compiled.tasks > HUGE)
        taken = standing[best]
        trace.add(taken.tasks, note(problem, taken))
        standing = {k: f for k, f in standing.items() if not f.tasks & taken.tasks and len(f.tasks) <= trace.left}
        rounds += 1
        # Between full rounds only the sub-topology whose offer was taken makes a new one: finding trees is expensive.
        asked = range(len(makers)) if rounds % lasting == 0 else range(best, min(best + 1, len(offers)))


def _best(standing: dict[int, Found], widest: bool) -> int:
    """The offer of the highest density; or the widest of those that are about as dense."""
    density = {k: found.gain / len(found.tasks) for k, found in standing.items()}
    best = max(density, key=lambda k: (density[k], -k))
    if not widest:
        return best
    return max((k for k in density if density[k] >= ALIKE * density[best]), key=lambda k: (len(standing[k].tasks), -k))


def offer_of(problem: Problem, part: SubTopology) -> Offer:
    """How a sub-topology makes its offers: by the algorithm for its kind."""
    if part.kind is Kind.FULL:
        return Ranks(problem, part.operators).offer
    cut = units(problem.topology, part.operators)
    return Pool(problem, [s for k, unit in enumerate(cut) for s in segments(problem.topology, unit, k, SEGMENTS)]).offer


def _summary(parts: tuple[SubTopology, ...]) -> str:
    shown = "; ".join(f"{p.kind}: {', '.join(p.operators[:24])}{', …' if len(p.operators) > 24 else ''}" for p in parts[:8])
    count = "1 sub-topology" if len(parts) == 1 else f"{len(parts)} sub-topologies"
    return f"{count} ({shown}{'; …' if len(parts) > 8 else ''})"
