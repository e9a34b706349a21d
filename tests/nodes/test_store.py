"""A node's store: whole versions or none, nothing lost that is needed, and errors that say which node and why."""

from __future__ import annotations

import os
import pickle
import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count, pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ppa_core.errors import BadInput
from ppa_core.nodes.embedded import EmbeddedNodes, launch
from ppa_core.nodes.errors import LeaseLost, NodeDataLost, NodeDown, NodeFull
from ppa_core.nodes.format import UNLINK_IF, mark_key
from ppa_core.nodes.lease import Lease
from ppa_core.nodes.servers import PROGRAM_VARIABLE
from ppa_core.nodes.store import Store
from ppa_core.pipeline.tables import decode, digest, encode
from ppa_core.placement.nodes import Node
from tests.security.servers import PROGRAMS
from tests.support.stored import output, versions

RUNS = count()
BINARY = bytes(range(256))


@pytest.fixture(scope="module")
def embedded() -> Iterator[EmbeddedNodes]:
    with launch(1, 1, 1, 64) as started:
        yield started


@pytest.fixture
def store(embedded: EmbeddedNodes) -> Iterator[Store]:
    with Store(embedded.cluster["n1"], f"run{next(RUNS)}") as opened:
        yield opened


def put(store: Store, batch: int, attempt: int, *contents: bytes, new: tuple[bytes, ...] | None = None) -> dict[str, str]:
    """Write a version of A.1 whose segments are these; `new` are those that are sent, all unless told."""
    manifest = {f"slice{i}": digest(content) for i, content in enumerate(contents)}
    sent = {digest(content): content for content in (contents if new is None else new)}
    store.write("A.1", batch, attempt, manifest, sent, f"output {batch} {attempt}".encode())
    return manifest


def segments_of(store: Store, manifest: dict[str, str]) -> set[bytes]:
    return set(store.segments("A.1", set(manifest.values())).values())


def test_a_version_comes_back_as_it_was_written(store: Store) -> None:
    manifest = put(store, 3, 7, BINARY, b"", b"\r\n")
    assert store.manifest("A.1", 3, 7) == manifest
    assert segments_of(store, manifest) == {BINARY, b"", b"\r\n"}
    assert output(store, "A.1", 3, 7) == b"output 3 7"
    assert versions(store, "A.1") == {(3, 7)}


def test_an_empty_state_is_a_version_too(store: Store) -> None:
    put(store, 0, 1)
    assert store.manifest("A.1", 0, 1) == {}
    assert store.segments("A.1", []) == {}


def test_what_is_not_there_is_not_there(store: Store) -> None:
    put(store, 0, 1, b"a")
    assert store.manifest("A.1", 0, 2) is None
    assert store.manifest("A.2", 0, 1) is None
    assert output(store, "A.1", 1, 1) is None
    assert store.segments("A.1", [digest(b"b")]) == {}
    assert versions(store, "A.2") == set()


def test_names_may_have_any_character(store: Store) -> None:
    task = "a:b {ü} *.1"
    store.write(task, 0, 1, {'"ü":\n': digest(b"x")}, {digest(b"x"): b"x"}, b"out")
    store.sweep(task, {(0, 1)}, 0)
    assert store.manifest(task, 0, 1) == {'"ü":\n': digest(b"x")}
    assert store.segments(task, [digest(b"x")]) == {digest(b"x"): b"x"}


def test_runs_do_not_see_each_other(embedded: EmbeddedNodes, store: Store) -> None:
    put(store, 0, 1, b"a")
    with Store(embedded.cluster["n1"], store.run + "x") as stranger:
        assert versions(stranger, "A.1") == set()


def test_two_attempts_never_mix(store: Store) -> None:
    first, second = put(store, 5, 1, b"old", b"both"), put(store, 5, 2, b"both", b"new")
    put(store, 5, 1, b"old", b"both")  # the late writer comes again
    assert (store.manifest("A.1", 5, 1), store.manifest("A.1", 5, 2)) == (first, second)
    assert segments_of(store, second) == {b"both", b"new"}
    assert store.outputs([("A.1", 5, 2), ("A.1", 5, 3), ("A.1", 5, 1)]) == [b"output 5 2", None, b"output 5 1"]


def test_outputs_of_many_tasks_come_in_their_order(store: Store) -> None:
    for task in ("A.1", "B.1"):
        store.write_output(task, 4, 1, task.encode())
    assert store.outputs([("B.1", 4, 1), ("A.1", 4, 1), ("A.1", 3, 1)]) == [b"B.1", b"A.1", None]
    assert store.outputs([]) == []
    assert versions(store, "A.1") == set()


def test_lacking_names_what_a_node_does_not_have(store: Store) -> None:
    put(store, 0, 1, b"a", b"b")
    assert store.lacking("A.1", [digest(b"a"), digest(b"c")]) == {digest(b"c")}
    assert store.lacking("A.1", []) == set()


