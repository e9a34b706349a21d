"""Greedy (paper, Algorithm 2): the tasks whose single failure costs most.

Heuristic. Every task is ranked by the loss of the metric if it alone fails; the first R are taken. Cost: one linear pass
for all losses (tasks in which the metric is not linear are valued one by one) and a sort, O(N·M) in the paper's terms.
Limit: blind to MC-trees. At small budgets the chosen tasks rarely form a complete one, and the plan is worth nothing in
the worst case.

The paper sorts the metric's values ascending and takes the "top R": the lowest values, that is, the largest losses.
Ties are broken by task number, so the same problem always has the same plan.
"""

from __future__ import annotations

import numpy as np

from ppa_core.planners.problem import Outcome, Problem, Status, Trace
from ppa_core.topology.rates import Floats, Ints

STEPS = 100
"""A longer plan is told in groups of tasks, about this many; fewer where a value takes long to find."""


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
    """What the failure of each task alone costs, and the tasks that the budget allows, the dearest first."""
    loss = problem.compiled.losses
    return loss, np.argsort(-np.where(problem.replicable, loss, -1.0), kind="stable")[: problem.room]
