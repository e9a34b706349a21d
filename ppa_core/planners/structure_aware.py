"""StructureAware (paper, Algorithm 5): every full or structured part of the topology is planned by its own algorithm.

Heuristic. The topology is decomposed into sub-topologies with `full` edges between them. Again and again each of them
offers its next extension: a structured one the best set of connected segments (Algorithm 3), a full one the next task of
its best operator (Algorithm 4); beside them stands the best set of tasks that completes a tree across sub-topologies, which
is also how a plan begins. The offer of the highest profit density, gain of the metric on the whole topology per new task,
is taken if it fits.

Cost: at most R rounds, each valuing the offers of N sub-topologies in a few linear passes; in large topologies an offer
stands for several rounds. Limit: a greedy choice without revision; `default` revises.

Corrected from the paper's listing: usage grows with every extension taken; nothing is planned for R below the number of
operators, though a tree may need fewer tasks (one stream feeds an operator that does not join) or, under joins, more: here
any tree that fits counts; increments are those of the whole topology, not of the sub-topology by itself; what is left after
the last whole extension goes to the best one that still fits, then to the tasks whose single failure costs most.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ppa_core.fidelity import Mask
from ppa_core.planners.completion import completion, largest_tree
from ppa_core.planners.decompose import Kind, SubTopology, decompose, segments, units
from ppa_core.planners.full import SMALL, Ranks
from ppa_core.planners.problem import Outcome, Problem, Status, Trace
from ppa_core.planners.structured import SEGMENTS, Found, Pool, note

TREES = 5
"""How many completing sets are valued exactly."""

Offer = Callable[[Mask, int], Found | None]
"""What a part would add to the alive tasks, within the room that is left."""


def plan(problem: Problem) -> Outcome:
    """The union of the parts' extensions, best profit density first."""
    trace = Trace(problem)
    parts = decompose(problem.topology)
    trace.add((), _story(parts))
    grow(trace, [offer_of(problem, part) for part in parts])
    trace.spend_rest()
    return Outcome(frozenset(trace.chosen), Status.HEURISTIC, tuple(trace.steps))


def grow(trace: Trace, offers: list[Offer]) -> None:
    """Take the best offer that fits, until none gains."""
    makers = [*offers, tree_offer(trace.problem)]
    lasting = 1 if trace.problem.compiled.tasks <= SMALL else 8  # rounds that an offer stands
    standing: dict[int, Found] = {}
    asked = range(len(makers))
    rounds = 0
    while trace.left > 0:
        made = {k: makers[k](trace.mask, trace.left) for k in asked}
        standing |= {k: found for k, found in made.items() if found}
        if not standing:
            if len(asked) == len(makers):
                return
            asked = range(len(makers))
            continue
        best = max(standing, key=lambda k: (standing[k].gain / len(standing[k].tasks), -k))
        taken = standing[best]
        trace.add(taken.tasks, note(trace.problem, taken))
        standing = {k: f for k, f in standing.items() if not f.tasks & taken.tasks and len(f.tasks) <= trace.left}
        rounds += 1
        # Between the rounds in which all offers are made, the part that was taken makes a new one; trees, dear to find, wait.
        asked = range(len(makers)) if rounds % lasting == 0 else range(best, min(best + 1, len(offers)))


def offer_of(problem: Problem, part: SubTopology) -> Offer:
    """How a sub-topology makes its offers: by the algorithm for its kind."""
    if part.kind is Kind.FULL:
        return Ranks(problem, part.operators).offer
    cut = units(problem.topology, part.operators)
    return Pool(problem, [s for k, unit in enumerate(cut) for s in segments(problem.topology, unit, k, SEGMENTS)]).offer


def tree_offer(problem: Problem) -> Offer:
    """Offers of sets that complete a tree, wherever its tasks are."""
    compiled, largest = problem.compiled, largest_tree(problem.compiled)

    def offer(alive: Mask, left: int) -> Found | None:
        sets = [extension.tasks for extension in completion(compiled, alive, largest).best(left, TREES)]
        columns = np.repeat(alive[:, None], len(sets) + 1, axis=1)
        for k, tasks in enumerate(sets):
            columns[list(tasks), k] = True
        worth = compiled.batch(columns)
        found = [
            Found(tasks, float(worth[k] - worth[-1]), "tree") for k, tasks in enumerate(sets) if worth[k] > worth[-1] + 1e-15
        ]
        return max(found, key=lambda f: (f.gain / len(f.tasks), -len(f.tasks)), default=None)

    return offer


def _story(parts: tuple[SubTopology, ...]) -> str:
    shown = "; ".join(f"{part.kind}: {', '.join(part.operators)}" for part in parts[:8])
    return f"{len(parts)} sub-topologies ({shown}{'; …' if len(parts) > 8 else ''})"
