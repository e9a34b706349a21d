"""Jobs: orders run as Spark stages. Rows between stages are packed blobs, one per pair of partitions and batch."""

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
from ppa_core.nodes.store import SOCKET_TIMEOUT, Store
from ppa_core.pipeline.definition import StepFailed
from ppa_core.placement.nodes import Node
from ppa_core.safety.owned import temporary
from ppa_core.worker.layout import Layout
from ppa_core.worker.packing import Blob
from ppa_core.worker.stage import StageResult, run_stage
from ppa_core.worker.state import SegmentCache

ROWS = "target int, source int, batch long, kind string, payload binary"
_SCHEMA = pa.schema(
    {"target": pa.int32(), "source": pa.int32(), "batch": pa.int64(), "kind": pa.string(), "payload": pa.binary()}
)
_CACHE_BYTES = 1 << 30
_LINGER_SECONDS = 0.5
_WARM_UP_JOBS = 3
_REPLAY_NICE = 19
"""The lowest priority: replays must not slow down live batches."""
TASK = "_task"
"""The column with the source task of an input row: its number among all source tasks of the pipeline."""


@dataclass(frozen=True)
class Job:
    """Orders and everything that workers need to run them."""

    layout: Layout
    orders: tuple[Order, ...]
    nodes: tuple[Node, ...]
    run: str
    timeout: float = SOCKET_TIMEOUT
    """Seconds that a worker waits for a node's answer."""


@dataclass
class JobResult:
    """The outcome of a job: the combined results of its stages."""

    parts: list[StageResult] = field(default_factory=list)

    @property
    def down(self) -> dict[str, str]:
        """Nodes that did not answer, with the reasons."""
        return {node: reason for part in self.parts for node, reason in part.down.items()}

    @property
    def lost(self) -> set[tuple[str, str]]:
        """Copies that are missing or damaged: node and task."""
        return {copy for part in self.parts for copy in part.lost}

    @property
    def skipped(self) -> set[tuple[str, int]]:
        """Tasks and batches that should have run and did not."""
        return {skipped for part in self.parts for skipped in part.skipped}

    def sinks(self, batch: int) -> list[tuple[str, pa.Table]]:
        """The output of the sink tasks for a batch, ordered by task."""
        found = [(task, table) for part in self.parts for task, number, table in part.sinks if number == batch]
        return sorted(found, key=lambda one: (one[0].rpartition(".")[0], int(one[0].rpartition(".")[2])))


