"""What a worker does with orders: the same bytes however it is cut into partitions, jobs and processes."""

from __future__ import annotations

import pickle
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ppa_core.drills.local import Local, MemoryStore
from ppa_core.engine.orders import Order, TaskRun, Version
from ppa_core.errors import BadInput
from ppa_core.nodes.embedded import launch
from ppa_core.nodes.store import NodeFull, Store
from ppa_core.pipeline.definition import Context, Pipeline, Result, StepFailed
from ppa_core.pipeline.streams import route
from ppa_core.pipeline.tables import encode
from ppa_core.queries.tree import SUMS, TreeWindow, accuracy, tree
from ppa_core.worker.layout import Layout
from ppa_core.worker.packing import Packer, Parcel, gather, pack, sort, unpack
from ppa_core.worker.state import Held, SegmentCache, StateSegment
from tests.support.local import outputs, rates
from tests.support.pipelines import SCHEMA, Random, pipelines, source, union

SMALL = tree(rate=60, window=4, keys=20)


def ran(local: Local, batches: int) -> dict[tuple[str, int], bytes]:
    found: dict[tuple[str, int], bytes] = {}
    for batch in range(batches):
        result = local.run(local.order(batch))
        assert not result.down
        assert not result.lost
        assert not result.skipped
        found |= outputs(result)
    return found


# ------------------------------------------------------------------------------------------------------ the same bytes


def test_the_tree_is_the_same_on_one_two_and_three_partitions() -> None:
    locals_ = [Local(SMALL, partitions) for partitions in (1, 2, 3)]
    first, *others = [(ran(local, 7), local.versions(1)) for local in locals_]
    assert len(first[1]) == 7 * 15
    assert all(other == first for other in others)


@settings(max_examples=25, deadline=None)
@given(pipelines(), st.integers(2, 5))
def test_any_pipeline_is_the_same_on_any_number_of_partitions(pipeline: Pipeline, partitions: int) -> None:
    one, many = Local(pipeline, 1), Local(pipeline, partitions)
    assert ran(one, 3) == ran(many, 3)
    assert one.versions(1) == many.versions(1)


def test_replay_of_many_batches_in_one_job_gives_the_same_versions() -> None:
    local = Local(SMALL, 2)
    expected = ran(local, 10)
    local.forget()
    orders = [local.order(4, 2), *(local.order(batch, 2, before=None) for batch in range(5, 10))]
    replayed = local.run(*orders)
    assert outputs(replayed) == {key: data for key, data in expected.items() if key[1] >= 4}
    accurate = local.versions(1)
    assert local.versions(2) == {key: version for key, version in accurate.items() if key[1] >= 4}


def test_replay_of_some_tasks_reads_the_outputs_of_the_others_once_from_each_node() -> None:
    local = Local(SMALL, 2, nodes=3)
    ran(local, 8)
    local.forget()
    wanted = ["O2.1", "O3.1", "O4.1"]
    feeders = ["O1.1", "O1.2", "O2.2", "O3.2"]
    orders = [
        replace(
            local.order(batch, 2, tasks=wanted, before=1 if batch == 5 else None),
            outputs={task: Version(batch, 1, (local.homes[task],)) for task in feeders},
        )
        for batch in range(5, 8)
    ]
    for store in local.memory.values():
        store.calls.clear()
    result = local.run(*orders)
    accurate = local.versions(1)
    assert local.versions(2) == {(task, batch): accurate[task, batch] for task in wanted for batch in range(5, 8)}
    assert {task for task, _, _ in result.sinks} == {"O4.1"}
    assert all(store.calls.count("outputs") <= 3 * 2 for store in local.memory.values())


@settings(max_examples=15, deadline=None)
@given(pipelines(), st.integers(1, 3), st.integers(1, 3))
def test_any_pipeline_replays_to_the_same_versions(pipeline: Pipeline, partitions: int, start: int) -> None:
    local = Local(pipeline, partitions)
    ran(local, 5)
    local.forget()
    local.run(local.order(start, 2), *(local.order(batch, 2, before=None) for batch in range(start + 1, 5)))
    assert local.versions(2) == {key: version for key, version in local.versions(1).items() if key[1] >= start}


