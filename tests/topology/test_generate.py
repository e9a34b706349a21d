"""The random generator keeps what a family promises."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ppa_core.errors import RequestError
from ppa_core.topology import Family, Input, Partitioning, Structure, Topology, derive, generate

SEEDS = range(300)


def kinds(topology: Topology) -> set[Partitioning]:
    return {edge.partitioning for edge in topology.edges}


def shape(topology: Topology) -> object:
    return [operator.tasks for operator in topology.operators], topology.edges


def joined(topology: Topology) -> int:
    return sum(operator.input is Input.CORRELATED for operator in topology.operators)


def joinable(topology: Topology) -> int:
    return sum(len(edges) > 1 for edges in topology.inputs.values())


def test_the_same_seed_gives_the_same_topology_and_another_seed_another() -> None:
    family = Family(zipf=0.5, joins=0.5, sharing=0.3)
    assert generate(family, 7) == generate(family, 7)
    assert len({generate(family, seed) for seed in SEEDS}) == len(SEEDS)


def test_zipf_and_joins_leave_the_shape_as_it_is() -> None:
    for seed in SEEDS:
        assert shape(generate(Family(), seed)) == shape(generate(Family(zipf=1, joins=1), seed))


def test_the_ranges_are_kept_and_used_up_to_their_ends() -> None:
    made = [generate(Family(operators=(3, 5), tasks=(2, 4)), seed) for seed in SEEDS]
    assert {len(topology.operators) for topology in made} == {3, 4, 5}
    assert {operator.tasks for topology in made for operator in topology.operators} == {2, 3, 4}


def test_one_operator_of_one_task_is_a_topology() -> None:
    assert generate(Family(operators=(1, 1), tasks=(1, 1)), 0).tasks == ("O1.1",)


def test_every_topology_is_a_tree_with_one_sink_that_has_rates() -> None:
    for seed in SEEDS:
        topology = generate(Family(), seed)
        assert len(topology.edges) == len(topology.operators) - 1
        assert len(topology.sinks) == 1
        assert (derive(topology).output > 0).all()


def test_structured_has_no_full_edge_and_full_has_no_other() -> None:
    for seed in SEEDS:
        assert Partitioning.FULL not in kinds(generate(Family(structure=Structure.STRUCTURED), seed))
        assert kinds(generate(Family(structure=Structure.FULL), seed)) == {Partitioning.FULL}
    assert set().union(*(kinds(generate(Family(), seed)) for seed in SEEDS)) == set(Partitioning)


def test_joins_is_the_fraction_of_the_operators_that_could_join() -> None:
    for seed in SEEDS:
        for fraction in (0.0, 0.5, 1.0):
            topology = generate(Family(joins=fraction), seed)
            assert joined(topology) == round(fraction * joinable(topology))


def test_sharing_lets_operators_feed_two_others() -> None:
    fed = [len(edges) for seed in SEEDS for edges in generate(Family(sharing=1), seed).outputs.values()]
    assert set(fed) == {0, 1, 2}
    assert fed.count(2) > fed.count(1)
    assert all(len(generate(Family(sharing=0.5), seed).sinks) == 1 for seed in SEEDS)


@pytest.mark.parametrize("zipf", [0.5, 1.0, 2.0])
def test_zipf_loads_the_tasks_by_one_over_rank_to_the_power_of_it(zipf: float) -> None:
    for seed in range(30):
        topology = generate(Family(operators=(4, 4), tasks=(2, 8), zipf=zipf), seed)
        for operator in topology.operators:
            load = np.array(operator.rate or operator.weights)
            assert sorted(load / load.max(), reverse=True) == pytest.approx(1 / np.arange(1, operator.tasks + 1) ** zipf)
            assert operator.rate is None or load.mean() == pytest.approx(1000)


def test_zipf_ranks_are_in_random_order() -> None:
    family = Family(operators=(1, 1), tasks=(4, 4), zipf=1)
    first = [int(np.argmax(generate(family, seed).operators[0].rate or ())) for seed in SEEDS]
    assert min(first.count(i) for i in range(4)) > len(SEEDS) / 8


def test_without_zipf_the_load_is_uniform() -> None:
    for seed in range(30):
        for operator in generate(Family(), seed).operators:
            assert operator.rate == (1000.0,) * operator.tasks if operator.rate else not operator.weights


def test_everything_at_once_is_valid_for_hundreds_of_seeds() -> None:
    family = Family(operators=(1, 15), tasks=(1, 20), zipf=1.5, joins=0.5, sharing=0.5)
    for seed in SEEDS:
        assert np.isfinite(derive(generate(family, seed)).output).all()


@pytest.mark.parametrize(
    ("wrong", "place"),
    [
        ({"operators": (0, 5)}, "operators"),
        ({"operators": (5, 4)}, "operators"),
        ({"tasks": (0, 1)}, "tasks"),
        ({"tasks": (1, 10**9)}, "tasks"),
        ({"joins": 1.1}, "joins"),
        ({"sharing": -0.1}, "sharing"),
        ({"joins": float("nan")}, "joins"),
        ({"zipf": -1.0}, "zipf"),
        ({"zipf": float("inf")}, "zipf"),
    ],
)
def test_a_family_that_cannot_be_is_refused(wrong: dict[str, Any], place: str) -> None:
    with pytest.raises(RequestError) as caught:
        Family(**wrong)
    assert caught.value.place == place


def test_more_tasks_than_are_supported_are_refused_from_their_sizes() -> None:
    with pytest.raises(RequestError, match="tasks: seed 1 draws 10000000000 tasks in all; at most 1000000"):
        generate(Family(operators=(100_000, 100_000), tasks=(100_000, 100_000)), 1)


def test_a_negative_seed_is_refused() -> None:
    with pytest.raises(RequestError, match="seed: -1 is negative"):
        generate(Family(), -1)
