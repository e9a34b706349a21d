"""`plan` and `compare`, the entry points of all planners, and the registry of planners."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from ppa_core.errors import RequestError
from ppa_core.fidelity import Metric
from ppa_core.planners import default, dp, exact, full, greedy, structure_aware, structured
from ppa_core.planners.curve import curve
from ppa_core.planners.problem import Outcome, Plan, Problem
from ppa_core.topology import Topology

Progress = Callable[[str, int, int], None]
"""Called with the planner's name, the number of budgets done, and their total."""


@dataclass(frozen=True)
class Planner:
    """A planner with its name and a one-line description."""

    name: str
    find: Callable[[Problem], Outcome]
    summary: str


DEFAULT = "default"

PLANNERS: Mapping[str, Planner] = MappingProxyType(
    {
        planner.name: planner
        for planner in (
            Planner(
                DEFAULT,
                default.plan,
                "the best heuristic plan, improved or proven for up to a second: for interactive use",
            ),
            Planner("exact", exact.plan, "the proven optimum, or the best plan and a bound at the time limit"),
            Planner("structure_aware", structure_aware.plan, "the paper's Algorithm 5: full and structured sub-topologies"),
            Planner("greedy", greedy.plan, "the paper's Algorithm 2: the tasks whose single failure costs most"),
            Planner("dp", dp.plan, "the paper's Algorithm 1: optimal, for small topologies"),
            Planner("structured", structured.plan, "the paper's Algorithm 3: segment by segment"),
            Planner("full", full.plan, "the paper's Algorithm 4: the next best task of each operator"),
        )
    }
)


def plan(
    topology: Topology,
    budget: int,
    planner: str = DEFAULT,
    metric: Metric | str = Metric.OF,
    time_limit: float = 10.0,
) -> Plan:
    """Choose at most `budget` tasks to replicate, so that `metric` is as high as possible with only these tasks alive."""
    entry = _entry(planner)
    problem = Problem(topology, budget, _metric(metric), time_limit)
    started = time.perf_counter()
    outcome = entry.find(problem)
    return Plan.of_outcome(entry.name, problem, outcome, time.perf_counter() - started)


def compare(
    topology: Topology,
    budgets: Sequence[int],
    planners: Sequence[str] | None = None,
    metric: Metric | str = Metric.OF,
    time_limit: float = 10.0,
    progress: Progress | None = None,
) -> list[Plan]:
    """A plan for every planner (default: all) and budget, in that order; `time_limit` applies to each plan.

    For more than two budgets the default planner uses `curve`, which is cheaper than one call per budget; there the time limit
    (at most ten seconds) applies to the whole curve. It starts from the plans of `structure_aware` and `greedy`, which are
    reused if they are compared too.
    """
    entries = [_entry(name) for name in (PLANNERS if planners is None else planners)]
    metric = _metric(metric)
    for budget in budgets:
        Problem(topology, budget, metric, time_limit)  # check the arguments before planning starts
    found: dict[str, list[Plan]] = {}
    for entry in sorted(entries, key=lambda entry: entry.name == DEFAULT):  # the default last
        report = _reporter(progress, entry.name)
        report(0, len(budgets))
        if entry.name == DEFAULT and len(budgets) > 2:
            others = [p for name in ("structure_aware", "greedy") for p in found.get(name, ())]
            by_budget = {p.budget: p for p in curve(topology, metric, min(time_limit, 10.0), budgets, report, others)}
            found[DEFAULT] = [by_budget[budget] for budget in budgets]
            continue
        found[entry.name] = []
        for done, budget in enumerate(budgets, 1):
            found[entry.name].append(plan(topology, budget, entry.name, metric, time_limit))
            report(done, len(budgets))
    return [p for entry in entries for p in found[entry.name]]


def _reporter(progress: Progress | None, name: str) -> Callable[[int, int], None]:
    return (lambda done, total: progress(name, done, total)) if progress else (lambda done, total: None)


def _entry(name: str) -> Planner:
    if name not in PLANNERS:
        raise RequestError("planner", f"unknown planner {name!r}; choose one of {', '.join(PLANNERS)}")
    return PLANNERS[name]


def _metric(metric: Metric | str) -> Metric:
    try:
        return Metric(metric)
    except ValueError:
        raise RequestError("metric", f"unknown metric {metric!r}; choose one of {', '.join(Metric)}") from None
