"""Topologies that are deep, tangled or huge: every planner answers, and in time."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic

import pytest

from ppa_core.fidelity import Metric
from ppa_core.planners import decompose, dp, full, greedy, structure_aware, structured
from ppa_core.planners.problem import Outcome, Problem, Status
from ppa_core.topology import Build, Topology

pytestmark = pytest.mark.slow

Planner = Callable[[Problem], Outcome]

HEURISTICS = {"full": full.plan, "structured": structured.plan, "structure_aware": structure_aware.plan}
heuristics = pytest.mark.parametrize("plan", HEURISTICS.values(), ids=HEURISTICS)


def chain(operators: int, tasks: int, partitioning: str) -> Topology:
    build = Build("chain").source("O0", tasks, rate=1)
    for k in range(1, operators):
        build = build.operator(f"O{k}", tasks, {f"O{k - 1}": partitioning})
    return build.done()


def diamonds(count: int, join: bool) -> Topology:
    """Every diamond doubles the paths, but there is one task an operator."""
    build = Build("diamonds").source("N0", 1, rate=1)
    for k in range(1, count + 1):
        both = {f"a{k}": "one-to-one", f"b{k}": "one-to-one"}
        for side in both:
            build = build.operator(side, 1, {f"N{k - 1}": "one-to-one"})
        build = build.operator(f"N{k}", 1, both, join=join)
    return build.done()


def huge(first: str, last: str, tasks: int = 30_000) -> Topology:
    return Build("huge").source("A", tasks, rate=1).operator("B", tasks, {"A": first}).operator("C", 1, {"B": last}).done()


# --------------------------------------------------------------------------- deep


@heuristics
def test_a_chain_deeper_than_the_stack(plan: Planner) -> None:
    problem = Problem(chain(1_500, 1, "one-to-one"), 1_500)
    assert problem.value(plan(problem).chosen) == 1
    assert len(plan(Problem(problem.topology, 700)).chosen) == 700


@heuristics
def test_a_tree_larger_than_the_tables_of_costs_is_found(plan: Planner) -> None:
    problem = Problem(chain(150, 2, "one-to-one"), 150)
    assert problem.value(plan(problem).chosen) == pytest.approx(0.5)


def test_a_deep_chain_is_one_segment_a_task() -> None:
    topology = chain(1_500, 2, "one-to-one")
    (unit,) = decompose.units(topology)
    assert [len(s.tasks) for s in decompose.segments(topology, unit)] == [1_500, 1_500]


# ------------------------------------------------------------------------ tangled


@heuristics
def test_diamonds_of_joins_are_one_tree(plan: Planner) -> None:
    topology = diamonds(30, join=True)
    (unit,) = decompose.units(topology)
    (segment,) = decompose.segments(topology, unit)
    assert len(segment.tasks) == 91
    problem = Problem(topology, 91)
    assert problem.value(plan(problem).chosen) == 1


@heuristics
def test_diamonds_without_joins_need_one_side_each(plan: Planner) -> None:
    topology = diamonds(30, join=False)
    (unit,) = decompose.units(topology)
    assert len(decompose.segments(topology, unit, limit=50)) == 50
    problem = Problem(topology, 61)
    assert problem.value(plan(problem).chosen) > 0


def test_enumeration_ends_where_many_ways_lead_to_the_same_tasks() -> None:
    """A join of all streams beside an operator for each pair of them: all choices of the latter give one set of tasks."""
    build = Build("same")
    names = [f"S{k}" for k in range(8)]
    for name in names:
        build = build.source(name, 1, rate=1)
    pairs = [f"P{k}" for k in range(40)]
    for k, name in enumerate(pairs):
        build = build.operator(name, 1, {names[k % 8]: "one-to-one", names[(k + 1) % 8]: "one-to-one"})
    topology = build.operator("J", 1, dict.fromkeys([*pairs, *names], "one-to-one"), join=True).done()
    (unit,) = decompose.units(topology)
    started = monotonic()
    found = decompose.segments(topology, unit, limit=1_000)
    assert [len(s.tasks) for s in found] == [len(topology.tasks)]
    assert monotonic() - started < 5


# --------------------------------------------------------------------------- huge


@heuristics
@pytest.mark.parametrize("edges", [("one-to-one", "merge"), ("full", "full")])
def test_huge_topologies_are_planned_in_time(plan: Planner, edges: tuple[str, str]) -> None:
    problem = Problem(huge(*edges), 1_000, time_limit=10)
    started = monotonic()
    outcome = plan(problem)
    assert monotonic() - started < 15
    assert len(outcome.chosen) == 1_000
    assert problem.value(outcome.chosen) > 0
    if edges[1] == "merge":
        assert problem.value(outcome.chosen) > 0.9 * 499 / 30_000


@heuristics
def test_a_plan_that_the_time_limit_cuts_short_says_so(plan: Planner) -> None:
    problem = Problem(chain(40, 40, "one-to-one"), 900, time_limit=1e-3)
    outcome = plan(problem)
    assert outcome.status is Status.HEURISTIC
    assert len(outcome.chosen) == 900
    assert any("stopped at the time limit" in step.note for step in outcome.steps)


@pytest.mark.parametrize("metric", list(Metric))
def test_dp_keeps_to_its_time_limit_in_huge_topologies(metric: Metric) -> None:
    for topology in (huge("full", "full"), huge("one-to-one", "merge")):
        started = monotonic()
        outcome = dp.plan(Problem(topology, 500, metric, time_limit=2))
        assert monotonic() - started < 6
        assert outcome.status is Status.TIME_LIMIT
        assert len(outcome.chosen) == 500


def test_greedy_tells_a_huge_plan_in_few_steps() -> None:
    outcome = greedy.plan(Problem(huge("full", "full"), 30_000))
    assert len(outcome.chosen) == 30_000
    assert len(outcome.steps) <= 10