def test_a_cache_that_holds_nothing_changes_nothing() -> None:
    with_cache, without = Local(SMALL, 2), Local(SMALL, 2, cache_bytes=0)
    assert ran(with_cache, 6) == ran(without, 6)
    reads = [sum(store.calls.count("segments") for store in local.memory.values()) for local in (with_cache, without)]
    assert reads[0] == 0 < reads[1]


def test_a_job_keeps_the_state_it_made_whatever_the_cache_holds() -> None:
    local = Local(SMALL, 2, cache_bytes=0)
    local.run(local.order(0), *(local.order(batch, before=None) for batch in range(1, 6)))
    assert not any(store.calls.count("segments") for store in local.memory.values())


def test_a_new_process_reads_only_the_segments_that_a_step_asks_for() -> None:
    local = Local(SMALL, 2)
    ran(local, 6)
    local.forget()
    for store in local.memory.values():
        store.calls.clear()
    local.run(local.order(6))
    reads = sum(store.calls.count("segments") for store in local.memory.values())
    assert reads == 15 * 2, "the sums and the slice that leaves, not the other three"


# ----------------------------------------------------------------------------------------------------------- the window


def test_the_window_kept_incrementally_equals_one_computed_from_scratch() -> None:
    local = Local(SMALL, 2)
    ran(local, 9)
    tuples = SMALL.by_name["S"].source
    assert tuples is not None
    window = pa.concat_tables([tuples.read(task, batch) for batch in range(5, 9) for task in (4, 5)])
    sums = np.zeros(20, np.int64)
    np.add.at(sums, window["key"].to_numpy(), window["value"].to_numpy())
    state = local.state("O1.3", 8, 1)
    assert set(state) == {SUMS, "5", "6", "7", "8"}
    assert state[SUMS]["sum"].to_pylist() == sums.tolist()
    assert pa.concat_tables([state[str(batch)] for batch in range(5, 9)]).equals(window)


@settings(deadline=None)
@given(st.lists(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 10**6))), max_size=8), st.integers(1, 4))
def test_the_sums_of_a_window_are_those_of_its_slices(batches: list[list[tuple[int, int]]], slices: int) -> None:
    step, state = TreeWindow(slices, 0.5, 5), dict[str, pa.Table]()
    for batch, rows in enumerate(batches):
        new = pa.table(
            {"key": [k for k, _ in rows], "value": [v for _, v in rows], "seq": list(range(len(rows)))}, SCHEMA_OF_TREE
        )
        result = step(Context("O1", 0, batch, 1.0), state, [new])
        state = {name: table for name, table in state.items() if name not in result.drop} | dict(result.add)
        alive = [row for past in batches[max(0, batch - slices + 1) : batch + 1] for row in past]
        assert state[SUMS]["sum"].to_pylist() == [sum(v for k, v in alive if k == key) for key in range(5)]


SCHEMA_OF_TREE = pa.schema({"key": pa.int64(), "value": pa.int64(), "seq": pa.int64()})


