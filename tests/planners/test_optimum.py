"""The exact planner against brute force, the default and the curve against the exact one, and what all of them promise."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from ppa_core.errors import BadInput
from ppa_core.fidelity import Metric, compile_topology
from ppa_core.planners import PLANNERS, Plan, Problem, Status, compare, curve, exact, plan
from ppa_core.planners.problem import Trace
from ppa_core.planners.unfolding import dominance, tree_sizes
from ppa_core.topology import Build, Family, Structure, Topology, generate, load_example
from ppa_core.topology.mctrees import trees
from tests.strategies import quick, topologies

pytestmark = pytest.mark.slow

metrics = pytest.mark.parametrize("metric", list(Metric))


def best_by_brute_force(topology: Topology, metric: Metric) -> list[float]:
    """The highest value of any plan, by budget: all 2^n plans are valued."""
    compiled = compile_topology(topology, metric)
    n = compiled.tasks
    alive = (np.arange(2**n) >> np.arange(n)[:, None] & 1).astype(bool)
    worth, size = compiled.batch(alive), alive[~compiled.external].sum(axis=0)
    return [float(worth[size <= budget].max()) for budget in range(n + 1)]


def prove(topology: Topology, budget: int, metric: Metric) -> float:
    """The value of the exact planner's plan, found from nothing, after checking what it says of itself."""
    problem = Problem(topology, budget, metric)
    outcome = exact.prove(problem, Trace(problem), 20.0)
    assert outcome.status is Status.OPTIMAL
    assert len(outcome.chosen) <= budget
    assert not outcome.chosen & topology.external_tasks
    assert outcome.bound == pytest.approx(problem.value(outcome.chosen), abs=1e-9)
    return problem.value(outcome.chosen)


@metrics
@quick
@given(topologies(max_operators=5, max_tasks=3), st.integers(0, 20))
def test_exact_from_nothing_equals_brute_force(metric: Metric, topology: Topology, budget: int) -> None:
    assume(len(topology.tasks) <= 11)
    budget = min(budget, len(topology.tasks))
    assert prove(topology, budget, metric) == pytest.approx(best_by_brute_force(topology, metric)[budget], abs=1e-7)


@metrics
@pytest.mark.parametrize("structure", list(Structure))
def test_exact_equals_brute_force_on_joins_with_shared_operators(metric: Metric, structure: Structure) -> None:
    family = Family(operators=(3, 6), tasks=(1, 3), joins=1.0, sharing=0.7, zipf=0.5, structure=structure)
    small = [t for t in (generate(family, seed) for seed in range(40)) if len(t.tasks) <= 12][:12]
    assert len(small) == 12
    for topology in small:
        best = best_by_brute_force(topology, metric)
        for budget in range(0, len(topology.tasks) + 1, 2):
            assert prove(topology, budget, metric) == pytest.approx(best[budget], abs=1e-7), (topology.name, budget)


@pytest.mark.parametrize("joins", [0.0, 0.5])
@pytest.mark.parametrize("structure", list(Structure))
def test_exact_is_at_least_every_other_planner(structure: Structure, joins: float) -> None:
    topology = generate(Family(operators=(4, 6), tasks=(1, 5), structure=structure, joins=joins, zipf=0.1), seed=7)
    budget = len(topology.tasks) // 3
    plans = {name: plan(topology, budget, name, time_limit=20.0) for name in PLANNERS}
    assert plans["exact"].status is Status.OPTIMAL
    for name, other in plans.items():
        assert other.of <= plans["exact"].of + 1e-9, name
        assert len(other.tasks) <= budget, name
    assert plans["default"].of >= max(plans["structure_aware"].of, plans["greedy"].of)


def test_exact_stops_at_the_time_limit_with_a_plan_and_a_bound() -> None:
    topology = generate(Family(operators=(14, 14), tasks=(14, 14), joins=1.0, zipf=0.3), seed=5)
    found = plan(topology, 80, "exact", time_limit=0.2)
    assert found.status is Status.TIME_LIMIT
    assert found.bound is not None
    assert 0 < found.of < found.bound <= 1


