"""MC-trees: the paper's numbers, and counting against enumeration on random topologies."""

from __future__ import annotations

from collections import Counter
from itertools import islice, product

import pytest
from hypothesis import assume, given

from ppa_core.errors import RequestError
from ppa_core.topology import (
    Build,
    Edge,
    Input,
    Operator,
    Partitioning,
    Topology,
    containing,
    count,
    covered,
    death_share,
    load_example,
    trees,
)
from ppa_core.topology.mctrees import shared_by_joins
from tests.strategies import Case, cases, quick, topologies

FEW = 3000
"""More trees than this are not enumerated here."""


def full_chain(operators: int, tasks: int) -> Topology:
    first = Operator("O1", tasks, rate=(1.0,) * tasks)
    others = (Operator(f"O{i}", tasks) for i in range(2, operators + 1))
    edges = (Edge(f"O{i}", f"O{i + 1}", Partitioning.FULL) for i in range(1, operators))
    return Topology("chain", (first, *others), tuple(edges))


def unfold(topology: Topology, name: str, task: int) -> list[frozenset[int]]:
    """All trees below a task of the operator `name`, as the definition says."""
    streams = [
        [tree for up, down in topology.links(edge) if down == task for tree in unfold(topology, edge.source, up)]
        for edge in topology.inputs[name]
    ]
    if not streams:
        return [frozenset({task})]
    if topology.by_name[name].input is Input.CORRELATED:
        return [frozenset({task}).union(*chosen) for chosen in product(*streams)]
    return [tree | {task} for stream in streams for tree in stream]


def diamonds(layers: int, partitioning: str) -> Topology:
    """Each layer joins two streams that come from the layer before."""
    build = Build("diamonds").source("J0", 2, 1)
    for i in range(layers):
        build = build.operator(f"A{i}", 2, {f"J{i}": "one-to-one"}).operator(f"B{i}", 2, {f"J{i}": "one-to-one"})
        build = build.operator(f"J{i + 1}", 2, {f"A{i}": partitioning, f"B{i}": partitioning}, join=True)
    return build.done()


def test_paper_has_16_trees_with_independent_and_8_with_correlated_input() -> None:
    assert count(load_example("mc_trees")) == 16
    assert count(load_example("mc_trees_join")) == 8


def test_paper_trees_are_the_ones_it_names() -> None:
    independent, joined = load_example("mc_trees"), load_example("mc_trees_join")
    assert independent.numbers(["O1.1", "O3.1", "O4.1"]) in set(trees(independent))
    assert set(trees(joined)) == {
        joined.numbers([f"O1.{i}", f"O2.{i}", f"O3.{i}", f"O4.{sink}"]) for i in range(1, 5) for sink in (1, 2)
    }


def test_a_source_that_is_a_sink_is_a_tree_by_itself() -> None:
    assert list(trees(Build("one").source("S", 3, 1).done())) == [{0}, {1}, {2}]


def test_twenty_to_the_tenth_trees_are_counted_and_begun_at_once() -> None:
    topology = full_chain(10, 20)
    assert count(topology) == 20**10
    assert len(set(islice(trees(topology), 1000))) == 1000
    assert death_share(topology) == [0.05] * 200


def test_a_chain_of_two_thousand_operators_is_no_trouble() -> None:
    topology = full_chain(2000, 3)
    assert count(topology) == 3**2000
    assert len(next(trees(topology))) == 2000
    assert death_share(topology)[::999] == [1 / 3] * 7


def test_a_full_edge_costs_no_more_than_its_tasks() -> None:
    """Walking through 100,000 × 100,000 links would take an hour."""
    topology = full_chain(2, 100_000)
    assert count(topology) == 10**10
    assert containing(topology) == [100_000] * 200_000


def test_a_task_reached_twice_chooses_along_each_path() -> None:
    topology = diamonds(1, "full")
    assert count(topology) == len(list(trees(topology))) == 2 * 2 * 2
    assert shared_by_joins(topology) == ("J0",)
    assert containing(topology) == [6, 6, 4, 4, 4, 4, 4, 4]


