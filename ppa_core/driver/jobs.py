"""A job: orders run as Spark stages. The rows between stages are packed blobs, one for a pair of partitions and a batch."""

from __future__ import annotations

import os
import pickle
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain

import numpy as np
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession

from ppa_core.engine.orders import Order
from ppa_core.nodes.store import Store
from ppa_core.pipeline.definition import StepFailed
from ppa_core.placement.nodes import Node
from ppa_core.worker.layout import Layout
from ppa_core.worker.packing import Blob
from ppa_core.worker.stage import StageResult, run_stage
from ppa_core.worker.state import SegmentCache

ROWS = "target int, source int, batch long, kind string, payload binary"
_SCHEMA = pa.schema(
    {"target": pa.int32(), "source": pa.int32(), "batch": pa.int64(), "kind": pa.string(), "payload": pa.binary()}
)
_CACHE_BYTES = 1 << 30
_LINGER = 0.5
_WARMING = 3
_REPLAY_NICE = 19
"""A replay runs in the time that batches leave: the lowest priority there is."""
TASK = "_task"
"""The column that says which source task a row of the input comes from: its number among all source tasks of the pipeline."""


@dataclass(frozen=True)
class Job:
    """Orders and all that workers need to run them."""

    layout: Layout
    orders: tuple[Order, ...]
    nodes: tuple[Node, ...]
    run: str


@dataclass
class JobResult:
    """What came of a job: the stages' results put together."""

    parts: list[StageResult] = field(default_factory=list)

    @property
    def down(self) -> dict[str, str]:
        """Nodes that did not answer, and the reason."""
        return {node: reason for part in self.parts for node, reason in part.down.items()}

    @property
    def lost(self) -> set[tuple[str, str]]:
        """Copies that are not where they should be, or were damaged there: node and task."""
        return {copy for part in self.parts for copy in part.lost}

    @property
    def skipped(self) -> set[tuple[str, int]]:
        """Tasks and batches that were ordered and did not run."""
        return {skipped for part in self.parts for skipped in part.skipped}

    def sinks(self, batch: int) -> list[tuple[str, pa.Table]]:
        """The output of the sink tasks for a batch, in the order of the tasks."""
        found = [(task, table) for part in self.parts for task, number, table in part.sinks if number == batch]
        return sorted(found, key=lambda one: (one[0].rpartition(".")[0], int(one[0].rpartition(".")[2])))


def execute(spark: SparkSession, job: Job, rows: DataFrame | None) -> JobResult:
    """Run a job: on the rows of the source that Spark read, or, without them, on sources that the workers read themselves.

    Raises StepFailed if a step or a source did: at once, for what is raised in a worker Spark would try again and again.
    """
    partitions = job.layout.partitions
    frame = spark.range(0, partitions, 1, partitions).toDF("target") if rows is None else rows
    for stage in range(job.layout.stages):
        if stage:
            frame = frame.repartitionById(partitions, frame.target)
        frame = frame.mapInArrow(_stage(job, stage, rows is not None), ROWS)
    table = frame.toArrow()
    result = JobResult([pickle.loads(payload) for payload in table.column("payload").to_pylist()])
    for part in result.parts:
        if part.failed is not None:
            raise part.failed
    return result


def warm_up(spark: SparkSession, job: Job) -> None:
    """Start worker processes for a batch and a replay beside it, and run a replay of nothing: the first real one must not wait
    for processes that start, nor for Spark to compile."""
    workers = 3 * job.layout.partitions

    def linger(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import ppa_core.worker.stage  # noqa: F401 - loading it is the purpose

        time.sleep(_LINGER)  # so that all of them are needed at once
        yield from batches

    spark.range(0, workers, 1, workers).mapInArrow(linger, "id long").toArrow()
    for _ in range(_WARMING):
        execute(spark, job, None)


def _stage(job: Job, stage: int, from_spark: bool) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        partition = context.partitionId()
        passed: list[tuple[int, int, int, str, bytes]] = []
        incoming: list[Blob] = []
        broken = False
        sources = _replayed(job.layout)
        if stage == 0:
            arrived = list(batches)
            if from_spark:
                sources = _arrived(job.layout, arrived)
        else:
            incoming, passed, broken = _received(batches)
        result = StageResult()
        if not broken:
            work = partial(run_stage, job.layout, stage, partition, job.orders, sources, incoming, _stores(job), _cache())
            try:
                result = work() if from_spark else _in_the_background(work)
            except StepFailed as error:
                result = StageResult(failed=error)
        yield _sent(job.layout, stage, partition, result, passed, broken)

    return run


def _in_the_background(work: Callable[[], StageResult]) -> StageResult:
    """Do work in a thread that gives way: a replay must not slow down the batches that arrive meanwhile."""

    def low() -> StageResult:
        with suppress(OSError, AttributeError):  # where threads have no priority of their own, do without
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _REPLAY_NICE)
        return work()

    with ThreadPoolExecutor(1) as thread:
        return thread.submit(low).result()