def test_a_version_that_builds_on_forgotten_segments_is_not_written(store: Store) -> None:
    with pytest.raises(NodeDataLost, match=r"n1 is down: 1 segments of A\.1 .* missing"):
        put(store, 1, 1, b"before", b"new", new=(b"new",))
    assert versions(store, "A.1") == set()


def test_sweep_keeps_exactly_what_is_needed(store: Store) -> None:
    for batch in range(6):
        contents = [f"slice {i}".encode() for i in range(max(0, batch - 2), batch + 1)]
        put(store, batch, 1, *contents, new=(contents[-1],))
    put(store, 3, 0, b"fork")
    store.sweep("A.1", {(2, 1), (5, 1)}, 4)
    assert versions(store, "A.1") == {(2, 1), (5, 1)}
    everything = [digest(f"slice {i}".encode()) for i in range(6)]
    assert store.lacking("A.1", [*everything, digest(b"fork")]) == {digest(b"fork")}
    assert [output(store, "A.1", batch, 1) is None for batch in range(6)] == [True] * 4 + [False] * 2
    store.sweep("A.1", {(5, 1)}, 4)
    assert store.lacking("A.1", everything) == set(everything[:3])
    store.sweep("A.1", set(), 99)
    assert not list(store._client.scan_iter(f"ppa:{store.run}:*"))


def test_sweep_leaves_later_attempts_which_may_be_under_way(store: Store) -> None:
    put(store, 4, 8, b"a")
    put(store, 5, 9, b"b")
    put(store, 5, 10, b"c")
    store.sweep("A.1", {(4, 8), (5, 9)}, 0)
    store.sweep("A.1", {(5, 9)}, 0)
    assert versions(store, "A.1") == {(5, 9), (5, 10)}
    assert store.lacking("A.1", [digest(b"a"), digest(b"b"), digest(b"c")]) == {digest(b"a")}


VERSIONS = st.tuples(st.integers(0, 3), st.integers(1, 3))
WRITES = st.lists(st.tuples(VERSIONS, st.sets(st.sampled_from([b"a", b"b", b"c", b"d"]))), min_size=1, max_size=8)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(WRITES, st.sets(VERSIONS), st.integers(0, 4))
def test_sweep_against_a_model(embedded: EmbeddedNodes, writes: Any, keep: set[tuple[int, int]], outputs_from: int) -> None:
    model: dict[tuple[int, int], dict[str, str]] = {}
    with Store(embedded.cluster["n1"], f"run{next(RUNS)}") as store:
        for version, contents in writes:
            model[version] = put(store, *version, *contents)
        store.sweep("A.1", keep, outputs_from)
        newest = max((attempt for _, attempt in keep), default=99)
        left = {version: manifest for version, manifest in model.items() if version in keep or version[1] > newest}
        assert versions(store, "A.1") == set(left)
        named = {name for manifest in left.values() for name in manifest.values()}
        everything = {digest(content) for content in (b"a", b"b", b"c", b"d")}
        assert everything - store.lacking("A.1", everything) == named
        assert all(store.manifest("A.1", *version) == manifest for version, manifest in left.items())
        assert {v for v in model if output(store, "A.1", *v) is not None} == {
            v for v in model if v[0] >= outputs_from or v[1] > newest
        }


def fill(store: Store) -> None:
    for batch in range(1, 10):
        put(store, batch, 1, bytes([batch]) * 500_000)


def test_a_full_node_refuses_a_whole_version_and_says_so() -> None:
    with launch(1, 0, 1, 4) as small, Store(small.cluster["n1"], "run") as store:
        kept = put(store, 0, 1, b"a" * 1_000_000)
        with pytest.raises(NodeFull, match=r"node n1 is full: a write of 4,000,010 bytes .*more memory") as caught:
            put(store, 1, 1, b"b" * 2_000_000, b"c" * 2_000_000)
        assert (caught.value.node, caught.value.size) == ("n1", 4_000_010)
        assert versions(store, "A.1") == {(0, 1)}
        assert store.lacking("A.1", [digest(b"b" * 2_000_000)])
        with pytest.raises(NodeFull):
            fill(store)
        assert segments_of(store, kept) == {b"a" * 1_000_000}
        store.sweep("A.1", {(0, 1), (99, 99)}, 0)  # a full node can be swept, and takes writes again
        put(store, 9, 1, b"d" * 500_000)
        assert 1_500_000 < store.used_memory() <= 4 << 20