def test_two_trees_may_have_the_same_tasks() -> None:
    """A.1 is chosen over S.1 and B.1 over S.2, or the other way round."""
    build = Build("crossed").source("S", 2, 1)
    build = build.operator("A", 1, {"S": "full"}).operator("B", 1, {"S": "full"})
    found = list(trees(build.operator("J", 1, {"A": "full", "B": "full"}, join=True).done()))
    assert len(found) == 4
    assert found.count(frozenset({0, 1, 2, 3, 4})) == 2


def test_a_task_reached_twice_below_a_choice_may_choose_differently_each_time() -> None:
    build = Build("twice").source("S", 2, 1).operator("X", 1, {"S": "full"})
    build = build.operator("A", 1, {"X": "full"}).operator("B", 1, {"X": "full"})
    topology = build.operator("J", 1, {"A": "full", "B": "full"}, join=True).done()
    rest = {2, 3, 4, 5}
    assert Counter(trees(topology)) == {frozenset({0} | rest): 1, frozenset({1} | rest): 1, frozenset({0, 1} | rest): 2}
    assert containing(topology) == [3, 3, 4, 4, 4, 4]


def test_forty_joined_diamonds_without_a_choice_have_one_tree_a_sink_task() -> None:
    """Unfolded to the end a tree would have 2^40 leaves."""
    topology = diamonds(40, "one-to-one")
    assert count(topology) == 2
    assert [len(tree) for tree in trees(topology)] == [121, 121]


def test_a_number_of_trees_too_long_to_write_is_refused() -> None:
    """Each of the joins squares the number of trees."""
    with pytest.raises(RequestError, match="over a million digits"):
        count(diamonds(40, "full"))


def test_a_plan_that_holds_a_whole_tree_covers_it() -> None:
    topology = load_example("tree")
    plan = topology.numbers(["S.1", "S.2", "O1.1", "O2.1", "O3.1", "O4.1", "S.16"])
    assert count(topology, plan) == 2
    assert list(covered(topology, plan)) == [plan - topology.numbers(["S.2", "S.16"]), plan - topology.numbers(["S.1", "S.16"])]


def test_external_tasks_count_as_alive_and_belong_to_the_trees() -> None:
    topology = load_example("q1")
    plan = topology.numbers(["O1.1", "O2.1", "O3.1"])
    assert count(topology, plan) == 4
    assert list(covered(topology, plan)) == [plan | topology.numbers([f"servers.{n}"]) for n in range(1, 5)]


def test_covered_trees_come_at_once_among_very_many_dead_ones() -> None:
    topology = full_chain(10, 20)
    plan = {span[-1] for span in topology.span.values()}
    assert list(covered(topology, plan)) == [plan]


@quick
@given(topologies())
def test_enumeration_equals_count(topology: Topology) -> None:
    number = count(topology)
    assert number >= 1
    assert sum(1 for _ in islice(trees(topology), FEW)) == min(number, FEW)


@quick
@given(topologies())
def test_the_trees_are_those_of_the_definition(topology: Topology) -> None:
    assume(count(topology) <= FEW)
    wanted = [tree for name in topology.sinks for task in topology.span[name] for tree in unfold(topology, name, task)]
    assert Counter(trees(topology)) == Counter(wanted)


@quick
@given(cases())
def test_covered_equals_the_filtered_enumeration(case: Case) -> None:
    assume(count(case.topology) <= FEW)
    alive = case.alive | case.topology.external_tasks
    wanted = [tree for tree in trees(case.topology) if tree <= alive]
    assert list(covered(case.topology, case.alive)) == wanted
    assert count(case.topology, case.alive) == len(wanted)


@quick
@given(topologies())
def test_deaths_equal_brute_force(topology: Topology) -> None:
    assume(count(topology) <= FEW)
    every = list(trees(topology))
    dying = [sum(task in tree for tree in every) for task in range(len(topology.tasks))]
    assert containing(topology) == dying
    assert death_share(topology) == [n / len(every) for n in dying]