Row = tuple[int, int, int, str, bytes]


def _received(batches: Iterator[pa.RecordBatch]) -> tuple[list[Blob], list[Row], bool]:
    """Blobs for this stage, results of earlier stages on their way to the driver, and whether one of them went wrong.

    If so, the attempt does not count: what is left of it need not be run, and must not write what looks like a version.
    """
    rows = chain.from_iterable(zip(*(column.to_pylist() for column in batch.columns), strict=True) for batch in batches)
    blobs, results, broken = [], [], False
    for target, source, number, kind, payload in rows:
        if kind == "blob":
            blobs.append(Blob(source, target, number, payload))
        elif kind == "result":
            results.append((target, source, number, kind, payload))
        broken |= kind == "broken"
    return blobs, results, broken


def _sent(layout: Layout, stage: int, partition: int, result: StageResult, passed: list[Row], broken: bool) -> pa.RecordBatch:
    """What a stage sends on: blobs to the next one, results to the driver, and a greeting so that every partition has a row."""
    rows = [*passed]
    broken |= bool(result.skipped) or result.failed is not None
    if stage < layout.stages - 1:
        if not broken:
            rows += [(blob.target, blob.source, blob.batch, "blob", blob.data) for blob in result.blobs]
        greeting = "broken" if broken else "greeting"
        rows += [(target, partition, 0, greeting, b"") for target in range(layout.partitions)]
    told = replace(result, blobs=[], down=dict(result.down), lost=set(result.lost))
    rows.append((partition, partition, 0, "result", pickle.dumps(told, pickle.HIGHEST_PROTOCOL)))
    columns = list(zip(*rows, strict=True))
    return pa.record_batch(
        [pa.array(column, type=kind.type) for column, kind in zip(columns, _SCHEMA, strict=True)], schema=_SCHEMA
    )


def _replayed(layout: Layout) -> Callable[[str, int, int], pa.Table]:
    """Sources read by the worker."""

    def read(operator: str, task: int, batch: int) -> pa.Table:
        source = layout.pipeline.by_name[operator].source
        assert source is not None
        return source.read(task, batch)

    return read


def _arrived(layout: Layout, batches: list[pa.RecordBatch]) -> Callable[[str, int, int], pa.Table]:
    """Sources read by Spark: the rows of a task are neighbours, in the order of the tasks.

    What could not be read there is tried again here: what is wrong with it is then known with its task and batch.
    """
    first, again = source_tasks(layout), _replayed(layout)
    table = pa.Table.from_batches(batches) if batches else None
    ends = table.column(TASK).to_numpy() if table is not None else np.zeros(0, np.int32)
    unread = set((-1 - ends[ends < 0]).tolist())
    if table is not None and unread:
        table = table.filter(pa.array(ends >= 0))
        ends = ends[ends >= 0]

    def read(operator: str, task: int, batch: int) -> pa.Table:
        schema = layout.pipeline.by_name[operator].schema
        if first[operator] + task in unread:
            return again(operator, task, batch)
        if table is None:
            return schema.empty_table()
        low, high = np.searchsorted(ends, [first[operator] + task, first[operator] + task + 1])
        return table.slice(low, high - low).select(columns_of(layout, operator)).rename_columns(schema.names).cast(schema)

    return read


def source_tasks(layout: Layout) -> dict[str, int]:
    """The number of the first task of each source, counted over all sources."""
    first, count = {}, 0
    for operator in layout.pipeline.operators:
        if operator.source is not None:
            first[operator.name] = count
            count += operator.tasks
    return first


def columns_of(layout: Layout, source: str) -> list[str]:
    """The names that a source's columns have in Spark's rows; users' names may have characters that Spark takes for its own."""
    number = source_tasks(layout)[source]
    return [f"c{number}_{i}" for i in range(len(layout.pipeline.by_name[source].schema))]


# What a worker process keeps between jobs, by process: a forked worker must not share its parent's connections.
_kept: dict[int, tuple[SegmentCache, dict[tuple[str, str], Store]]] = {}


def _cache() -> SegmentCache:
    return _mine()[0]


def _stores(job: Job) -> Callable[[str], Store]:
    nodes = {node.name: node for node in job.nodes}

    def store(name: str) -> Store:
        known = _mine()[1]
        key = (job.run, nodes[name].url)
        if key not in known:
            known[key] = Store(nodes[name], job.run)
        return known[key]

    return store


def _mine() -> tuple[SegmentCache, dict[tuple[str, str], Store]]:
    return _kept.setdefault(os.getpid(), (SegmentCache(_CACHE_BYTES), {}))
