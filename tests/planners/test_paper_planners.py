"""One suite over the planners of the paper: what every plan must be, what each algorithm promises, how they compare."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import combinations, pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ppa_core.fidelity import Metric
from ppa_core.planners import (
    completion,
    decompose,
    default,
    dp,
    extensions,
    full,
    greedy,
    next_trees,
    structure_aware,
    structured,
)
from ppa_core.planners.decompose import Kind
from ppa_core.planners.problem import Outcome, Problem, Status
from ppa_core.topology import Build, Edge, Family, Partitioning, Structure, Topology, generate
from ppa_core.topology.mctrees import trees

PLANNERS = {"greedy": greedy.plan, "dp": dp.plan, "full": full.plan, "structured": structured.plan,
            "structure_aware": structure_aware.plan}  # fmt: skip
planners = pytest.mark.parametrize("plan", PLANNERS.values(), ids=PLANNERS)
structures = pytest.mark.parametrize("structure", list(Structure))

Planner = Callable[[Problem], Outcome]


@st.composite
def topologies(draw: st.DrawFn, operators: int = 5, tasks: int = 4) -> Topology:
    family = Family(
        operators=(1, operators),
        tasks=(1, tasks),
        zipf=draw(st.sampled_from([0.0, 0.1, 1.5])),
        structure=draw(st.sampled_from(list(Structure))),
        joins=draw(st.sampled_from([0.0, 0.5, 1.0])),
        sharing=draw(st.sampled_from([0.0, 0.6])),
    )
    topology = generate(family, draw(st.integers(0, 10_000)))
    if draw(st.booleans()):
        topology = with_external_source(topology)
    if draw(st.booleans()):
        topology = with_second_sink(topology)
    return topology


def with_external_source(topology: Topology) -> Topology:
    first = topology.sources[0]
    return replace(topology, operators=tuple(replace(o, external=o.name == first) for o in topology.operators))


def with_second_sink(topology: Topology) -> Topology:
    last, edge = (
        replace(topology.by_name[topology.sinks[0]], name="Z", rate=None, weights=(), external=False),
        Partitioning.FULL,
    )
    return replace(
        topology, operators=(*topology.operators, last), edges=(*topology.edges, Edge(topology.sources[0], "Z", edge))
    )


def brute_force(problem: Problem) -> float:
    n = problem.compiled.tasks
    own = np.flatnonzero(problem.replicable)
    sets = list(combinations(own, problem.room))
    alive = np.zeros((n, len(sets)), dtype=bool)
    for k, tasks in enumerate(sets):
        alive[list(tasks), k] = True
    return float(problem.compiled.batch(alive).max())


# ------------------------------------------------------------------ every planner


@planners
@settings(max_examples=25, deadline=None)
@given(topology=topologies(), share=st.floats(0, 1), metric=st.sampled_from(list(Metric)))
def test_every_plan_is_valid_and_its_story_is_true(plan: Planner, topology: Topology, share: float, metric: Metric) -> None:
    problem = Problem(topology, round(share * len(topology.tasks)), metric, time_limit=0.3)
    outcome = plan(problem)
    assert len(outcome.chosen) == problem.room  # the whole budget is spent
    assert not outcome.chosen & topology.external_tasks
    told: set[str] = set()
    for step in outcome.steps:
        assert step.note
        assert told.issuperset(step.removed)
        assert not told.intersection(step.added)
        told = told - set(step.removed) | set(step.added)
    assert told == set(topology.ids(outcome.chosen))
    values = [step.value for step in outcome.steps]
    assert all(a <= b + 1e-12 for a, b in pairwise(values))
    if values:
        assert values[-1] == pytest.approx(problem.value(outcome.chosen), abs=1e-12)


@planners
@structures
def test_the_same_problem_has_the_same_plan(plan: Planner, structure: Structure) -> None:
    topology = generate(Family(operators=(4, 4), tasks=(2, 3), structure=structure, joins=0.5, zipf=0.1), 7)
    assert plan(Problem(topology, 5)) == plan(Problem(topology, 5))


@planners
def test_measured_rates_on_a_full_edge_are_planned_for(plan: Planner) -> None:
    build = Build("measured").source("O1", 3, rate=10).operator("O2", 2, {"O1": "full"})
    topology = build.done(measured={"O1.3>O2.2": 500.0})
    outcome = plan(Problem(topology, 2))
    assert set(topology.ids(outcome.chosen)) == {"O1.3", "O2.2"} or plan is greedy.plan


def test_greedy_takes_the_tasks_whose_single_failure_costs_most() -> None:
    topology = Build("g").source("O1", 3, rate=[5, 1, 3]).operator("O2", 1, {"O1": "full"}).done()
    assert topology.ids(greedy.plan(Problem(topology, 3)).chosen) == ("O1.1", "O1.3", "O2.1")


# ------------------------------------------------------------------------------ dp


@settings(max_examples=60, deadline=None)
@given(topology=topologies(operators=4, tasks=3), share=st.floats(0, 1), metric=st.sampled_from(list(Metric)))
def test_dp_equals_brute_force(topology: Topology, share: float, metric: Metric) -> None:
    if len(topology.tasks) > 12:
        topology = generate(Family(operators=(3, 4), tasks=(1, 3), joins=1.0, sharing=0.5), len(topology.tasks))
    problem = Problem(topology, round(share * len(topology.tasks)), metric, time_limit=60)
    outcome = dp.plan(problem)
    assert outcome.status is Status.OPTIMAL
    assert outcome.bound == problem.value(outcome.chosen) == pytest.approx(brute_force(problem), abs=1e-12)


def test_dp_that_runs_out_of_room_reports_a_filled_plan_and_no_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dp, "PLANS", 500)
    problem = Problem(generate(Family(operators=(6, 6), tasks=(4, 6)), 1), 14)
    outcome = dp.plan(problem)
    assert outcome.status is Status.TIME_LIMIT
    assert outcome.bound is None
    assert len(outcome.chosen) == 14
    assert problem.value(outcome.chosen) > 0


def test_dp_keeps_to_its_time_limit_where_trees_are_beyond_counting() -> None:
    build = Build("many").source("O0", 50, rate=1)
    for k in range(1, 12):
        build = build.operator(f"O{k}", 50, {f"O{k - 1}": "full"})
    outcome = dp.plan(Problem(build.done(), 40, time_limit=0.2))
    assert outcome.status is Status.TIME_LIMIT
    assert len(outcome.chosen) == 40


# ----------------------------------------------------------------------- decompose


@settings(max_examples=100, deadline=None)
@given(topology=topologies(operators=9, tasks=5))
def test_sub_topologies_cover_every_operator_once_with_full_edges_between(topology: Topology) -> None:
    parts = decompose.decompose(topology)
    names = [name for part in parts for name in part.operators]
    assert sorted(names) == sorted(topology.by_name)
    home = {name: k for k, part in enumerate(parts) for name in part.operators}
    for edge in topology.edges:
        assert edge.partitioning is Partitioning.FULL or home[edge.source] == home[edge.target]
        inside = [part for part in parts if edge in part.edges]
        assert len(inside) == (home[edge.source] == home[edge.target])
        if inside and inside[0].kind is Kind.FULL:
            assert edge.partitioning is Partitioning.FULL
        if home[edge.source] != home[edge.target]:  # as few parts as possible
            assert Kind.STRUCTURED in (parts[home[edge.source]].kind, parts[home[edge.target]].kind)


def test_a_mixed_topology_falls_into_a_structured_and_a_full_part() -> None:
    topology = (
        Build("fig")
        .source("O1", 4, rate=1)
        .source("O2", 4, rate=1)
        .operator("O3", 2, {"O1": "merge", "O2": "merge"})
        .operator("O4", 3, {"O3": "full"})
        .operator("O5", 2, {"O4": "full"})
        .operator("O6", 2, {"O5": "full"})
        .done()
    )
    parts = decompose.decompose(topology)
    assert [(p.kind, p.operators) for p in parts] == [
        (Kind.STRUCTURED, ("O1", "O2", "O3")),
        (Kind.FULL, ("O4", "O5", "O6")),
    ]


@settings(max_examples=60, deadline=None)
@given(topology=topologies(operators=7, tasks=5))
def test_units_cover_every_operator_once_and_segments_every_task(topology: Topology) -> None:
    parts = decompose.units(topology)
    assert sorted(name for unit in parts for name in unit.operators) == sorted(topology.by_name)
    for k, unit in enumerate(parts):
        own = {task for name in unit.operators for task in topology.span[name]}
        found = decompose.segments(topology, unit, k)
        assert len({s.tasks for s in found}) == len(found)
        assert all(s.unit == k and s.tasks <= own for s in found)
        assert own == {task for s in found for task in s.tasks}


def test_merge_then_split_is_a_unit_boundary() -> None:
    topology = Build("a").source("O1", 4, rate=1).operator("O2", 2, {"O1": "merge"}).operator("O3", 4, {"O2": "split"}).done()
    first, second = decompose.units(topology)
    assert (first.operators, second.operators) == (("O1",), ("O2", "O3"))
    assert [topology.ids(s.tasks) for s in decompose.segments(topology, second)] == [
        ("O2.1", "O3.1"), ("O2.1", "O3.2"), ("O2.2", "O3.3"), ("O2.2", "O3.4"),
    ]  # fmt: skip


def test_a_merge_reaches_through_a_one_to_one_edge_to_the_split() -> None:
    build = Build("a").source("O1", 4, rate=1).operator("O2", 2, {"O1": "merge"}).operator("O3", 2, {"O2": "one-to-one"})
    topology = build.operator("O4", 4, {"O3": "split"}).done()
    assert [unit.operators for unit in decompose.units(topology)] == [("O1",), ("O2", "O3", "O4")]


def test_join_with_a_merge_input_is_a_unit_boundary() -> None:
    build = Build("b").source("O1", 4, rate=1).source("O2", 2, rate=1)
    topology = build.operator("O3", 2, {"O1": "merge", "O2": "one-to-one"}, join=True).done()
    assert [unit.operators for unit in decompose.units(topology)] == [("O1",), ("O2", "O3")]
    independent = build.operator("O3", 2, {"O1": "merge", "O2": "one-to-one"}).done()
    (unit,) = decompose.units(independent)
    assert len(decompose.segments(independent, unit)) == 6


def test_segments_of_a_topology_that_is_one_unit_are_its_trees() -> None:
    topology = (
        Build("t")
        .source("O1", 3, rate=1)
        .source("O2", 3, rate=1)
        .operator("O3", 3, {"O1": "one-to-one", "O2": "one-to-one"}, join=True)
        .done()
    )
    (unit,) = decompose.units(topology)
    assert {s.tasks for s in decompose.segments(topology, unit)} == set(trees(topology))


# ---------------------------------------------------------------- completing sets


@settings(max_examples=60, deadline=None)
@given(topology=topologies(operators=6, tasks=4))
def test_the_smallest_tree_is_found_with_shared_tasks_counted_once(topology: Topology) -> None:
    smallest = min(len(tree - topology.external_tasks) for tree, _ in zip(trees(topology), range(20_000), strict=False))
    compiled = Problem(topology, 0).compiled
    found = next_trees.NextTrees(compiled, compiled.external, compiled.tasks).best(10)
    assert min(map(len, found), default=0) <= smallest
    assert all(compiled.value(compiled.mask(tree)) > 0 for tree in found)
    assert not next_trees.NextTrees(compiled, compiled.external, min(map(len, found), default=0) - 1).best(10)


@settings(max_examples=60, deadline=None)
@given(topology=topologies(operators=6, tasks=4), seed=st.integers(0, 1000))
def test_every_next_tree_is_new_and_gains(topology: Topology, seed: int) -> None:
    compiled = Problem(topology, 0).compiled
    alive = np.random.default_rng(seed).random(compiled.tasks) < 0.4
    alive |= compiled.external
    found = next_trees.NextTrees(compiled, alive, 9).best(10)
    assert all(len(tasks) <= 9 and not any(alive[task] for task in tasks) for tasks in found)
    assert (extensions.gains_of_sets(compiled, alive, found) > 0).all()
    if not found and (~alive).sum() <= 9:
        assert compiled.value(alive) == pytest.approx(1)


@settings(max_examples=40, deadline=None)
@given(topology=topologies(operators=6, tasks=4))
def test_ranks_are_what_a_task_adds_while_the_rest_of_its_operator_is_dead(topology: Topology) -> None:
    problem = Problem(topology, 0)
    delta = full.Ranks(problem, topology.order).delta
    for stage in problem.compiled.stages:
        alive = np.ones(problem.compiled.tasks, dtype=bool)
        alive[stage.own] = False
        assert delta[stage.own] == pytest.approx(problem.compiled.gains(alive)[stage.own], abs=1e-12)


@settings(max_examples=60, deadline=None)
@given(topology=topologies(operators=6, tasks=4), seed=st.integers(0, 1000))
def test_extensions_are_new_tasks_that_gain_at_least_what_is_expected(topology: Topology, seed: int) -> None:
    problem = Problem(topology, 0)
    compiled = problem.compiled
    alive = np.random.default_rng(seed).random(compiled.tasks) < 0.3
    alive |= compiled.external
    base = compiled.value(alive)
    for extension in completion.Completion(compiled, alive, completion.largest_tree(compiled)).best(99, 10):
        assert not any(alive[task] for task in extension.tasks)
        gain = compiled.value(compiled.mask(extension.tasks) | alive) - base
        assert gain > 0
        if not len(compiled.entangled):
            assert gain >= extension.expected - 1e-9


@settings(max_examples=40, deadline=None)
@given(topology=topologies(operators=6, tasks=4))
def test_a_tree_is_found_whenever_the_budget_affords_one(topology: Topology) -> None:
    """Also with fewer tasks than operators, as one stream feeds an operator that does not join, and where joins share tasks."""
    smallest = min(len(tree - topology.external_tasks) for tree, _ in zip(trees(topology), range(20_000), strict=False))
    problem = Problem(topology, smallest)
    for planner in (structure_aware, structured, full):
        assert problem.value(planner.plan(problem).chosen) > 0


# ---------------------------------------------------------------------- comparison


@structures
def test_structure_aware_beats_greedy(structure: Structure) -> None:
    ratios = (0.1, 0.2, 0.4, 0.6)
    worth = np.zeros((60, len(ratios), 2))
    for seed in range(60):
        family = Family(
            operators=(3, 6),
            tasks=(1, 6),
            structure=structure,
            joins=0.5 * (seed % 2),
            sharing=0.25 * (seed // 2 % 3),
            zipf=0.1 * (seed % 3),
        )
        topology = generate(family, seed)
        for k, ratio in enumerate(ratios):
            problem = Problem(topology, round(ratio * len(topology.tasks)))
            worth[seed, k] = [problem.value(plan(problem).chosen) for plan in (greedy.plan, structure_aware.plan)]
    old, new = worth[..., 0], worth[..., 1]
    assert (new.mean(axis=0) > old.mean(axis=0) * 1.05).all()
    assert new[:, 1].mean() > 3 * old[:, 1].mean()
    shared = np.arange(60) // 2 % 3 > 0
    assert (new[~shared] >= old[~shared] - 0.01).all()
    assert (new[~shared] < old[~shared] - 1e-9).mean() < 0.01
    assert (new[shared] < old[shared] - 1e-9).mean() < 0.05  # grown tree by tree, operators that feed several look too dear
    assert (new[shared].mean(axis=0) > old[shared].mean(axis=0) * 1.05).all()


def test_joins_over_shared_operators_get_a_tree() -> None:
    build = Build("diamond").source("S", 3, rate=1).operator("A", 3, {"S": "full"}).operator("B", 3, {"S": "full"})
    problem = Problem(build.operator("J", 3, {"A": "full", "B": "full"}, join=True).done(), 4)
    best = brute_force(problem)
    for planner in (full, structured, structure_aware):
        assert problem.value(planner.plan(problem).chosen) == pytest.approx(best)


@pytest.mark.slow
def test_where_joins_share_operators_structure_aware_is_not_far_from_default() -> None:
    shares = []
    for seed in range(6):
        topology = generate(Family(operators=(5, 8), tasks=(1, 6), joins=1, sharing=0.5, zipf=0.1), seed)
        for budget in (len(topology.operators), len(topology.operators) + 2, len(topology.tasks) // 2):
            problem = Problem(topology, min(budget, len(topology.tasks)), time_limit=0.5)
            best = problem.value(default.plan(problem).chosen)
            if best > 0:
                shares.append(problem.value(structure_aware.plan(problem).chosen) / best)
                assert shares[-1] > 0
    assert np.mean(shares) > 0.8


def test_structure_aware_and_default_are_close_to_the_optimum_on_small_topologies() -> None:
    shares, defaults = [], []
    for seed in range(25):
        topology = generate(Family(operators=(3, 4), tasks=(1, 4), joins=0.5, sharing=0.2, zipf=0.3), seed)
        problem = Problem(topology, round(0.5 * len(topology.tasks)))
        best = brute_force(problem)
        if best > 0:
            shares.append(problem.value(structure_aware.plan(problem).chosen) / best)
            defaults.append(problem.value(default.plan(problem).chosen) / best)
    assert np.mean(shares) > 0.95
    assert np.min(defaults) > 1 - 1e-9


@structures
def test_structure_aware_plans_a_thousand_tasks(structure: Structure) -> None:
    topology = generate(Family(operators=(8, 8), tasks=(125, 125), structure=structure, joins=0.5, zipf=0.1), 1)
    problem = Problem(topology, 300)
    outcome = structure_aware.plan(problem)
    assert len(outcome.chosen) == 300
    assert problem.value(outcome.chosen) > problem.value(greedy.plan(problem).chosen)
