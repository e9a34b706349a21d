"""Predictions are what the machine then does: by scenario, and for any state and any set of nodes that a storm leads to."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule

from ppa_core.engine.events import NodesLost
from ppa_core.engine.machine import Machine
from ppa_core.engine.predictions import fidelity, lose, predict, share_of_work, with_plan, worst_case_of
from ppa_core.engine.standing import Standing
from ppa_core.topology import derive, load_example
from tests.engine.test_machine import ALL, NODES, Storm, primaries, running


def lost(machine: Machine, nodes: frozenset[str]) -> tuple[set[str], set[str]]:
    """The tasks that are missing and those that are taken over once a machine has been told of a loss."""
    tried = replace(
        machine,
        newest=dict(machine.newest),
        copies={task: dict(copies) for task, copies in machine.copies.items()},
        fork=dict(machine.fork),
        outputs={task: dict(kept) for task, kept in machine.outputs.items()},
    )
    homes, before = tried.placement.primaries, tried.missing
    tried.handle(NodesLost(nodes))
    moved = {task for task, home in tried.placement.primaries.items() if home != homes[task]}
    return set(tried.missing - before), moved - tried.missing - before


# ----------------------------------------------------------------------------------------------------------- scenarios


def test_replicas_that_lag_save_nothing() -> None:
    """Replicas are synchronised every third batch; one batch after that, the newest version is with the homes alone."""
    world = running(21, plan=ALL, options={"sync_every": 3, "checkpoint_every": 0})
    loss = lose(world.machine.standing(), primaries(world))
    assert loss.safe  # just synchronised
    world.batch()
    loss = lose(world.machine.standing(), primaries(world))
    assert set(loss.missing) == ALL
    assert not loss.safe
    assert loss.replay == 1  # from the replicas, which lag by one batch
    world.lose(*primaries(world))
    assert world.machine.missing == ALL


def test_tasks_without_state_survive_any_loss() -> None:
    world = running(20, plan=frozenset(), lookback_batches={"A": 0, "B": None, "C": 0, "D": 0})
    loss = lose(world.machine.standing(), primaries(world))
    assert set(loss.missing) == {"B.1", "B.2"}
    assert set(loss.taken_over) == ALL - {"B.1", "B.2"}
    world.lose(*primaries(world))
    assert world.machine.missing == {"B.1", "B.2"}


def test_before_the_first_batch_there_is_nothing_to_lose() -> None:
    world = running(0)
    loss = lose(world.machine.standing(), primaries(world))
    assert loss.safe
    assert set(loss.taken_over) == ALL


def test_a_drained_node_that_still_holds_the_newest_versions_is_not_safe() -> None:
    world = running(20, plan=frozenset(), options={"checkpoint_every": 0})
    held = {task for task, home in world.machine.placement.primaries.items() if home == "n0"}
    world.drain("n0")
    loss = lose(world.machine.standing(), ["n0"])
    assert (loss.hit, set(loss.missing)) == ((), held)
    world.batch()
    assert lose(world.machine.standing(), ["n0"]).safe


def test_a_lost_node_is_lost_already_and_all_nodes_are_too_many() -> None:
    world = running()
    world.lose("n0")
    standing = world.machine.standing()
    assert lose(standing, ["n0"]).nodes == ()
    assert lose(standing, ["n0"]).missing == ()
    assert lose(standing, standing.nodes).nothing_left
    assert not lose(standing, standing.nodes).safe


def test_tasks_that_are_missing_already_count_in_both_fidelities() -> None:
    world = running(plan=frozenset())
    home = world.machine.placement.primaries["D.1"]
    world.lose(home)
    standing, topology = world.machine.standing(), world.topology
    found = predict(standing, ["s0"], topology, 0.5)
    assert (found.of, found.of_now) == (0.0, 0.0)
    again = world.machine.placement.primaries["D.1"]
    assert "D.1" in predict(standing, [again], topology).loss.recovering


def test_recovery_time_is_detection_a_batch_and_the_replay() -> None:
    world = running(20, plan=frozenset(), options={"checkpoint_every": 5})
    topology, standing = world.topology, world.machine.standing()
    found = predict(standing, ["n0"], topology, 0.5)
    assert found.loss.replay is not None
    assert found.recovery == pytest.approx(2.0 + 0.5 * (1 + share_of_work(topology, found.loss.missing) * found.loss.replay))
    assert found.trees is not None
    assert found.trees_lost is not None
    assert 0 < found.trees_lost <= found.trees
    assert predict(standing, [], topology, 0.5).recovery is None
    assert predict(standing, ["n0"], topology).recovery is None


def test_a_task_that_forgets_nothing_and_has_no_copy_is_rebuilt_from_the_source() -> None:
    world = running(20, plan=frozenset(), options={"checkpoint_every": 0})
    home = world.machine.placement.primaries["B.1"]
    found = predict(world.machine.standing(), [home], world.topology, 1.0)
    assert "B.1" in found.loss.from_source
    assert found.recovery is None


def test_a_plan_for_everything_makes_every_primary_safe() -> None:
    world = running(20, plan=frozenset())
    standing, placement = world.machine.standing(), world.machine.placement
    assert not lose(standing, primaries(world)).safe
    planned = with_plan(standing, placement, ALL)
    assert lose(planned, primaries(world)).safe
    world.replan(ALL)
    assert with_plan(planned, world.machine.placement, []).holders != planned.holders
    world.batch()
    assert set(lose(world.machine.standing(), primaries(world)).taken_over) == ALL


def test_a_plan_puts_no_replica_on_drained_nodes_unless_there_are_no_others() -> None:
    world = running(20, plan=frozenset(), options={"checkpoint_every": 0})
    world.drain("s0", "s1", "s2")
    standing, placement = world.machine.standing(), world.machine.placement
    planned = with_plan(standing, placement, ALL)
    drained = {standing.nodes.index(node) for node in ("s0", "s1", "s2")}
    assert all(drained.isdisjoint(held) and len(held) == 2 for held in planned.holders)
    everywhere = replace(standing, drained=tuple(range(len(standing.nodes))))
    assert all(len(held) == 2 for held in with_plan(everywhere, placement, ALL).holders)
    nowhere = replace(standing, lost=tuple(range(len(standing.nodes))))
    assert with_plan(nowhere, placement, ALL).holders == standing.holders


def test_a_replay_works_anew_what_the_missing_tasks_and_those_after_them_take_in() -> None:
    topology = load_example("tree")  # O1.1 feeds O2.1, that O3.1, that O4.1; no task of it is external
    taken = dict(zip(topology.tasks, derive(topology).input, strict=True))
    branch = sum(taken[task] for task in ("O1.1", "O2.1", "O3.1", "O4.1"))
    assert share_of_work(topology, ["O1.1"]) == pytest.approx(branch / sum(taken.values()))
    assert share_of_work(topology, ["O1.1", "O4.1"]) == share_of_work(topology, ["O1.1"])
    assert share_of_work(topology, topology.tasks) == 1.0
    assert share_of_work(topology, []) == 0.0
    assert fidelity(topology, []) == worst_case_of(topology, topology.tasks) == 1.0


@pytest.mark.parametrize(
    "wrong",
    [{"homes": (9,)}, {"holders": ((0, 9),)}, {"copies": ((0,),)}, {"copies": ((9, 1),)}, {"missing": (1,)}, {"lost": (-1,)},
     {"lookback": ()}],
)  # fmt: skip
def test_a_standing_that_names_what_is_not_there_is_refused(wrong: dict[str, object]) -> None:
    right = Standing(3, ("n0",), ("A.1",), (0,), ((0,),), ((0, 3),), (-1,))
    with pytest.raises(ValueError, match=r"unknown|length|batch"):
        replace(right, **wrong)  # type: ignore[arg-type]


# ------------------------------------------------------------------------------------------------------------ any state


class Foreseen(Storm):
    """The storm, and at every moment the loss of any nodes is predicted and tried."""

    @rule(nodes=st.frozensets(NODES, min_size=1, max_size=6))
    def foresee(self, nodes: frozenset[str]) -> None:
        machine = self.world.machine
        if machine.lost | nodes < {node.name for node in self.world.nodes}:
            loss = lose(machine.standing(), nodes)
            assert (set(loss.missing), set(loss.taken_over)) == lost(machine, nodes)

    @invariant()
    def all_homes(self) -> None:
        if hasattr(self, "world"):
            self.foresee(frozenset(primaries(self.world)))


TestForeseen = Foreseen.TestCase
TestForeseen.settings = settings(max_examples=40, stateful_step_count=25, deadline=None, derandomize=True, database=None)