def execute(spark: SparkSession, job: Job, rows: DataFrame | None) -> JobResult:
    """Run a job on the rows that Spark read from the sources; without `rows`, the workers read the sources themselves.

    Raises StepFailed at once if a step or a source failed; an exception inside a Spark task would be retried first.
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
    """Start the worker processes for a batch and a parallel replay, and run an empty replay, so that the first real one does
    not wait for processes to start or for Spark to compile."""
    workers = 3 * job.layout.partitions

    def linger(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import ppa_core.worker.stage  # noqa: F401 - loading it is the purpose

        time.sleep(_LINGER_SECONDS)  # so that all of them are needed at once
        yield from batches

    spark.range(0, workers, 1, workers).mapInArrow(linger, "id long").toArrow()
    for _ in range(_WARM_UP_JOBS):
        execute(spark, job, None)
    _warm_up_stream(spark, job)


def _warm_up_stream(spark: SparkSession, job: Job) -> None:
    """Run a few batches without rows, so that the first real one is not much slower than the others."""
    done = threading.Semaphore(0)

    def run(rows: DataFrame, number: int) -> None:
        execute(spark, job, rows)
        done.release()

    with temporary("ppa-warm-up-") as folder:
        stream = spark.readStream.format("ppa").options(empty=True).load()
        query = stream.writeStream.foreachBatch(run).option("checkpointLocation", str(folder)).start()
        for _ in range(_WARM_UP_JOBS):
            while not done.acquire(timeout=_LINGER_SECONDS) and query.isActive:
                pass
        query.stop()


def _stage(job: Job, stage: int, from_spark: bool) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        partition = context.partitionId()
        passed: list[tuple[int, int, int, str, bytes]] = []
        incoming: list[Blob] = []
        broken = False
        sources = _read_by_worker(job.layout)
        if stage == 0:
            arrived = list(batches)
            if from_spark:
                sources = _read_by_spark(job.layout, arrived)
        else:
            incoming, passed, broken = _received(batches)
        result = StageResult()
        if not broken:
            work = partial(run_stage, job.layout, stage, partition, job.orders, sources, incoming, _stores(job), _cache())
            try:
                result = work() if from_spark else _at_low_priority(work)
            except StepFailed as error:
                result = StageResult(failed=error)
        yield _sent(job.layout, stage, partition, result, passed, broken)

    return run


def _at_low_priority(work: Callable[[], StageResult]) -> StageResult:
    """Do the work in a thread with low priority: a replay must not slow down live batches."""

    def low() -> StageResult:
        with suppress(OSError, AttributeError):  # the platform has no priorities for threads
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _REPLAY_NICE)
        return work()

    with ThreadPoolExecutor(1) as thread:
        return thread.submit(low).result()


Row = tuple[int, int, int, str, bytes]


def _received(batches: Iterator[pa.RecordBatch]) -> tuple[list[Blob], list[Row], bool]:
    """Blobs for this stage, results of earlier stages for the driver, and whether an earlier stage failed.

    If so, the attempt does not count: the rest of it is not run and must not write any version.
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
    """The rows that a stage sends: blobs to the next stage, results to the driver, and a marker so that every partition gets
    a row."""
    rows = [*passed]
    broken |= bool(result.skipped) or result.failed is not None
    if stage < layout.stages - 1:
        if not broken:
            rows += [(blob.target, blob.source, blob.batch, "blob", blob.data) for blob in result.blobs]
        marker = "broken" if broken else "marker"
        rows += [(target, partition, 0, marker, b"") for target in range(layout.partitions)]
    sent = replace(result, blobs=[], down=dict(result.down), lost=set(result.lost))
    rows.append((partition, partition, 0, "result", pickle.dumps(sent, pickle.HIGHEST_PROTOCOL)))
    columns = list(zip(*rows, strict=True))
    return pa.record_batch(
        [pa.array(column, type=kind.type) for column, kind in zip(columns, _SCHEMA, strict=True)], schema=_SCHEMA
    )


def _read_by_worker(layout: Layout) -> Callable[[str, int, int], pa.Table]:
    """Sources that the worker reads itself."""

    def read(operator: str, task: int, batch: int) -> pa.Table:
        source = layout.pipeline.by_name[operator].source
        assert source is not None
        return source.read(task, batch)

    return read


def _read_by_spark(layout: Layout, batches: list[pa.RecordBatch]) -> Callable[[str, int, int], pa.Table]:
    """Sources that Spark has read: rows are grouped and ordered by task.

    What Spark could not read is read again here, so that an error names its task and batch.
    """
    first, again = source_tasks(layout), _read_by_worker(layout)
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
    """The names of a source's columns in Spark's rows; users' names may contain characters with a meaning in Spark."""
    number = source_tasks(layout)[source]
    return [f"c{number}_{i}" for i in range(len(layout.pipeline.by_name[source].schema))]


# Kept between jobs, by process id: a forked worker must not share its parent's connections.
_kept: dict[int, tuple[SegmentCache, dict[tuple[str, str], Store]]] = {}


def _cache() -> SegmentCache:
    return _of_this_process()[0]


def _stores(job: Job) -> Callable[[str], Store]:
    nodes = {node.name: node for node in job.nodes}

    def store(name: str) -> Store:
        known = _of_this_process()[1]
        key = (job.run, nodes[name].url)
        if key not in known:
            known[key] = Store(nodes[name], job.run, timeout=job.timeout)
        return known[key]

    return store


def _of_this_process() -> tuple[SegmentCache, dict[tuple[str, str], Store]]:
    return _kept.setdefault(os.getpid(), (SegmentCache(_CACHE_BYTES), {}))
