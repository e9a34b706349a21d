"""Plans by budget within a time limit, differences between plans, and tables that compare planners. Pure."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

from ppa_core.fidelity import Metric
from ppa_core.planners import DEFAULT, Plan, curve, plan
from ppa_core.plots import budget_grid
from ppa_core.topology import Topology

WHOLE_TASKS = 300
"""Up to this number of tasks, the default planner's curve over all budgets is computed at once."""
OnProgress = Callable[[int, int], None]


@dataclass(frozen=True)
class Points:
    """Plans of one planner by budget; `sparse` if the time limit allowed only some of the budgets."""

    planner: str
    plans: tuple[Plan, ...] = ()
    sparse: bool = False


def max_budget(topology: Topology) -> int:
    """The number of tasks that can have a replica."""
    return len(topology.tasks) - len(topology.external_tasks)


def find_points(
    topology: Topology,
    planner: str,
    metric: Metric,
    time_limit: float,
    seconds: float,
    on_progress: OnProgress = lambda done, all_: None,
) -> Points:
    """A planner's plans over the grid of budgets, coarse steps first, as many as fit into `seconds`."""
    grid = budget_grid(topology)
    if planner == DEFAULT and len(topology.tasks) <= WHOLE_TASKS:
        found = curve(topology, metric, min(time_limit, seconds / 2), grid, on_progress)
        return Points(planner, tuple(replace(each, steps=()) for each in found))
    began = time.perf_counter()
    known: dict[int, Plan] = {}
    spread = list(dict.fromkeys(b for step in (32, 16, 8, 4, 2, 1) for b in (*grid[::step], grid[-1])))
    for done, budget in enumerate(spread):
        left = seconds - (time.perf_counter() - began)
        if left <= 0:
            break
        on_progress(done, len(spread))
        known[budget] = replace(plan(topology, budget, planner, metric, max(0.1, min(time_limit, left))), steps=())
    return Points(planner, tuple(known[budget] for budget in sorted(known)), len(known) < len(grid))


@dataclass(frozen=True)
class PlanDifference:
    """The difference between two plans."""

    added: tuple[str, ...]
    removed: tuple[str, ...]
    kept: tuple[str, ...]


def change(before: Collection[str], after: Collection[str]) -> PlanDifference:
    old, new = set(before), set(after)
    return PlanDifference(tuple(sorted(new - old)), tuple(sorted(old - new)), tuple(sorted(old & new)))


# ------------------------------------------------------------------------------------------------- planners side by side


def best_bound(plans: Sequence[Plan]) -> float | None:
    """The lowest upper bound that any planner has proven for a budget."""
    known = [each.bound for each in plans if each.bound is not None]
    return min(known) if known else None


def gap(result: Plan, bound: float | None) -> float | None:
    """How far a plan may be below the optimum, relative to the bound: 0 if it is proven optimal."""
    if bound is None:
        return None
    return 0.0 if bound <= 0 else max(0.0, (bound - result.value) / bound)


def comparison_rows(plans: Sequence[Plan]) -> list[dict[str, object]]:
    """One row per planner, for one budget."""
    bound = best_bound(plans)
    return [
        {
            "planner": each.planner,
            "OF": each.of,
            "IC": each.ic,
            "gap": gap(each, bound),
            "status": each.status.replace("_", " "),
            "seconds": each.seconds,
            "tasks": len(each.tasks),
        }
        for each in plans
    ]


def pick_rows(topology: Topology, plans: Sequence[Plan]) -> list[dict[str, str]]:
    """One row per task that any planner chooses, in the order of the topology."""
    chosen = {each.planner: set(each.tasks) for each in plans}
    union = set().union(*chosen.values()) if chosen else set()
    return [
        {"task": task, **{name: "chosen" if task in tasks else "" for name, tasks in chosen.items()}}
        for task in topology.tasks
        if task in union
    ]


def step_rows(result: Plan) -> list[dict[str, object]]:
    """The steps of a planner, with reasons."""
    value = result.metric.value.upper()
    return [
        {"step": i, value: step.value, "added": list(step.added), "removed": list(step.removed), "why": step.note}
        for i, step in enumerate(result.steps, 1)
    ]
