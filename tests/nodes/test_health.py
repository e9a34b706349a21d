"""Which nodes answer: one that refuses is dead, one that hangs is slow, one that was emptied has lost its data."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from dataclasses import replace

import pytest

from ppa_core.errors import BadInput, Unavailable
from ppa_core.nodes.embedded import EmbeddedNodes, launch
from ppa_core.nodes.errors import NodeDown, NodeSlow
from ppa_core.nodes.health import CLEARED, NodeHealth, check_nodes
from ppa_core.nodes.store import Store
from tests.support.stored import output

NAMES = ("n1", "n2", "s1")
IMPATIENT = 0.5
"""Seconds, for nodes that are stopped; nodes that run have time to answer on a busy machine."""


@pytest.fixture
def nodes() -> Iterator[EmbeddedNodes]:
    with launch(2, 1, 1, 16) as running:
        yield running


@pytest.fixture
def health(nodes: EmbeddedNodes) -> Iterator[NodeHealth]:
    """Nodes that are empty and have the run's mark, as when a run begins."""
    stores = {node.name: Store(node, "run") for node in nodes.cluster.nodes}
    watched = NodeHealth(stores)
    assert set(watched.reset(NAMES)) == set(NAMES)
    yield watched
    for store in stores.values():
        store.close()


@pytest.fixture
def impatient(nodes: EmbeddedNodes, health: NodeHealth) -> Iterator[NodeHealth]:
    """Watches n1 of the same run, and does not wait for long."""
    with Store(nodes.cluster["n1"], "run", timeout=IMPATIENT) as store:
        yield NodeHealth({"n1": store})


def stop(nodes: EmbeddedNodes, name: str) -> None:
    os.kill(nodes.pids[name], signal.SIGSTOP)


def go_on(nodes: EmbeddedNodes, name: str) -> None:
    os.kill(nodes.pids[name], signal.SIGCONT)


def answered(health: NodeHealth, name: str) -> None:
    """Wait until a node that was stopped is awake again, however busy the machine is."""
    for _ in range(100):
        try:
            health.stores[name].ping()
            return
        except NodeDown:
            continue
    raise AssertionError(f"{name} does not answer")


def test_nodes_that_answer_and_have_their_mark_are_alive(health: NodeHealth) -> None:
    assert health.check(NAMES) == {}
    assert health.check(()) == {}
    found = health.memory(NAMES)
    assert set(found) == set(NAMES)
    assert all(100_000 < used < 16 << 20 for used in found.values())


def test_a_node_that_refuses_is_dead_at_once(nodes: EmbeddedNodes, health: NodeHealth) -> None:
    nodes.kill("n2")
    dead = health.check(NAMES)
    assert list(dead) == ["n2"]
    assert str(nodes.cluster["n2"].password) not in dead["n2"].reason
    assert set(health.memory(NAMES)) == {"n1", "s1"}
    assert set(health.reset(NAMES)) == {"n1", "s1"}


def test_nodes_that_fail_together_are_seen_together(nodes: EmbeddedNodes, health: NodeHealth) -> None:
    nodes.kill("n1")
    nodes.kill("s1")
    assert set(health.check(NAMES)) == {"n1", "s1"}


def test_a_node_that_hangs_is_slow_and_not_dead(nodes: EmbeddedNodes, impatient: NodeHealth) -> None:
    stop(nodes, "n1")
    assert isinstance(impatient.check(["n1"])["n1"], NodeSlow)
    go_on(nodes, "n1")
    answered(impatient, "n1")
    assert impatient.check(["n1"]) == {}


def test_a_node_that_hangs_and_is_then_killed_is_dead(nodes: EmbeddedNodes, impatient: NodeHealth) -> None:
    stop(nodes, "n1")
    assert isinstance(impatient.check(["n1"])["n1"], NodeSlow)
    nodes.kill("n1")
    assert not isinstance(impatient.check(["n1"])["n1"], NodeSlow)


def test_a_node_that_was_restarted_empty_is_dead_until_it_is_renewed(nodes: EmbeddedNodes, health: NodeHealth) -> None:
    nodes.restart("n1")
    for _ in range(2):
        dead = health.check(NAMES)
        assert {name: error.reason for name, error in dead.items()} == {"n1": CLEARED}
    assert health.reset(["n1"]) == ["n1"]
    assert health.check(NAMES) == {}


def test_a_node_that_comes_back_with_old_content_is_emptied_when_it_is_renewed(
    nodes: EmbeddedNodes, health: NodeHealth, impatient: NodeHealth
) -> None:
    health.stores["n1"].write_output("A.1", 0, 1, b"old")
    stop(nodes, "n1")
    assert impatient.reset(["n1"]) == []
    go_on(nodes, "n1")
    assert health.reset(["n1"]) == ["n1"]
    assert health.check(["n1"]) == {}
    assert output(health.stores["n1"], "A.1", 0, 1) is None


def test_another_runs_mark_is_none_of_ours(nodes: EmbeddedNodes, health: NodeHealth) -> None:
    with Store(nodes.cluster["n1"], "other") as store:
        assert NodeHealth({"n1": store}).check(["n1"])
        store.mark()
        assert NodeHealth({"n1": store}).check(["n1"]) == {}
    health.reset(["n1"])  # empties its own run alone
    with Store(nodes.cluster["n1"], "other") as store:
        assert store.marked()


def test_a_password_that_is_refused_is_no_dead_node(nodes: EmbeddedNodes) -> None:
    node = nodes.cluster["n1"]
    wrong = replace(node, url=node.url.replace(str(node.password), "hunter2"))
    with Store(wrong, "run") as store, pytest.raises(BadInput, match="refuses the user or password") as caught:
        NodeHealth({"n1": store}).check(["n1"])
    assert "hunter2" not in str(caught.value)


def test_before_a_run_silent_nodes_are_named_and_one_that_answers_is_enough(nodes: EmbeddedNodes) -> None:
    everything = nodes.cluster.nodes
    assert check_nodes(everything) == []
    nodes.kill("n1")
    assert [line.partition(":")[0] for line in check_nodes(everything)] == ["n1"]
    for name in ("n2", "s1"):
        nodes.kill(name)
    with pytest.raises(Unavailable, match=r"^no node answers \(n1: .*\); start the nodes, or correct the nodes file$"):
        check_nodes(everything)
