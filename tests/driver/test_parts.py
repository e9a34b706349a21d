"""The host's parts with real nodes and no Spark: losses, the ledger, what is reported."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import Any, cast

import pytest

from ppa_core.driver.host import Host
from ppa_core.driver.records import PublishedOutput, Settings
from ppa_core.engine import run_events
from ppa_core.engine.event_codec import decode, encode, kind_of
from ppa_core.engine.events import BanSet, PauseSet
from ppa_core.engine.run_events import RunEvent
from ppa_core.errors import BadInput
from ppa_core.queries.tree import tree
from ppa_core.terminal import logs
from tests.driver.parts import INNER, World

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


def test_records_of_the_threads_that_write_the_ledger_and_ask_nodes_name_the_batch(
    nodes: Any, world: World, tmp_path: Path
) -> None:
    world.batch()
    world.host.outbox.flush()
    nodes.kill("s1")
    file = tmp_path / "log"
    with logs.configured(logs.LogSettings("debug", str(file), True)):
        with logs.about(batch=1, attempt=2, cause="c1"):
            world.batch()
        world.host.outbox.flush()
        nodes.kill("s2")
        beating = threading.Thread(target=world.host.watcher.run, args=(0.05, world.host.fail))
        beating.start()
        end = time.monotonic() + 20
        while "s2" not in world.host.machine.lost and time.monotonic() < end:
            time.sleep(0.05)
        world.host.stop()
        beating.join(20)
    found = [json.loads(line) for line in file.read_text().splitlines()]
    written = [one for one in found if "the ledger was not written there" in one["message"]]
    assert {tuple(one.get(name) for name in ("batch", "attempt", "cause")) for one in written} == {(1, 2, "c1")}
    asked = [one for one in found if one["message"] == "node s2 does not answer"]
    assert asked
    assert all(one["batch"] == 1 for one in asked)


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


def test_a_node_declared_failed_just_before_the_driver_died_is_not_used_by_the_next(nodes: Any) -> None:
    first = World(nodes)
    first.batch()
    first.host.decisions.handle(BanSet(frozenset({"n1"})))  # and it dies before the loss
    first.close()
    again = World(nodes)
    assert again.host.machine.lost == {"n1"}
    assert "n1" not in again.host.machine.placement.primaries.values()
    (lost,) = again.told(run_events.NodeLost)
    assert lost.reason == "declared failed by an operator"
    again.close()


def test_a_run_is_not_resumed_with_another_pipeline(nodes: Any, world: World) -> None:
    world.batch()
    world.host.outbox.flush()
    cluster = tuple(nodes.cluster.nodes)
    other = Host(cast(Any, None), tree(tasks=(2, 1)), cluster, frozenset(), Settings(), run_id="parts")
    with pytest.raises(BadInput, match="a different pipeline"):
        other.resume()


def test_every_event_that_a_host_reports_is_of_the_union(world: World) -> None:
    world.batch()
    world.host.watcher.check()
    world.host.outbox.flush()
    for event in world.seen:
        if not isinstance(event, PublishedOutput):
            assert decode(encode(event)) == event, kind_of(event)
