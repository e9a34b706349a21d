"""Greedy (paper, Algorithm 2): the tasks whose failure alone costs most.

Heuristic. Every task is ranked by the loss of the metric if it alone fails; the first R are chosen. Cost: one linear pass
for all losses (tasks in which the metric is not linear are evaluated one by one) and a sort, O(N·M) in the paper's terms.
Limit: it ignores MC-trees. At small budgets the chosen tasks rarely form a complete tree, and the worst-case OF is 0.

The paper sorts the metric's values ascending and takes the "top R": the lowest values, that is, the largest losses.
Ties are broken by task number, so the same problem always has the same plan.
"""

from __future__ import annotations

import numpy as np

from ppa_core.planners.problem import Outcome, Problem, Status, Trace
from ppa_core.topology.rates import Floats, Ints

STEPS = 100
"""The steps of a longer plan are groups of tasks: about this many groups, fewer if evaluating the metric is slow."""


def plan(problem: Problem) -> Outcome:
    """The `budget` tasks with the highest loss when failing alone."""
    trace = Trace(problem)
    loss, order = ranking(problem)
    unit = problem.metric.value.upper()
    slow = problem.compiled.tasks > 20_000 or len(problem.compiled.stages) > 200
    group = max(1, -(-problem.room // (STEPS // 10 if slow else STEPS)))
    for start in range(0, problem.room, group):
        ranked = [int(i) for i in order[start : start + group]]
        first, name = float(loss[ranked[0]]), problem.topology.tasks[ranked[0]]
        if len(ranked) == 1:
            note = f"rank {start + 1}, {name}: its failure alone costs {first:.4f} {unit}"
        else:
            note = f"ranks {start + 1} to {start + len(ranked)}, from {name}: each alone costs {first:.4f} {unit} or less"
        trace.add(ranked, note)
    return Outcome(frozenset(trace.chosen), Status.HEURISTIC, tuple(trace.steps))


def ranking(problem: Problem) -> tuple[Floats, Ints]:
    """The loss if each task fails alone, and the tasks within the budget, those with the largest loss first."""
    loss = problem.compiled.losses
    return loss, np.argsort(-np.where(problem.replicable, loss, -1.0), kind="stable")[: problem.room]
