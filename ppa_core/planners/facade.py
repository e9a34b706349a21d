"""The one way to ask for a plan, and the registry of who can answer."""

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
"""Told the planner, how many of its budgets are done, and how many there are."""


@dataclass(frozen=True)
class Planner:
    """A planner and what to know of it."""

    name: str
    find: Callable[[Problem], Outcome]
    summary: str


DEFAULT = "default"

PLANNERS: Mapping[str, Planner] = MappingProxyType(
    {
        planner.name: planner
        for planner in (
            Planner(DEFAULT, default.plan, "the best heuristic plan, then up to a second of proving: for interactive use"),
            Planner("exact", exact.plan, "the proven optimum, or the best plan and a bound at the time limit"),
            Planner("structure_aware", structure_aware.plan, "the paper's Algorithm 5: by full and structured parts"),
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
    """At most `budget` tasks to replicate, chosen by `planner` so that `metric` is high with only these alive."""
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
    """A plan for every planner (default: all) and budget, in that order; `time_limit` is for each plan.

    The default planner answers more than two budgets with its `curve`, cheaper than a call for each; there the time limit
    (at most ten seconds) is for the whole curve. Plans of `structure_aware` and `greedy`, which it starts from in any case,
    are not made twice.
    """
    entries = [_entry(name) for name in (PLANNERS if planners is None else planners)]
    metric = _metric(metric)
    for budget in budgets:
        Problem(topology, budget, metric, time_limit)  # refuse before the work starts
    found: dict[str, list[Plan]] = {}
    for entry in sorted(entries, key=lambda entry: entry.name == DEFAULT):  # the default last
        tell = _teller(progress, entry.name)
        tell(0, len(budgets))
        if entry.name == DEFAULT and len(budgets) > 2:
            others = [p for name in ("structure_aware", "greedy") for p in found.get(name, ())]
            by_budget = {p.budget: p for p in curve(topology, metric, min(time_limit, 10.0), budgets, tell, others)}
            found[DEFAULT] = [by_budget[budget] for budget in budgets]
            continue
        found[entry.name] = []
        for done, budget in enumerate(budgets, 1):
            found[entry.name].append(plan(topology, budget, entry.name, metric, time_limit))
            tell(done, len(budgets))
    return [p for entry in entries for p in found[entry.name]]


def _teller(progress: Progress | None, name: str) -> Callable[[int, int], None]:
    return (lambda done, total: progress(name, done, total)) if progress else (lambda done, total: None)


def _entry(name: str) -> Planner:
    if name not in PLANNERS:
        raise RequestError("planner", f"there is no planner {name!r}; choose one of {', '.join(PLANNERS)}")
    return PLANNERS[name]


def _metric(metric: Metric | str) -> Metric:
    try:
        return Metric(metric)
    except ValueError:
        raise RequestError("metric", f"there is no metric {metric!r}; choose one of {', '.join(Metric)}") from None
