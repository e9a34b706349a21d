"""Commands to a running host, with real nodes and no Spark."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from ppa_core.driver.records import PublishedOutput
from ppa_core.engine import run_events
from ppa_core.engine.events import Event, NodesLost
from ppa_core.engine.intent import PlanRequest
from ppa_core.errors import PpaError, RequestError
from tests.driver.parts import INNER, World


def test_drain_returns_when_nothing_depends_on_the_node(world: World) -> None:
    for _ in range(2):
        world.batch()
    answers: list[str] = []
    asking = threading.Thread(target=lambda: answers.append(world.controls.do("drain", {"nodes": ["n1"]})))
    asking.start()
    end = time.monotonic() + 30
    while asking.is_alive() and time.monotonic() < end:
        world.batch()
        asking.join(0.1)
    assert answers == ["n1 drained: safe to take down"]
    assert "n1" not in world.host.machine.placement.primaries.values()
    assert {output.status for output in world.told(PublishedOutput)} == {"accurate"}
    world.controls.do("undrain", {"nodes": ["n1"]})
    assert not world.host.machine.drained


def test_drain_waits_for_the_batch_in_flight_that_still_writes_there(nodes: Any) -> None:
    world = World(nodes, plan=INNER, sync_every=3, checkpoint_every=0)
    for _ in range(3):
        world.batch()  # every replica has the newest version now, and will not after the next batch
    run, answers = world.begin(), list[str]()
    asking = threading.Thread(target=lambda: answers.append(world.controls.do("drain", {"nodes": ["n1"]})))
    asking.start()
    asking.join(0.5)
    assert not answers, "n1 alone will hold what this batch writes"
    world.end(run)
    end = time.monotonic() + 30
    while asking.is_alive() and time.monotonic() < end:
        world.batch()
        asking.join(0.1)
    assert answers == ["n1 drained: safe to take down"]
    world.host.decisions.handle(NodesLost(frozenset({"n1"}), "taken down"))
    assert not world.host.machine.missing
    world.close()


@pytest.mark.parametrize(
    ("word", "arguments", "reason"),
    [
        ("leave", {"nodes": ["n1"]}, "unknown command"),
        ("drain", {"nodes": ["n9"]}, "unknown node; known nodes: n1, n2, s1, s2"),
        ("drain", {"nodes": []}, "unknown node"),
        ("undrain", {"nodes": ["n1"]}, "not drained; use restore"),
        ("fail", {"nodes": ["n1", "n2", "s1", "s2"]}, "no other node would be left"),
        ("drain", {"nodes": ["n1", "n2", "s1", "s2"]}, "no other node would be left"),
        (
            "apply-plan",
            {"budget": 1, "planner": "greedy", "tasks": ["O9.1"]},
            "unknown task, or a task that cannot have a replica",
        ),
        ("choose-planner", {"planner": "magic"}, "magic"),
    ],
)
def test_what_cannot_be_done_is_refused_with_the_reason(
    world: World, word: str, arguments: dict[str, Any], reason: str
) -> None:
    before = world.host.machine.intent
    with pytest.raises(RequestError, match=reason):
        world.controls.do(word, arguments)
    assert world.host.machine.intent == before


def test_pause_names_the_batch_in_flight_and_resume_needs_a_pause(world: World) -> None:
    world.batch()
    run = world.begin()
    assert world.controls.do("pause", {}) == "paused: batch 1, which is in flight, is still published"
    world.end(run)
    assert world.controls.do("pause", {}) == "paused after batch 1"
    assert world.controls.do("resume", {}) == "resumed after batch 1"
    with pytest.raises(RequestError, match="not paused"):
        world.controls.do("resume", {})
    assert len(world.told(run_events.Resumed)) == 1


def test_a_batch_that_was_handed_out_just_before_a_pause_waits_too(world: World) -> None:
    world.controls.pause()
    starting = threading.Thread(target=world.host.batches._make_ready, args=(0,))
    starting.start()
    starting.join(0.5)
    assert world.host.machine.running is None
    world.controls.resume()
    starting.join(20)
    assert world.host.machine.running is not None


def both(*commands: Callable[[], object]) -> None:
    """Run commands at the same time."""
    threads = [threading.Thread(target=command) for command in commands]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)


def test_commands_at_the_same_time_lose_nothing(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    controls, machine, handle = world.controls, world.host.machine, world.host.decisions.handle

    def slowly(event: Event) -> None:
        time.sleep(0.1)  # the other command reads meanwhile, if it can
        handle(event)

    monkeypatch.setattr("ppa_core.driver.controls.PATIENCE", 0.3)
    monkeypatch.setattr(world.host.decisions, "handle", slowly)

    def drain(node: str) -> None:
        with suppress(PpaError):  # no batch runs: it is never empty
            controls.drain([node])

    both(lambda: drain("n1"), lambda: drain("n2"))
    assert machine.intent.drained == {"n1", "n2"}
    both(lambda: controls.undrain(["n1"]), lambda: controls.undrain(["n2"]))
    assert not machine.intent.drained
    both(lambda: controls.fail(["n1"]), lambda: controls.fail(["s1"]))
    assert machine.intent.banned == {"n1", "s1"}
    both(lambda: controls.restore(["n1"]), lambda: controls.restore(["s1"]))
    assert not machine.intent.banned


def test_two_commands_at_the_same_time_do_not_take_the_last_nodes(world: World) -> None:
    refused: list[str] = []

    def fail(nodes: list[str]) -> None:
        try:
            world.controls.fail(nodes)
        except RequestError as error:
            refused.append(str(error))

    world.batch()
    both(lambda: fail(["n1", "n2"]), lambda: fail(["s1", "s2"]))
    assert len(refused) == 1
    assert "no other node would be left" in refused[0]
    assert len(world.host.machine.lost) == 2


def test_plans_carry_the_command_that_changed_them(world: World) -> None:
    world.batch()
    assert "2 replicas added" in world.controls.do("set-budget", {"budget": 2}, "abcdefgh-1")
    assert " removed; worst-case OF " in world.controls.do(
        "apply-plan", {"budget": 1, "planner": "exact", "tasks": ["O1.2"]}, "abcdefgh-2"
    )
    changes = world.told(run_events.PlanChanged)
    assert [(event.cause, event.budget) for event in changes] == [("abcdefgh-1", 2), ("abcdefgh-2", 1)]
    assert world.controls.request == PlanRequest(1, "exact")


def test_commands_before_the_start_and_after_the_end_are_refused(nodes: Any, world: World) -> None:
    world.host.started.clear()
    with pytest.raises(PpaError, match="not started"):
        world.controls.take("abcdefgh-1")
    world.host.started.set()
    world.controls.take("abcdefgh-1")
    with pytest.raises(RequestError, match="already executed"):
        world.controls.take("abcdefgh-1")
    world.host.stop()
    with pytest.raises(PpaError, match="stopping"):
        world.controls.take("abcdefgh-2")