def test_operators_pass_half_on_and_accuracy_counts_tuples() -> None:
    local = Local(tree(rate=4000, window=2), 2)
    (_, _, table), *_ = local.run(local.order(0)).sinks
    assert table.num_rows == pytest.approx(16 * 4000 / 2**4, rel=0.1)
    half = table.slice(0, table.num_rows // 2)
    assert accuracy(table, table) == 1
    assert accuracy(half, table) == pytest.approx(0.5, abs=0.001)
    assert accuracy(half, half.slice(0, 0)) == 1


# ------------------------------------------------------------------------------------------------------- missing tasks


def test_a_masked_task_is_missing_and_unrelated_tasks_do_not_change() -> None:
    whole, masked = Local(SMALL, 2), Local(SMALL, 2)
    ran(whole, 5)
    alive = [task for task in masked.tasks if task != "O1.3"]
    for batch in range(5):
        result = masked.run(masked.order(batch, tasks=alive))
        assert not result.skipped
        assert {flow.stream.source for flow in result.flows if 2 in flow.up} >= {"S"}
        assert not any(flow.stream.source == "O1" and 2 in flow.up for flow in result.flows)
    expected, found = whole.versions(1), masked.versions(1)
    affected = {"O2.2", "O3.1", "O4.1"}
    assert {task for (task, batch) in found if found[task, batch] != expected[task, batch]} == affected
    assert {task for task, _ in expected.keys() - found.keys()} == {"O1.3"}


def test_accuracy_of_the_tree_without_a_task_is_about_its_fidelity() -> None:
    pipeline = tree(rate=500, window=3)
    whole, masked = Local(pipeline, 2), Local(pipeline, 2)
    (_, _, accurate), (_, _, tentative) = (
        local.run(local.order(0, tasks=tasks)).sinks[0]
        for local, tasks in ((whole, whole.tasks), (masked, [task for task in masked.tasks if task != "O2.1"]))
    )
    assert accuracy(tentative, accurate) == pytest.approx(0.75, abs=0.05)


def test_a_dead_node_is_reported_and_its_tasks_are_taken_for_missing() -> None:
    local, masked = Local(SMALL, 2, nodes=5), Local(SMALL, 2, nodes=5)
    ran(local, 3), ran(masked, 3)
    local.store("n2").dead = True
    dead = {task for task, home in local.homes.items() if home == "n2"}
    local.forget()
    result = local.run(local.order(3))
    assert result.down == {"n2": "killed"}
    assert result.skipped == {(task, 3) for task in dead}
    masked.run(masked.order(3, tasks=[task for task in masked.tasks if task not in dead]))
    assert local.versions(1) == masked.versions(1)


def test_a_node_that_dies_before_the_write_is_reported_too() -> None:
    local = Local(SMALL, 2, nodes=5)
    ran(local, 3)
    local.store("n2").dead = True  # the version before is cached
    result = local.run(local.order(3), local.order(4, before=None))
    assert set(result.down) == {"n2"}
    assert result.skipped == {(task, batch) for task, home in local.homes.items() if home == "n2" for batch in (3, 4)}


def test_a_dead_replica_or_standby_costs_no_task() -> None:
    local = Local(SMALL, 2)
    order = local.order(0)
    runs = {task: replace(run, replica="r", buffer="s") for task, run in order.runs.items()}
    local.store("r").dead = local.store("s").dead = True
    result = local.run(replace(order, runs=runs))
    assert set(result.down) == {"r", "s"}
    assert not result.skipped
    assert len(local.versions(1)) == 15


def test_what_a_node_that_was_restarted_empty_held_is_lost() -> None:
    local = Local(SMALL, 1, nodes=1)
    ran(local, 2)
    local.memory["n0"] = MemoryStore("n0")
    for cold in (False, True):
        if cold:
            local.forget()
        result = local.run(local.order(2))
        assert result.lost == {("n0", task) for task in local.tasks}
        assert result.skipped == {(task, 2) for task in local.tasks}
        assert not local.versions(1)


@pytest.mark.parametrize("careless", [False, True])
def test_a_copy_without_its_segments_is_lost_whatever_the_step_makes_of_it(careless: bool) -> None:
    def step(context: Context, state: Mapping[str, pa.Table], inputs: Sequence[pa.Table]) -> Result:
        try:
            return union(context, state, inputs)
        except Exception:
            if careless:
                return Result(inputs[0])
            raise

    local = one_operator(step)
    ran(local, 2)
    local.store("n1").contents.clear()
    local.forget()
    result = local.run(local.order(2))
    assert (result.down, result.lost) == ({}, {("n1", "out.2")})
    assert result.skipped == {("out.2", 2)}


def test_a_task_whose_home_is_known_to_be_dead_does_not_run() -> None:
    local = Local(SMALL, 1, nodes=1)
    ran(local, 2)
    local.memory["copy"] = replace(local.store("n0"), name="copy")
    local.store("n0").dead = True
    local.forget()
    order = local.order(2)
    last = replace(order.runs["O4.1"], before=Version(1, 1, ("copy",)))
    result = local.run(replace(order, runs={**order.runs, "O4.1": last}))
    assert set(result.down) == {"n0"}
    assert result.skipped == {(task, 2) for task in local.tasks}
    assert not result.stats


def test_a_version_is_read_from_the_next_node_that_has_it() -> None:
    local, other = Local(SMALL, 2), Local(SMALL, 2)
    ran(local, 6), ran(other, 5)
    other.memory["copy"] = MemoryStore("copy")
    for store in (other.store("n0"), other.store("n1")):
        other.memory["copy"].manifests |= store.manifests
        other.memory["copy"].contents |= store.contents
    other.store("n0").dead = True
    other.forget()
    order = other.order(5)
    homes = dict.fromkeys(other.tasks, "n3")
    runs = {task: TaskRun(homes[task], Version(4, 1, (other.homes[task], "copy"))) for task in order.runs}
    other.homes = homes
    result = other.run(replace(order, runs=runs))
    assert set(result.down) == {"n0"}
    assert not result.skipped
    expected = local.versions(1)
    assert other.versions(1) == {key: expected[key] for key in expected if key[1] == 5}


# -------------------------------------------------------------------------------------------------------------- writes


def test_every_node_gets_what_it_lacks_and_no_more() -> None:
    local = Local(SMALL, 1, nodes=1)

    def order(batch: int, nodes: tuple[str, ...], **places: str) -> Order:
        plain = local.order(batch)
        runs = {
            task: replace(run, before=Version(batch - 1, 1 if batch else 0, nodes), **places)
            for task, run in plain.runs.items()
        }
        return replace(plain, runs=runs)

    def sent(order: Order) -> dict[str, int]:
        stats = next(stats for stats in local.run(order).stats if stats.task == "O1.1")
        return {name: getattr(stats, name) for name in ("home_bytes", "replica_bytes", "checkpoint_bytes", "state_bytes")}

    first = sent(order(0, (), replica="r", buffer="c"))
    assert first["home_bytes"] == first["replica_bytes"] > first["checkpoint_bytes"] > 0
    second = sent(order(1, ("n0", "r"), replica="r", checkpoint="c"))
    assert second["home_bytes"] == second["replica_bytes"]
    state = local.state("O1.1", 1, 1)
    output = len(local.store("n0").buffers["O1.1", 1, 1])
    assert (
        second["checkpoint_bytes"]
        == sum(len(encode(table)) for table in state.values()) + output
        == second["state_bytes"] + output
    )
    third = sent(order(2, ("n0", "r", "c"), checkpoint="c"))
    assert third["checkpoint_bytes"] == third["home_bytes"]
    fourth = sent(order(3, ("n0",), replica="r"))
    assert fourth["replica_bytes"] > fourth["home_bytes"], "the replica missed a batch"
    assert local.store("r").manifests["O1.1", 3, 1] == local.store("n0").manifests["O1.1", 3, 1]
    assert ("O1.1", 0, 1) in local.store("c").buffers
    assert ("O1.1", 0, 1) not in local.store("c").manifests


def test_segments_swept_between_question_and_write_are_sent_after_all() -> None:
    class Swept(MemoryStore):
        def lacking(self, task: str, digests: Collection[str]) -> set[str]:
            return set()

    local = Local(SMALL, 1, nodes=1)
    ran(local, 2)
    local.memory["r"] = Swept("r")
    order = local.order(2)
    result = local.run(replace(order, runs={task: replace(run, replica="r") for task, run in order.runs.items()}))
    assert not result.down
    assert local.store("r").manifests.keys() == {(task, 2, 1) for task in local.tasks}


def test_stats_and_flows_tell_what_went_where() -> None:
    local = Local(SMALL, 2)
    result = local.run(local.order(0))
    assert len(result.stats) == 15
    assert {(stats.task, stats.rows_in) for stats in result.stats if stats.task.startswith("O1.")} == {
        (f"O1.{k}", 120) for k in range(1, 9)
    }
    seen = rates(result, 2.0)
    assert seen["S.16>O1.8"] == 30.0
    assert len(seen) == 16 + 8 + 4 + 2
    assert local.pipeline.topology(seen).measured == seen
    by_task = {stats.task: stats for stats in result.stats}
    assert (
        sum(seen[f"O3.{k}>O4.1"] for k in (1, 2)) * 2
        == by_task["O4.1"].rows_in
        == by_task["O3.1"].rows_out + by_task["O3.2"].rows_out
    )


def test_the_cache_forgets_what_was_used_least() -> None:
    cache = SegmentCache(10)
    for name in "abc":
        cache.put(name, StateSegment(b"1234"))
        cache.get("a")
    cache.put("huge", StateSegment(bytes(11)))
    assert [name for name in ("a", "b", "c", "huge") if cache.get(name)] == ["a", "c"]
    assert cache.bytes == 8


def test_the_cache_forgets_what_a_window_has_left_behind() -> None:
    cache = SegmentCache(1 << 20)
    for batch in range(100):
        name = f"slice {batch}"
        cache.put(name, StateSegment(bytes(100)), "O1.1")
        window = {str(b): f"slice {b}" for b in range(max(0, batch - 4), batch + 1)}
        cache.remember("O1.1", batch, 1, Held(window))
    assert cache.bytes == 700, "five slices of the window, and two that the versions before still name"
    assert cache.get("slice 99") is not None
    assert cache.get("slice 90") is None


# ------------------------------------------------------------------------------------------------------- what goes wrong


def one_operator(step: object, rows: int = 5) -> Local:
    return Local(Pipeline("p").source("in", 2, source(rows)).operator("out", 2, {"in": "one-to-one"}, step), 2)  # type: ignore[arg-type]


def test_what_a_step_raises_names_operator_task_and_batch() -> None:
    def step(context: Context, state: Mapping[str, pa.Table], inputs: Sequence[pa.Table]) -> Result:
        if (context.task, context.batch) == (1, 1):
            raise ZeroDivisionError("by zero")
        return union(context, state, inputs)

    local = one_operator(step)
    local.run(local.order(0))
    with pytest.raises(StepFailed, match=r"operator 'out', task out.2, batch 1: ZeroDivisionError: by zero") as caught:
        local.run(local.order(1))
    again = pickle.loads(pickle.dumps(caught.value))
    assert (again.operator, again.task, again.batch, str(again)) == ("out", "out.2", 1, str(caught.value))


@pytest.mark.parametrize(
    ("made", "reason"),
    [
        (Result(pa.table({"k": ["a"]})), r"the columns \(k: string\), but the schema has \(k: string, n: int64\)"),
        (Result([1]), "the output is list, not a pyarrow.Table"),
        (SCHEMA.empty_table(), "returned Table, not a Result"),
        (Result(SCHEMA.empty_table(), {"a": 3}), "segment 'a' is int, not a pyarrow.Table"),
    ],
)
def test_a_result_that_is_not_as_declared_is_refused(made: object, reason: str) -> None:
    local = one_operator(lambda context, state, inputs: made)
    with pytest.raises(StepFailed, match=reason):
        local.run(local.order(0))


def test_a_source_that_raises_is_named() -> None:
    class Torn(Random):
        def read(self, task: int, batch: int) -> pa.Table:
            raise ValueError("record 7 is cut off")

    local = Local(Pipeline("p").source("in", 1, Torn(1)).operator("out", 1, {"in": "one-to-one"}, union))
    with pytest.raises(StepFailed, match=r"operator 'in', task in.1, batch 0: ValueError: record 7 is cut off"):
        local.run(local.order(0))


def test_a_node_out_of_memory_is_named_with_the_task() -> None:
    class Full(MemoryStore):
        def write(self, *arguments: object) -> None:
            raise NodeFull(self.name, 7)

    local = one_operator(union)
    local.memory["n1"] = Full("n1")
    with pytest.raises(StepFailed, match=r"task out.2, batch 0: node n1 is full"):
        local.run(local.order(0))


def test_a_wrong_password_is_not_taken_for_a_dead_node() -> None:
    local = one_operator(union)

    def refuse(name: str) -> MemoryStore:
        raise BadInput(f"node {name}", "it refuses the password")

    local.stores = refuse
    with pytest.raises(BadInput, match="refuses the password"):
        local.run(local.order(0))


# ------------------------------------------------------------------------------------------------------------- packing


@settings(deadline=None)
@given(pipelines(), st.integers(1, 4), st.data())
def test_what_is_packed_arrives_at_its_tasks_in_order(pipeline: Pipeline, partitions: int, data: st.DataObject) -> None:
    layout = Layout.of(pipeline, partitions)
    number = data.draw(st.integers(0, len(pipeline.streams) - 1))
    stream = pipeline.streams[number]
    running = np.array(data.draw(st.lists(st.booleans(), min_size=stream.down_tasks, max_size=stream.down_tasks)), bool)
    missing = data.draw(st.sets(st.integers(0, stream.up_tasks - 1)))
    tables = {up: Random(9).read(up, number) for up in range(stream.up_tasks) if up not in missing}
    blobs = []
    for partition in range(partitions):
        packer = Packer(layout)
        own = {up: tables[up] for up in layout.tasks(stream.source, partition) if up in tables}
        packer.add(number, sort(stream, own, SCHEMA, running))
        blobs.extend(packer.blobs(partition, 0))
    assert len({(blob.source, blob.target) for blob in blobs}) == len(blobs)
    for down in range(stream.down_tasks):
        own_blobs = [blob for blob in blobs if blob.target == layout.partition(stream.target, down)]
        parcels = [parcel for blob in reversed(own_blobs) for _, parcel in unpack(blob.data)]
        routed = {up: route(table, stream, np.full(len(table), up)) for up, table in tables.items()}
        sent = {up: table.filter(pa.array(routed[up] == down)) for up, table in tables.items() if running[down]}
        found = gather(parcels, down, SCHEMA)
        assert found.table.equals(pa.concat_tables([SCHEMA.empty_table(), *sent.values()]))
        assert dict(zip(found.up.tolist(), found.rows.tolist(), strict=True)) == {
            up: len(t) for up, t in sent.items() if len(t)
        }


def test_a_full_edge_of_many_tasks_is_one_blob_for_each_pair_of_partitions() -> None:
    pipeline = Pipeline("wide").source("a", 60, source(40)).operator("b", 60, {"a": ("full", "k")}, union)
    local = Local(pipeline, 2)
    blobs = local.run(local.order(0)).blobs
    assert [(blob.source, blob.target) for blob in blobs] == [(0, 0), (0, 1), (1, 0), (1, 1)]


def test_parcels_of_several_streams_share_a_blob() -> None:
    none = np.zeros(0, np.int64)
    parcels = [(3, Parcel(SCHEMA.empty_table(), none, none, none)), (1, sort_all(Random(50).read(0, 0)))]
    (a, first), (b, second) = unpack(pack(parcels))
    assert (a, b) == (3, 1)
    assert (first.table.num_rows, second.table) == (0, parcels[1][1].table)
    assert unpack(pack([])) == []


def sort_all(table: pa.Table) -> Parcel:
    (stream,) = Pipeline("p").source("a", 2, source()).operator("b", 3, {"a": ("full", "k")}, union).streams
    return sort(stream, {0: table}, SCHEMA, np.ones(3, bool))


# ---------------------------------------------------------------------------------------------------------- real nodes


def test_real_nodes_hold_the_same_versions_and_a_killed_one_is_reported() -> None:
    with launch(2, 1, 2, 64) as nodes:
        stores = {node.name: Store(node, "test") for node in nodes.cluster.nodes}
        memory, real = Local(SMALL, 2), Local(SMALL, 2, stores=lambda name: stores[name])
        real.homes = {task: f"n{i % 2 + 1}" for i, task in enumerate(real.tasks)}
        assert ran(memory, 6) == ran(real, 6)
        for (task, batch), (manifest, output) in memory.versions(1).items():
            assert stores[real.homes[task]].manifest(task, batch, 1) == manifest
            assert stores[real.homes[task]].outputs([(task, batch, 1)]) == [output]
        nodes.kill("n2")
        real.forget()
        result = real.run(real.order(6))
        assert set(result.down) == {"n2"}
        assert result.skipped == {(task, 6) for task, home in real.homes.items() if home == "n2"}
        for store in stores.values():
            store.close()