def test_a_programme_that_would_be_too_large_is_not_built(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ppa_core.planners.unfolding.MAX_VARIABLES", 20)
    found = plan(load_example("tree"), 5, "exact")
    assert found.status is Status.TIME_LIMIT
    assert found.of == pytest.approx(1 / 16)
    assert found.bound == 1.0


def test_no_budget_reaches_a_tree_then_zero_is_proven_optimal() -> None:
    found = plan(load_example("tree"), 4, "exact")
    assert (found.of, found.status, found.bound) == (0.0, Status.OPTIMAL, 0.0)
    assert len(found.tasks) == 4, "the budget is spent all the same, for failures milder than the worst case"


@quick
@given(topologies(max_operators=5, max_tasks=3, plain=True))
def test_tree_sizes_never_exceed_the_smallest_tree_through_an_operator(topology: Topology) -> None:
    need = tree_sizes(Problem(topology, 0))
    owner = {i: name for name, span in topology.span.items() for i in span}
    for tree in trees(topology):
        assert all(need[owner[i]] <= len(tree) for i in tree)


def test_dominance_orders_equal_neighbours_by_what_they_send() -> None:
    topology = (
        Build("chain")
        .source("A", 4, rate=[1, 3, 2, 3])
        .operator("B", 2, {"A": "merge"})
        .operator("C", 3, {"B": "full"}, weights=[1, 5, 2])
        .done()
    )
    chains = sorted(dominance(compile_topology(topology)))
    ids = [[topology.tasks[i] for i in chain] for chain in chains]
    assert ids == [["A.2", "A.1"], ["A.4", "A.3"], ["C.2", "C.3", "C.1"]]


@metrics
def test_curve_is_monotone_within_budget_and_not_below_single_plans(metric: Metric) -> None:
    topology = generate(Family(operators=(5, 6), tasks=(1, 6), joins=0.5, zipf=0.1), seed=11)
    points = curve(topology, metric, time_limit=20.0)
    assert [p.budget for p in points] == list(range(len(topology.tasks) + 1))
    assert all(a.value <= b.value for a, b in pairwise(points))
    assert all(len(p.tasks) <= p.budget for p in points)
    assert points[-1].value == 1.0
    for budget in range(0, len(topology.tasks) + 1, 4):
        single = plan(topology, budget, "structure_aware", metric)
        assert points[budget].value >= single.value - 1e-9
    recomputed = compile_topology(topology, metric)
    for p in points:
        assert p.value == pytest.approx(recomputed.value(recomputed.mask(topology.numbers(p.tasks))), abs=1e-12)


def test_curve_statuses_are_true() -> None:
    topology = generate(Family(operators=(3, 4), tasks=(1, 4), joins=1.0), seed=3)
    best = best_by_brute_force(topology, Metric.OF)
    points = curve(topology, time_limit=30.0)
    assert all(p.status is Status.OPTIMAL for p in points)
    assert [p.of for p in points] == pytest.approx(best, abs=1e-7)


def test_curve_leaves_external_sources_out() -> None:
    topology = load_example("q1")
    points = curve(topology, time_limit=5.0)
    external = {topology.tasks[i] for i in topology.external_tasks}
    assert all(not external & set(p.tasks) for p in points)
    assert points[-1].of == 1.0


def test_compare_gives_a_row_for_every_planner_and_budget_in_order() -> None:
    seen: list[tuple[str, int, int]] = []
    topology = load_example("mc_trees_join")
    names = ["greedy", "default", "exact"]
    rows = compare(topology, [0, 4, 8, 14], names, progress=lambda *told: seen.append(told))
    assert [(p.planner, p.budget) for p in rows] == [(name, b) for name in names for b in (0, 4, 8, 14)]
    assert {name: max(done for n, done, _ in seen if n == name) for name in names} == dict.fromkeys(names, 4)
    by = {(p.planner, p.budget): p for p in rows}
    assert by["default", 8].of == pytest.approx(by["exact", 8].of)


@pytest.mark.parametrize("budget", [-1, 32, 10**9])
def test_a_budget_that_cannot_be_is_refused(budget: int) -> None:
    with pytest.raises(BadInput, match=r"budget: .* must be from 0 to 31"):
        plan(load_example("tree"), budget)


def test_unknown_planner_metric_and_task_are_refused_with_the_known_ones() -> None:
    tree = load_example("tree")
    with pytest.raises(BadInput, match=r"unknown planner 'magic'.*structure_aware"):
        plan(tree, 3, "magic")
    with pytest.raises(BadInput, match=r"unknown metric 'speed'.*of, ic"):
        plan(tree, 3, metric="speed")
    with pytest.raises(BadInput, match=r"'O9\.1'.*not in topology"):
        tree.numbers(["O9.1"])
    with pytest.raises(BadInput, match="time limit"):
        plan(tree, 3, time_limit=0)


@pytest.mark.parametrize("name", PLANNERS)
def test_every_planner_takes_everything_when_the_budget_allows(name: str) -> None:
    topology = replace(load_example("q2"))
    found: Plan = plan(topology, len(topology.tasks), name)
    assert found.of == 1.0
    assert set(found.tasks) == {task for task in topology.tasks if topology.index[task] not in topology.external_tasks}