def test_a_wrong_password_is_refused_by_name_and_not_shown(embedded: EmbeddedNodes) -> None:
    node = embedded.cluster["n1"]
    for url in (node.url.replace(str(node.password), "hunter2"), node.address):
        with Store(replace(node, url=url), "run") as store, pytest.raises(BadInput, match=r"node n1: .*nodes file") as caught:
            store.ping()
        assert "hunter2" not in f"{caught.value} {caught.value.__cause__} {store!r}"
        assert str(node.password) not in str(caught.value)


def test_a_killed_node_is_down_at_once_and_empty_when_back() -> None:
    with launch(1, 0, 1, 16) as embedded, Store(embedded.cluster["n1"], "run") as store:
        put(store, 0, 1, b"a")
        embedded.kill("n1")
        for ask in (store.ping, lambda: store.manifest("A.1", 0, 1), lambda: put(store, 1, 1, b"a"), store.used_memory):
            began = time.monotonic()
            with pytest.raises(NodeDown, match="node n1 is down: ") as caught:
                ask()
            assert time.monotonic() - began < 0.4
            assert str(embedded.cluster["n1"].password) not in str(caught.value)
        embedded.restart("n1")
        assert versions(store, "A.1") == set()
        with pytest.raises(NodeDataLost):
            put(store, 1, 1, b"a", b"b", new=(b"b",))


