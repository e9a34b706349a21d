"""Damage to what nodes hold: a flipped bit is never taken for state, it costs one copy, and another one repairs it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest

from ppa_core.drills.baseline import without_spark
from ppa_core.drills.drill import Setup
from ppa_core.drills.local import Local
from ppa_core.drills.report import Seen
from ppa_core.driver.config import Config
from ppa_core.driver.host import Host
from ppa_core.driver.records import PublishedOutput, Settings
from ppa_core.engine import run_events
from ppa_core.engine.event_codec import kind_of
from ppa_core.engine.orders import Order, Version
from ppa_core.engine.run_events import CopyLost, NodeLost, OutputPublished, RunEvent
from ppa_core.errors import BadInput
from ppa_core.nodes import ledger
from ppa_core.nodes.embedded import EmbeddedNodes, launch
from ppa_core.nodes.store import NodeDataLost, Store
from ppa_core.pipeline.tables import digest
from ppa_core.planners import plan as make_plan
from ppa_core.process.driver import Driver
from ppa_core.queries import load_query
from ppa_core.queries.tree import tree
from ppa_core.worker.stage import StageResult
from tests.security.damage import Vandal, flipped
from tests.support.local import outputs
from tests.support.stored import output, versions

SMALL = tree(rate=60, window=4, keys=20)
RUNS = count()


@pytest.fixture(scope="module")
def embedded() -> Iterator[EmbeddedNodes]:
    with launch(2, 2, 1, 64) as started:
        yield started


@pytest.fixture
def stores(embedded: EmbeddedNodes) -> Iterator[dict[str, Store]]:
    run = f"damaged{next(RUNS)}"
    opened = {node.name: Store(node, run) for node in embedded.cluster.nodes}
    yield opened
    for store in opened.values():
        store.forget()
        store.close()


@pytest.fixture
def vandal(embedded: EmbeddedNodes) -> Iterator[Vandal]:
    with Vandal(embedded.cluster["n1"]) as opened:
        yield opened


# ------------------------------------------------------------------------------------------------------------ the store


def write(store: Store, batch: int, content: bytes = b"state", output: bytes = b"output") -> str:
    name = digest(content)
    store.write("A.1", batch, 1, {"slice": name}, {name: content}, output)
    return name


@pytest.mark.parametrize("bit", [0, 7, 39, 200, 10_000])
def test_a_flipped_bit_anywhere_is_not_read_and_the_copy_can_be_written_anew(
    stores: dict[str, Store], vandal: Vandal, bit: int
) -> None:
    store = stores["n1"]
    name = write(store, 3)
    assert vandal.flip("segments", "manifests", "outputs", bit=bit) == 3
    assert store.segments("A.1", [name]) == {}
    assert store.manifest("A.1", 3, 1) is None
    assert output(store, "A.1", 3, 1) is None
    store.drop("A.1")
    assert vandal.contents("segments", "manifests", "outputs") == {}
    with pytest.raises(NodeDataLost):
        store.write("A.1", 4, 1, {"slice": name}, {}, b"")
    assert write(store, 3) == name
    assert store.segments("A.1", [name]) == {name: b"state"}


def test_values_that_changed_places_are_not_read(stores: dict[str, Store], vandal: Vandal) -> None:
    store = stores["n1"]
    write(store, 3, b"old", b"output 3"), write(store, 4, b"new", b"output 4")
    for kind in ("segments", "manifests", "outputs"):
        (a, first), (b, second) = vandal.contents(kind).items()
        vandal.put(*a, second)
        vandal.put(*b, first)
    assert store.outputs([("A.1", 3, 1), ("A.1", 4, 1)]) == [None, None]
    assert [store.manifest("A.1", batch, 1) for batch in (3, 4)] == [None, None]
    assert store.segments("A.1", [digest(b"old"), digest(b"new")]) == {}


@pytest.mark.parametrize("junk", [b"", b"null", b"7", b"[" * 100_000, b"\xff\xfe"])
def test_a_manifest_that_is_none_does_not_stop_a_sweep_and_costs_no_segment(
    stores: dict[str, Store], vandal: Vandal, junk: bytes
) -> None:
    store = stores["n1"]
    old, kept = write(store, 3, b"old"), write(store, 4, b"kept")
    vandal.put(f"ppa:{store.run}:manifests:A.1", b"4:1", bytes(16) + junk)
    vandal.put(f"ppa:{store.run}:manifests:A.1", b"no version", b"")
    vandal.put(f"ppa:{store.run}:outputs:A.1", b"no version", b"")
    store.sweep("A.1", {(4, 1)}, 4)
    assert versions(store, "A.1") == {(4, 1)}
    assert kept in store.segments("A.1", [old, kept])
    assert store.manifest("A.1", 4, 1) is None
    write(store, 5, b"kept")
    store.sweep("A.1", {(5, 1)}, 5)
    assert set(store.segments("A.1", [old, kept])) == {kept}


def test_a_damaged_ledger_does_not_beat_a_sound_one(stores: dict[str, Store], vandal: Vandal) -> None:
    for store in stores.values():
        store.write_ledger(7, '{"head": 7}')
    stores["n1"].write_ledger(8, '{"head": 8}')
    assert ledger.newest(stores.values()) == (8, '{"head": 8}')
    key = f"ppa:{stores['n1'].run}:ledger"
    for field, value in (b"text", b'{"head": 99}'), (b"number", b"9"), (b"number", b"-1"), (b"number", b"\xff"):
        stores["n1"].write_ledger(8, '{"head": 8}')
        vandal.put(key, field, value)
        assert ledger.newest(stores.values()) == (7, '{"head": 7}')
    for bit in range(0, 200, 9):
        stores["n1"].write_ledger(8, '{"head": 8}')
        vandal.flip("ledger", bit=bit)
        assert ledger.newest(stores.values()) == (7, '{"head": 7}')


def test_a_run_whose_ledgers_are_all_damaged_does_not_begin_anew(stores: dict[str, Store], vandal: Vandal) -> None:
    assert ledger.newest(stores.values()) is None
    stores["n1"].write_ledger(7, '{"head": 7}')
    vandal.flip("ledger")
    with pytest.raises(BadInput, match=r"nodes n1: its ledger of run 'damaged\d+' is damaged, .*another name"):
        ledger.newest(stores.values())


# ---------------------------------------------------------------------------------------------------------- the workers


def replicated(local: Local, batch: int, attempt: int = 1, before: int = 1, nodes: tuple[str, ...] = ("n1", "s1")) -> Order:
    """A batch of all tasks in n1, with replicas in s1, from what `nodes` hold."""
    plain = local.order(batch, attempt)
    version = Version(batch - 1, before if batch else 0, nodes)
    return replace(plain, runs={t: replace(run, before=version, replica="s1") for t, run in plain.runs.items()})


def started(stores: dict[str, Store], batches: int = 6) -> tuple[Local, dict[tuple[str, int], bytes]]:
    """A pipeline after some batches, and what it would put out in the next one."""
    local, sound = (Local(SMALL, 2, stores=stores.__getitem__) for _ in range(2))
    local.homes = sound.homes = dict.fromkeys(local.tasks, "n1")
    for batch in range(batches):
        assert not local.run(replicated(local, batch)).lost
    return local, outputs(sound.run(replicated(sound, batches, 99)))


@pytest.mark.parametrize("kind", ["segments", "manifests"])
@pytest.mark.parametrize("bit", [3, 1000])
def test_damaged_state_is_read_from_the_replica_and_repaired(
    stores: dict[str, Store], vandal: Vandal, kind: str, bit: int
) -> None:
    local, expected = started(stores)
    assert vandal.flip(kind, bit=bit) > 15
    local.forget()
    first = local.run(replicated(local, 6, 2))
    assert first.lost == {("n1", task) for task in local.tasks}
    assert not first.down
    assert outputs(first).items() <= expected.items(), "what came of it is right, or nothing"
    for node, task in first.lost:  # as the host does, and the machine orders
        stores[node].drop(task)
    again = local.run(replicated(local, 6, 3, nodes=("s1",)))
    assert (again.lost, again.skipped, again.down) == (set(), set(), {})
    assert outputs(again) == expected
    for task in local.tasks:
        manifest = stores["n1"].manifest(task, 6, 3)
        assert manifest is not None
        assert set(stores["n1"].segments(task, manifest.values())) == set(manifest.values()), "n1 is whole again"


def test_state_that_is_damaged_in_every_node_is_lost_and_nothing_comes_of_it(
    stores: dict[str, Store], embedded: EmbeddedNodes, vandal: Vandal
) -> None:
    local, _ = started(stores)
    vandal.flip("segments")
    with Vandal(embedded.cluster["s1"]) as other:
        other.flip("segments")
    local.forget()
    result = local.run(replicated(local, 6, 2))
    assert result.lost == {(node, task) for node in ("n1", "s1") for task in local.tasks}
    assert result.skipped == {(task, 6) for task in local.tasks}
    assert not result.sinks


def test_damaged_outputs_are_read_from_the_other_node(stores: dict[str, Store], vandal: Vandal) -> None:
    local, _ = started(stores)
    truth = outputs(local.run(replicated(local, 5, 98, nodes=("s1",))))

    def replay(attempt: int) -> StageResult:
        feeders = {task: Version(5, 1, ("n1", "s1")) for task in local.tasks if task != "O4.1"}
        order = replicated(local, 5, attempt)
        return local.run(replace(order, runs={"O4.1": order.runs["O4.1"]}, outputs=feeders))

    vandal.flip("outputs")
    result = replay(2)
    assert outputs(result) == truth
    assert result.lost == {("n1", task) for task in ("O3.1", "O3.2")}
    for store in stores.values():
        store.forget()
    assert replay(3).skipped


# -------------------------------------------------------------------------------------------------------------- the host


def test_a_damaged_copy_costs_a_copy_and_the_same_one_again_or_a_missing_mark_costs_the_node() -> None:
    seen: list[NodeLost | CopyLost] = []

    def watch(one: PublishedOutput | RunEvent) -> None:
        if isinstance(one, NodeLost | CopyLost):
            seen.append(one)

    def told(since: int) -> list[tuple[str, str]]:
        host.outbox.flush()
        return [(kind_of(event), event.node) for event in seen[since:]]

    with launch(2, 2, 1, 32) as nodes:
        settings = Settings(batches=1)
        host = Host(None, SMALL, tuple(nodes.cluster.nodes), frozenset(), settings, watch, "again")  # type: ignore[arg-type]
        host.resume()
        host.stores["n1"].write("O1.1", 0, 1, {"s": digest(b"x")}, {digest(b"x"): b"x"}, b"")
        host.watcher.copies_damaged({("n1", "O1.1")})
        assert told(0) == [("copy lost", "n1")]
        assert versions(host.stores["n1"], "O1.1") == set()
        host.watcher.copies_damaged({("n1", "O1.1"), ("n2", "O1.2")})
        assert told(1) == [("node lost", "n1"), ("copy lost", "n2")]
        host.stores["n2"].forget()
        host.watcher.copies_damaged({("n2", "O1.4")})
        assert told(3) == [("node lost", "n2")]
        assert host.machine.lost == {"n1", "n2"}
        for store in host.stores.values():
            store.close()


# ------------------------------------------------------------------------------------------------------------- the whole


@pytest.mark.drill
def test_bits_flipped_in_the_middle_of_a_run_change_no_byte_of_its_results(tmp_path: Path) -> None:
    options = {"rate": 100, "window": 4.0, "batch_seconds": 1.0}
    setup = Setup("tree", options, 4, (), Settings(batches=16, checkpoint_every=4, interval=0.5))
    plan = make_plan(load_query("tree", **options).pipeline.topology(), 4).tasks
    seen, at = Seen(), {"n1": 4, "n2": 8, "s1": 8}
    with launch(4, 4, 2, 256) as nodes:
        config = Config("tree", options, tuple(nodes.cluster.nodes), plan, setup.run_settings, "flipped", tmp_path)
        with Driver(config) as driver:
            for event in driver.events():
                seen.events.append(event)
                head = event.batch if isinstance(event, OutputPublished) else -1
                for name in [name for name, batch in at.items() if head >= batch]:
                    del at[name]
                    if name == "s1":
                        nodes.kill("n3")  # its tasks are replayed, from checkpoints and buffers that are damaged
                    with Vandal(nodes.cluster[name]) as vandal:
                        assert vandal.flip("segments", "manifests", "outputs", "ledger", bit=333)
                    driver.fail_executor()  # what the workers have cached is gone: they read
    clean = without_spark(setup)
    assert not at
    assert {batch: digest_ for batch, (_, digest_) in seen.accurate().items()} == {
        batch: digest_ for batch, (_, digest_) in clean.accurate().items()
    }
    lost = {(event.node, event.task) for event in seen.of(run_events.CopyLost)}
    assert {node for node, _ in lost} >= {"n1", "n2"}
    assert {event.node for event in seen.of(run_events.NodeLost)} == {"n3"}, "a flipped bit costs no node"


def test_a_bit_is_flipped() -> None:
    assert [flipped(b"ab", bit) for bit in (0, 9, 17)] == [b"`b", b"a`", b"cb"]
