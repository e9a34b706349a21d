"""What operators ask for is the machine's: it is saved with it, and outlives the driver."""

from __future__ import annotations

import pytest

from ppa_core.engine import ledger
from ppa_core.engine.events import BanSet, CommandsTaken, DrainSet, NodeReturned, NodesLost, PauseSet, PlanSet, RequestSet
from ppa_core.engine.intent import Intent, PlanRequest
from ppa_core.errors import BadInput
from tests.engine.test_machine import primaries, running, statuses


def test_everything_that_operators_asked_for_outlives_the_driver() -> None:
    world = running(5)
    numbers = {"abcdefgh": (7, 12.5)}
    plan = frozenset({"A.2", "C.1"})
    for event in (PlanSet(plan), RequestSet(PlanRequest(2, "exact", "ic")), PauseSet(True), DrainSet(frozenset({"n1"})),
                  BanSet(frozenset({"s1"})), CommandsTaken(numbers)):  # fmt: skip
        world.tell(event)
    asked = Intent(PlanRequest(2, "exact", "ic"), True, frozenset({"n1"}), frozenset({"s1"}), numbers)
    assert world.machine.intent == asked
    world.restart()
    assert world.machine.intent == asked
    assert world.machine.placement.plan == plan
    assert "n1" not in world.machine.placement.primaries.values()


def test_a_banned_node_is_not_used_again_until_it_is_restored() -> None:
    world = running(5)
    world.tell(BanSet(frozenset({"n0"})))
    world.lose("n0")
    world.tell(NodeReturned("n0"))
    assert "n0" in world.machine.lost
    world.restart()
    world.tell(NodeReturned("n0"))
    assert "n0" in world.machine.lost
    world.tell(BanSet(frozenset()))
    world.back("n0")
    assert "n0" not in world.machine.lost


def test_a_drained_node_that_fails_is_an_ordinary_one_when_it_is_back() -> None:
    world = running(5)
    world.drain("n0")
    world.lose("n0")
    assert world.machine.drained == frozenset()


# ---------------------------------------------------------------------------------------------------------------- cause


def test_one_cause_runs_through_an_incident_and_over_a_restart() -> None:
    world = running(20, plan=frozenset())
    world.tell(NodesLost(frozenset(primaries(world)), "first"))
    world.down |= {node.name for node in world.nodes if node.role == "primary"}
    world.batch()
    world.restart()
    world.tell(NodesLost(frozenset({"s0"}), "second"))  # while it is open: the same incident
    world.down.add("s0")
    world.settle()
    told = {emit.cause for batch in sorted(world.emitted)[20:] for emit in world.emitted[batch] if emit.status != "accurate"}
    assert told == {"first"}
    assert world.machine.cause == ""
    assert statuses(world).count("tentative") == 0


def test_an_incident_without_missing_tasks_ends_with_the_next_accurate_batch() -> None:
    world = running(20, plan=frozenset(running().graph.tasks))
    world.tell(NodesLost(frozenset({"n0"}), "taken over"))
    world.down.add("n0")
    assert not world.machine.missing
    assert world.machine.cause == "taken over"
    world.batch()
    assert world.emitted[20][-1].cause == "taken over"
    assert world.machine.cause == ""
    world.batch()
    assert world.emitted[21][-1].cause == ""


def test_nodes_that_fail_together_are_one_event() -> None:
    """Home and replica of a task go at once: nothing moves to a node that is gone too, and one new order follows."""
    world = running(20, plan=frozenset(running().graph.tasks))
    world.begin()
    before = world.machine.attempt
    world.tell(NodesLost(frozenset({"n0", "n1", "s0"}), "rack"))
    assert world.machine.attempt - before <= 2  # the batch again, and one replay
    assert not {"n0", "n1", "s0"} & set(world.machine.placement.primaries.values())


# --------------------------------------------------------------------------------------------------------------- ledger


def test_a_ledger_of_another_version_is_refused_in_words() -> None:
    with pytest.raises(BadInput, match=r"run's ledger.*version"):
        ledger.load(b'{"head": 3}')
    with pytest.raises(BadInput, match="version"):
        ledger.load(b"not json")
