"""Placement: copies are apart from what they protect wherever that can be, and nothing moves without need."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from ppa_core.errors import RequestError, Unavailable
from ppa_core.placement.nodes import Node, Role
from ppa_core.placement.place import Placement, change_plan, place, rehome

TASKS = tuple(f"{operator}.{n}" for operator, tasks in (("A", 8), ("B", 5), ("C", 1)) for n in range(1, tasks + 1))


def node(name: str, rack: str, role: Role) -> Node:
    return Node(name, rack, role, f"redis://{name}")


def embedded(primaries: int, standbys: int, racks: int) -> list[Node]:
    """Nodes as `launch` gives them: standby racks are not primary racks."""
    nodes = [node(f"n{i}", f"r{i % racks}", "primary") for i in range(primaries)]
    return nodes + [node(f"s{i}", f"s{i % racks}", "standby") for i in range(standbys)]


def any_nodes() -> st.SearchStrategy[list[Node]]:
    """Nodes of any roles in any racks."""
    kinds = st.lists(
        st.tuples(st.sampled_from(["r1", "r2", "r3"]), st.sampled_from(["primary", "standby"])), min_size=2, max_size=8
    )
    return kinds.map(lambda found: [node(f"x{i}", rack, role) for i, (rack, role) in enumerate(found)])  # type: ignore[arg-type]


def plans() -> st.SearchStrategy[frozenset[str]]:
    return st.frozensets(st.sampled_from(TASKS))


def spread(places: Collection[str], nodes: Collection[str]) -> int:
    counts = Counter(places)
    return max((counts[name] for name in nodes), default=0) - min((counts[name] for name in nodes), default=0)


def check(placement: Placement, lost: Collection[str] = ()) -> None:
    """Every rule of placement, in words of its own."""
    alive = [n for n in placement.nodes if n.name not in lost]
    rack = {n.name: n.rack for n in alive}
    assert set(placement.primaries) == set(TASKS)
    for task, home in placement.primaries.items():
        elsewhere = [n for n in alive if n.name != home]
        other_racks = [n for n in alive if n.rack != rack[home]]
        copies = [c for c in (placement.replicas.get(task), placement.checkpoints.get(task)) if c is not None]
        assert len(copies) == (1 + (task in placement.plan) if elsewhere else 0)
        assert home not in copies
        for copy in copies:
            assert rack[copy] != rack[home] or not other_racks
        apart = [n for n in alive if n in (other_racks or elsewhere)]
        if len(copies) == 2 and sum(n.role == "standby" for n in alive) >= 2 and len(apart) >= 2:
            assert copies[0] != copies[1]
    assert set(placement.replicas) <= placement.plan


@settings(deadline=None)
@given(any_nodes(), plans())
def test_a_first_placement_keeps_all_rules(nodes: list[Node], plan: frozenset[str]) -> None:
    assume(any(n.role == "primary" for n in nodes))
    placement = place(TASKS, nodes, plan)
    check(placement)
    homes = [n.name for n in nodes if n.role == "primary"]
    assert set(placement.primaries.values()) <= set(homes)
    assert spread(placement.primaries.values(), homes) <= 1
    assert placement == place(TASKS, nodes, set(plan))


@settings(deadline=None)
@given(st.integers(1, 6), st.integers(2, 5), st.integers(1, 3), plans())
def test_copies_are_on_standbys_evenly(primaries: int, standbys: int, racks: int, plan: frozenset[str]) -> None:
    placement = place(TASKS, embedded(primaries, standbys, racks), plan)
    names = [f"s{i}" for i in range(standbys)]
    for copies in (placement.replicas, placement.checkpoints):
        assert set(copies.values()) <= set(names)
        assert spread(copies.values(), names) <= 1
    assert not any(placement.replicas[task] == placement.checkpoints[task] for task in plan)


@pytest.mark.parametrize(("racks", "each"), [(2, 1), (2, 3), (3, 2), (4, 1)])
def test_tasks_that_follow_each_other_are_in_different_racks(racks: int, each: int) -> None:
    nodes = embedded(racks * each, 1, racks)
    for ordered in (nodes, sorted(nodes, key=lambda n: n.rack)):
        rack = {n.name: n.rack for n in ordered}
        homes = [rack[home] for home in place(TASKS, ordered, ()).primaries.values()]
        assert all(len(set(homes[i : i + racks])) == racks for i in range(len(homes) - racks + 1))


def test_the_copies_of_one_home_are_on_several_standbys() -> None:
    placement = place([f"A.{n}" for n in range(1, 17)], embedded(4, 2, 1), [])
    for home in ("n0", "n1", "n2", "n3"):
        kept = Counter(placement.checkpoints[task] for task, at in placement.primaries.items() if at == home)
        assert kept == {"s0": 2, "s1": 2}


LOSSES = st.lists(st.sets(st.integers(0, 7), max_size=6), min_size=1, max_size=4)


@settings(deadline=None)
@given(any_nodes(), plans(), LOSSES)
def test_after_any_losses_and_returns_the_rules_hold_and_nothing_moves_without_need(
    nodes: list[Node], plan: frozenset[str], losses: list[set[int]]
) -> None:
    assume(any(n.role == "primary" for n in nodes))
    placement = place(TASKS, nodes, plan)
    for numbers in losses:
        lost = {nodes[i].name for i in numbers if i < len(nodes)}
        if len(lost) == len(nodes):
            with pytest.raises(Unavailable, match=r"no node left to run task A\.1"):
                rehome(placement, lost)
            continue
        before, placement = placement, rehome(placement, lost)
        check(placement, lost)
        for task, home in before.primaries.items():
            if home not in lost:
                assert placement.primaries[task] == home
        assert rehome(placement, lost) == placement


@settings(deadline=None)
@given(plans(), st.sets(st.sampled_from([n.name for n in embedded(4, 3, 2)])))
def test_lost_tasks_go_on_at_their_replica_else_at_their_checkpoint_else_on_a_standby(
    plan: frozenset[str], lost: set[str]
) -> None:
    before = place(TASKS, embedded(4, 3, 2), plan)
    assume(len(lost) < len(before.nodes))
    after = rehome(before, lost)
    standbys = {"s0", "s1", "s2"} - lost
    for task in TASKS:
        if before.primaries[task] in lost:
            copies = [before.replicas.get(task), before.checkpoints[task]]
            alive = [copy for copy in copies if copy and copy not in lost]
            assert (
                after.primaries[task] == alive[0]
                if alive
                else after.primaries[task] in (standbys or set(after.primaries.values()))
            )
        elif before.checkpoints[task] not in lost:
            assert after.checkpoints[task] == before.checkpoints[task]


def test_when_all_primaries_are_lost_the_tasks_are_spread_evenly() -> None:
    after = rehome(place(TASKS, embedded(4, 3, 1), []), {"n0", "n1", "n2", "n3"})
    assert spread(after.primaries.values(), ["s0", "s1", "s2"]) <= 1
    check(after, {"n0", "n1", "n2", "n3"})


def test_when_all_copies_are_lost_too_the_tasks_are_spread_evenly() -> None:
    lost = {"n0", "n1", "s0"}
    after = rehome(place(TASKS, [*embedded(2, 1, 1), node("s1", "s1", "standby"), node("s2", "s2", "standby")], []), lost)
    assert spread(after.primaries.values(), ["s1", "s2"]) <= 1


def test_when_all_standbys_are_lost_copies_go_to_primaries_of_other_racks() -> None:
    after = rehome(place(TASKS, embedded(4, 2, 2), TASKS), {"s0", "s1"})
    check(after, {"s0", "s1"})
    assert set(after.checkpoints.values()) == {"n0", "n1", "n2", "n3"}


def test_the_last_node_has_no_copies_until_another_is_back() -> None:
    placement = rehome(place(TASKS, embedded(2, 2, 1), TASKS[:3]), {"n0", "n1", "s0"})
    assert set(placement.primaries.values()) == {"s1"}
    assert placement.replicas == placement.checkpoints == {}
    back = rehome(placement, {"n0", "n1"})
    assert set(back.primaries.values()) == {"s1"}
    assert set(back.checkpoints) == set(TASKS)
    assert set(back.replicas) == set(TASKS[:3])
    assert set(back.checkpoints.values()) == {"s0"}


@settings(deadline=None)
@given(any_nodes(), plans(), plans(), st.sets(st.integers(0, 7), max_size=3))
def test_a_change_of_plan_moves_nothing_but_what_it_must(
    nodes: list[Node], plan: frozenset[str], then: frozenset[str], numbers: set[int]
) -> None:
    assume(any(n.role == "primary" for n in nodes))
    lost = {nodes[i].name for i in numbers if i < len(nodes)}
    assume(len(lost) < len(nodes))
    before = rehome(place(TASKS, nodes, plan), lost)
    after = change_plan(before, then, lost)
    assert after.plan == then
    assert (after.primaries, after.checkpoints) == (before.primaries, before.checkpoints)
    assert all(after.replicas[task] == before.replicas[task] for task in then & plan if task in before.replicas)
    check(after, lost)


@settings(deadline=None)
@given(any_nodes(), plans(), st.data())
def test_a_moved_task_leaves_the_others_alone(nodes: list[Node], plan: frozenset[str], data: Any) -> None:
    assume(any(n.role == "primary" for n in nodes))
    before = place(TASKS, nodes, plan)
    task, to = data.draw(st.sampled_from(TASKS)), data.draw(st.sampled_from(nodes)).name
    after = before.moved(task, to)
    check(after)
    assert after.primaries == {**before.primaries, task: to}
    for places, then in ((before.replicas, after.replicas), (before.checkpoints, after.checkpoints)):
        assert all(then[other] == places[other] for other in places if other != task)


def test_what_cannot_be_placed_is_refused() -> None:
    with pytest.raises(Unavailable, match="no primary node"):
        place(TASKS, [node("s1", "r1", "standby"), node("s2", "r1", "standby")], ())
    with pytest.raises(Unavailable, match="only one node"):
        place(TASKS, [node("n1", "r1", "primary")], ())
    with pytest.raises(RequestError, match=r"task 'Z\.1'"):
        place(TASKS, embedded(1, 1, 1), ["Z.1"])
    placement = place(TASKS, embedded(1, 1, 1), ())
    with pytest.raises(RequestError, match="node 'n9'"):
        rehome(placement, {"n9"})
    with pytest.raises(RequestError, match=r"task 'Z\.1'"):
        change_plan(placement, ["Z.1"])
