"""Heartbeats of real nodes: hung ones are suspect and come back with their data, killed ones are dead, cleared ones too."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest

from ppa_core.nodes.embedded import EmbeddedNodes, launch
from ppa_core.nodes.health import CLEARED, NodeHealth
from ppa_core.nodes.heartbeats import TICK, Changes, Heartbeats
from ppa_core.nodes.store import Store

PATIENCE = 30.0


@pytest.fixture
def nodes() -> Iterator[EmbeddedNodes]:
    with launch(3, 0, 1, 16) as running:
        yield running


@pytest.fixture
def health(nodes: EmbeddedNodes) -> Iterator[NodeHealth]:
    stores = {node.name: Store(node, "run") for node in nodes.cluster.nodes}
    made = NodeHealth(stores)
    made.reset(list(stores))
    yield made
    for store in stores.values():
        store.close()


@pytest.fixture
def beats(nodes: EmbeddedNodes, health: NodeHealth) -> Iterator[Heartbeats]:
    made = Heartbeats({node.name: node for node in nodes.cluster.nodes}, "run", slow=0.5, most=2.0)
    made.start()
    yield made
    made.stop()


def until(beats: Heartbeats, happened: Callable[[Changes], object]) -> Changes:
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        changes = beats.poll()
        if happened(changes):
            return changes
        time.sleep(TICK)
    raise AssertionError(f"not within {PATIENCE} s")


def test_a_hung_node_is_suspect_and_used_again_when_it_answers(nodes: EmbeddedNodes, beats: Heartbeats) -> None:
    until(beats, lambda changes: beats.suspicion._nodes["n2"].answered)
    nodes.hang("n2")
    found = until(beats, lambda changes: "n2" in changes.suspect)
    assert "no answer for" in found.suspect["n2"]
    assert "n2" not in found.dead
    assert beats.silent_for("n2") > 0.4
    nodes.resume("n2")
    until(beats, lambda changes: "n2" in changes.back)


def test_a_killed_node_is_dead_and_one_that_was_restarted_has_lost_its_data(
    nodes: EmbeddedNodes, beats: Heartbeats, health: NodeHealth
) -> None:
    nodes.kill("n1")
    until(beats, lambda changes: "n1" in changes.dead)
    nodes.restart("n1")
    until(beats, lambda changes: changes.dead.get("n1") == CLEARED)
    assert health.reset(["n1"]) == ["n1"]
    beats.reset("n1")
    end = time.monotonic() + 1.0
    while time.monotonic() < end:
        assert "n1" not in beats.poll().dead
        time.sleep(TICK)


def test_a_hung_node_that_dies_is_dead_and_not_back(nodes: EmbeddedNodes, beats: Heartbeats) -> None:
    until(beats, lambda changes: beats.suspicion._nodes["n3"].answered)
    nodes.hang("n3")
    until(beats, lambda changes: "n3" in changes.suspect)
    nodes.kill("n3")
    found = until(beats, lambda changes: "n3" in changes.dead)
    assert "n3" not in found.back


def test_what_others_have_waited_for_in_vain_is_suspect_until_it_answers(nodes: EmbeddedNodes, beats: Heartbeats) -> None:
    until(beats, lambda changes: beats.suspicion._nodes["n1"].answered)
    beats.suspect("n1")
    until(beats, lambda changes: "n1" in changes.back)
