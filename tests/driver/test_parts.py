"""The host's parts with real nodes and no Spark: losses, the ledger, what is reported, what operators ask for."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any, cast

import pytest

from ppa_core.driver.controls import Controls
from ppa_core.driver.host import Host
from ppa_core.driver.jobs import JobResult
from ppa_core.driver.records import PublishedOutput, Settings
from ppa_core.engine import run_events
from ppa_core.engine.event_codec import decode, encode, kind_of
from ppa_core.engine.events import BatchReady, PauseSet
from ppa_core.engine.intent import PlanRequest
from ppa_core.engine.run_events import RunEvent
from ppa_core.errors import BadInput, PpaError, RequestError
from ppa_core.nodes.embedded import launch
from ppa_core.queries.tree import tree

PIPELINE = tree(tasks=(4, 2, 1))
INNER = {"O1.1", "O1.2", "O2.1"}


@pytest.fixture
def nodes() -> Iterator[Any]:
    with launch(2, 2, 2, 32) as running:
        yield running


class World:
    """A host whose batches are run here: every task of every order did what it was told to."""

    def __init__(self, nodes: Any, plan: frozenset[str] = frozenset(), run_id: str = "parts", **settings: Any) -> None:
        self.seen: list[PublishedOutput | RunEvent] = []
        cluster = tuple(nodes.cluster.nodes)
        self.host = Host(cast(Any, None), PIPELINE, cluster, plan, Settings(**settings), self.seen.append, run_id)
        self.host.decisions.start_replay = lambda replay: None
        self.host.decisions.cancel = lambda attempt: None
        self.host.resume()
        self.host.started.set()
        self.controls = Controls(self.host, PlanRequest(0, "greedy"))

    def batch(self) -> None:
        decisions = self.host.decisions
        decisions.handle(BatchReady(self.host.machine.head + 1, patient=False))
        run = decisions.take_run()
        assert run is not None
        assert decisions.batch_done(run, JobResult())

    def told(self, kind: type) -> list[Any]:
        self.host.outbox.flush()
        return [event for event in self.seen if isinstance(event, kind)]

    def close(self) -> None:
        self.host.outbox.flush(5.0)
        for store in self.host.stores.values():
            store.close()


@pytest.fixture
def world(nodes: Any) -> Iterator[World]:
    made = World(nodes)
    yield made
    made.close()


# --------------------------------------------------------------------------------------------------------------- losses


def test_nodes_that_fail_together_are_lost_in_one_step_under_one_cause(nodes: Any, world: World) -> None:
    for _ in range(3):
        world.batch()
    nodes.kill("n1")
    nodes.kill("n2")
    world.host.watcher.nodes_down({"n1": "refused"})  # the other is found by asking
    assert world.host.machine.lost == {"n1", "n2"}
    lost, failovers = world.told(run_events.NodeLost), world.told(run_events.FailedOver)
    assert [(event.node, event.rack) for event in lost] == [("n1", "r1"), ("n2", "r2")]
    assert {task for event in failovers for task in event.lost} == INNER
    assert len({event.cause for event in (*lost, *failovers)}) == 1
    assert lost[0].cause == world.host.machine.cause != ""
    world.batch()
    (tentative,) = [output for output in world.told(PublishedOutput) if output.status == "tentative"]
    assert tentative.cause == lost[0].cause
    assert tentative.of == failovers[0].of < 1


def test_a_loss_that_many_threads_report_is_one_loss(nodes: Any, world: World) -> None:
    world.batch()
    nodes.kill("n1")
    threads = [threading.Thread(target=world.host.watcher.nodes_down, args=({"n1": "refused"},)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert [event.node for event in world.told(run_events.NodeLost)] == ["n1"]


def test_a_slow_sink_holds_up_neither_heartbeats_nor_losses(nodes: Any) -> None:
    gate = threading.Event()
    world = World(nodes)

    def slow(seen: PublishedOutput | RunEvent) -> None:
        gate.wait(30)

    world.host.publisher.watch = slow
    try:
        world.batch()  # its output waits for the sink
        nodes.kill("n1")
        world.host.watcher.check()
        assert world.host.machine.lost == {"n1"}
        assert not world.host.outbox.flush(0.01)
    finally:
        gate.set()
        world.close()


def test_a_node_that_is_back_is_used_again_and_a_failed_one_is_not(nodes: Any, world: World) -> None:
    world.batch()
    world.controls.fail(["n1"])
    world.host.watcher.check()
    assert world.host.machine.lost == {"n1"}, "it answers, and is not used"
    world.controls.restore(["n1"])
    world.host.watcher.check()
    assert not world.host.machine.lost
    assert [event.node for event in world.told(run_events.NodeBack)] == ["n1"]
    (beat,) = world.told(run_events.Heartbeat)[:1]
    assert beat.banned == ("n1",)


# --------------------------------------------------------------------------------------------------------------- ledger


def test_an_output_is_published_before_the_ledger_says_so(nodes: Any) -> None:
    world = World(nodes)
    known: list[int] = []

    def watch(seen: PublishedOutput | RunEvent) -> None:
        if isinstance(seen, PublishedOutput):
            found = world.host.ledger.read()
            known.append(-1 if found is None else found.head)

    world.host.publisher.watch = watch
    for _ in range(3):
        world.batch()
        world.host.outbox.flush()
    assert known == [-1, 0, 1]
    world.close()


def test_a_sink_that_fails_leaves_the_ledger_as_it_was(nodes: Any) -> None:
    world = World(nodes)
    world.batch()
    world.host.outbox.flush()

    def broken(seen: PublishedOutput | RunEvent) -> None:
        if isinstance(seen, PublishedOutput):
            raise OSError("disk full")

    world.host.publisher.watch = broken
    world.batch()
    world.host.outbox.flush()
    found = world.host.ledger.read()
    assert found is not None
    assert found.head == 0
    assert world.host.stopping.is_set()
    assert str(world.host.failure) == "disk full"
    world.close()


def test_a_killed_node_does_not_keep_the_ledger_from_the_others(nodes: Any, world: World) -> None:
    world.batch()
    world.host.outbox.flush()
    nodes.kill("s1")
    world.batch()
    world.host.outbox.flush()
    assert "s1" in world.host.machine.lost, "the ledger could not be written there"
    found = world.host.ledger.read()
    assert found is not None
    assert found.head == 1


def test_pause_budget_drain_and_failed_nodes_outlive_the_driver(nodes: Any) -> None:
    first = World(nodes)
    first.batch()
    first.controls.pause()
    first.controls.do("set-budget", {"budget": 2})
    first.controls.fail(["s2"])
    first.host.decisions.handle(PauseSet(True))
    plan = first.host.machine.placement.plan
    first.close()
    again = World(nodes)
    assert again.host.machine.intent.paused
    assert again.controls.request.budget == 2
    assert again.host.machine.placement.plan == plan
    assert again.host.machine.intent.banned == {"s2"}
    (restarted,) = again.told(run_events.DriverRestarted)
    assert restarted.paused
    again.host.watcher.check()
    assert "s2" in again.host.machine.lost
    again.close()


def test_a_run_is_not_resumed_with_another_pipeline(nodes: Any, world: World) -> None:
    world.batch()
    world.host.outbox.flush()
    cluster = tuple(nodes.cluster.nodes)
    other = Host(cast(Any, None), tree(tasks=(2, 1)), cluster, frozenset(), Settings(), run_id="parts")
    with pytest.raises(BadInput, match="a different pipeline"):
        other.resume()


# ------------------------------------------------------------------------------------------------------------- controls


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


@pytest.mark.parametrize(
    ("word", "arguments", "reason"),
    [
        ("leave", {"nodes": ["n1"]}, "unknown command"),
        ("drain", {"nodes": ["n9"]}, "unknown node; known nodes: n1, n2, s1, s2"),
        ("drain", {"nodes": []}, "unknown node"),
        ("undrain", {"nodes": ["n1"]}, "not drained; use restore"),
        ("fail", {"nodes": ["n1", "n2", "s1", "s2"]}, "no other node would be left"),
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
    if word == "fail":
        world.controls.fail(["s1"])  # once a node is gone, the last ones are not given up
    before = world.host.machine.intent
    with pytest.raises(RequestError, match=reason):
        world.controls.do(word, arguments)
    assert world.host.machine.intent == before


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


def test_every_event_that_a_host_reports_is_of_the_union(world: World) -> None:
    world.batch()
    world.host.watcher.check()
    world.host.outbox.flush()
    for event in world.seen:
        if not isinstance(event, PublishedOutput):
            assert decode(encode(event)) == event, kind_of(event)