@pytest.mark.parametrize("program", PROGRAMS)
def test_scripts_are_there_again_after_a_restart(program: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server forgets them, the store and the lease do not know that."""
    monkeypatch.setenv(PROGRAM_VARIABLE, program)
    with launch(1, 0, 1, 16) as embedded, Store(embedded.cluster["n1"], "run") as store:
        lease = Lease([embedded.cluster["n1"]], "run", "me")
        for batch in range(3):
            manifest = put(store, batch, 1, b"a", b"b")
            assert versions(store, "A.1") == {(batch, 1)}
            assert segments_of(store, manifest) == {b"a", b"b"}
            lease.take()
            assert lease.renew()
            embedded.restart("n1")
        store.sweep("A.1", set(), 0)
        lease.release()


def test_the_first_write_to_a_node_is_all_or_nothing_as_well() -> None:
    with launch(1, 0, 1, 4) as small, Store(small.cluster["n1"], "run") as store:
        with pytest.raises(NodeFull):
            put(store, 0, 1, *(bytes([number]) * 1_000_000 for number in range(5)))
        assert not list(store._client.scan_iter("ppa:*"))


def test_a_write_is_one_round_trip_once_the_node_has_the_script(store: Store) -> None:
    put(store, 0, 1, b"a")
    before = commands_of(store)
    for batch in range(1, 6):
        put(store, batch, 1, b"a")
    after = commands_of(store)
    counted = {name: after[name] - before.get(name, 0) for name in after if after[name] != before.get(name, 0)}
    assert counted == {"multi": 5, "hset": 15, "evalsha": 5, "hexists": 5, "exec": 5, "info": 1}  # a manifest, by the script


def commands_of(store: Store) -> dict[str, int]:
    stats = store._info("commandstats")
    return {name.removeprefix("cmdstat_"): figures["calls"] for name, figures in stats.items()}


def test_a_node_killed_under_load_is_down_for_every_thread_at_once() -> None:
    with launch(1, 0, 1, 256) as embedded, Store(embedded.cluster["n1"], "run") as store:
        ended: list[float] = []

        def load(number: int) -> None:
            try:
                for batch in count():
                    store.write(f"A.{number}", batch % 3, 1, {"x": "d"}, {"d": b"x" * 1_000_000}, b"")
            except NodeDown:
                ended.append(time.monotonic())

        threads = [threading.Thread(target=load, args=(number,)) for number in range(3)]
        for thread in threads:
            thread.start()
        time.sleep(0.3)
        embedded.kill("n1")
        killed = time.monotonic()
        for thread in threads:
            thread.join(5)
        assert len(ended) == 3
        assert max(ended) - killed < 1


def test_a_node_that_hangs_is_down_after_the_timeout() -> None:
    with launch(1, 0, 1, 16) as embedded, Store(embedded.cluster["n1"], "run", timeout=0.2) as store:
        store.ping()
        os.kill(embedded.pids["n1"], signal.SIGSTOP)
        began = time.monotonic()
        with pytest.raises(NodeDown, match=r"[Tt]ime"):
            store.ping()
        assert time.monotonic() - began < 1
        os.kill(embedded.pids["n1"], signal.SIGCONT)
        store.ping()
        assert store.manifest("A.1", 0, 1) is None  # not the answer to an earlier question


def test_a_node_that_never_was_is_down() -> None:
    with Store(Node("n1", "r1", "primary", "unix:///no/such/socket"), "run") as store, pytest.raises(NodeDown, match="n1"):
        store.ping()


def test_errors_travel_between_processes() -> None:
    for error in (NodeDown("n1", "why"), NodeDataLost("n1", "why"), NodeFull("n1", 3)):
        again = pickle.loads(pickle.dumps(error))
        assert (type(again), str(again), again.node) == (type(error), str(error), "n1")


TABLE = pa.table(
    {
        "number": pa.array([1, None, 3, 4, None, 6, 7, 8, 9, 10]),
        "plain": np.arange(10.0),
        "text": ["a", None, "ccc", "", "e"] * 2,
        "flag": [True, False, None, True, True] * 2,
        "list": [[1, None], None, [], [3], [4]] * 2,
        "record": [{"x": 1, "y": "z"}, None, {"x": None, "y": "w"}, None, None] * 2,
        "word": pa.array(["u", "v", None, "u", "v"] * 2).dictionary_encode(),
        "view": pa.array(["a", None, "c" * 20, "", "e"] * 2, pa.string_view()),
    }
)


def rebuilt(column: pa.Array) -> pa.Array:
    if pa.types.is_dictionary(column.type):
        return pa.DictionaryArray.from_arrays(rebuilt(column.indices), column.dictionary)
    return pa.array(column.to_pylist(), column.type)


@given(st.lists(st.integers(0, 10), max_size=4), st.integers(0, 10), st.integers(0, 10))
@settings(max_examples=60, deadline=None)
def test_equal_tables_have_equal_bytes(cuts: list[int], low: int, high: int) -> None:
    part = TABLE.slice(low, max(0, high - low))
    fresh = pa.table({name: rebuilt(part[name].combine_chunks()) for name in part.column_names})
    edges = sorted({0, part.num_rows, *(min(cut, part.num_rows) for cut in cuts)})
    pieces = [part.slice(a, b - a) for a, b in pairwise(edges)] or [part]
    chunked = pa.concat_tables(pieces).replace_schema_metadata({"some": "thing"})
    assert encode(chunked) == encode(fresh) == encode(decode(encode(part)))
    assert decode(encode(chunked)).equals(fresh)


def test_values_under_nulls_do_not_show() -> None:
    mask = np.array([False, True, False])
    left, right = (pa.table({"x": pa.array(np.array([1, hidden, 3]), mask=mask)}) for hidden in (7, 9))
    assert encode(left) == encode(right)


def test_decode_copies_nothing_and_an_empty_table_keeps_its_schema() -> None:
    content = encode(pa.table({"x": np.arange(1000)}))
    (_, values) = decode(content).column("x").chunk(0).buffers()
    start = pa.py_buffer(content).address
    assert start <= values.address < start + len(content)
    empty = TABLE.slice(0, 0)
    assert decode(encode(empty)).schema == empty.schema
    assert encode(pa.table({})) == encode(pa.table({}))


def test_a_digest_names_its_content() -> None:
    assert digest(b"") == "cae66941d9efbd404e4d88758ea67670"
    assert digest(b"a") != digest(b"b")


def test_requests_that_arrive_after_the_node_was_marked_anew_delete_nothing(embedded: EmbeddedNodes) -> None:
    """A driver that was cut off sends what it had to say as soon as the network is back."""
    node, run = embedded.cluster["n1"], f"run{next(RUNS)}"
    with Store(node, run) as old, Store(node, run) as new:
        old.mark()
        put(old, 0, 1, b"a")
        old.drop("A.1")
        assert versions(old, "A.1") == set()
        new.forget()
        new.mark()
        put(new, 5, 9, b"b")
        old.drop("A.1")
        assert versions(new, "A.1") == {(5, 9)}
        old._fenced(UNLINK_IF, [mark_key(run), f"ppa:{run}:manifests:A.1"], [b""])  # the rest of an old `forget`
        assert versions(new, "A.1") == {(5, 9)}
        assert new.marked()


def test_an_old_driver_can_neither_delete_nor_clear_nor_save(embedded: EmbeddedNodes) -> None:
    """It hung, another one took over, and it wakes."""
    node, run = embedded.cluster["n1"], f"run{next(RUNS)}"
    with Store(node, run) as old, Store(node, run) as new:
        old.epoch, new.epoch = 1, 2
        old.mark()
        old.write_ledger(1, "old")
        put(old, 0, 1, b"a")
        new.mark()
        new.write_ledger(2, "new")
        acts: tuple[Callable[[], None], ...] = (
            lambda: old.sweep("A.1", set(), 0),
            lambda: old.drop("A.1"),
            old.forget,
            old.mark,
            lambda: old.write_ledger(3, "old"),
        )
        for act in acts:
            with pytest.raises(LeaseLost):
                act()
        assert versions(new, "A.1") == {(0, 1)}
        assert new.marked()
        assert new.read_ledger() == (2, "new")
        new.sweep("A.1", set(), 0)
        assert versions(new, "A.1") == set()
        new.forget()
