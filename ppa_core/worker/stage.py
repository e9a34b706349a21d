"""Runs one stage on one partition, for the batches of some orders. Independent of Spark.

For every batch, oldest first, and every operator of the stage, upstream first: read the previous version of the state, gather
inputs in the order of the upstream tasks, run the step, pass on the output. At the end of a batch the new versions are written
to the nodes given in the order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, field
from time import perf_counter, thread_time

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ppa_core.engine.meter import MeasuredFlow
from ppa_core.engine.orders import Order, TaskRun
from ppa_core.pipeline.definition import Context, PipelineOperator, Result, StepFailed
from ppa_core.pipeline.streams import Stream
from ppa_core.pipeline.tables import decode
from ppa_core.worker.layout import Layout
from ppa_core.worker.packing import Blob, Packer, Parcel, gather, sort, unpack
from ppa_core.worker.state import Held, NodeStores, SegmentCache, StoreLike, TaskSegments
from ppa_core.worker.writing import Made, TaskStats, write_all

Sources = Callable[[str, int, int], pa.Table]
"""Reads a source, given operator, task (from 0) and batch."""

_THREADS = 8
"""Number of nodes that are written to at the same time."""


@dataclass(frozen=True)
class StageResult:
    """The result of a stage on one partition.

    Tasks in `skipped` did not run, or could not be written or read, because of a node in `down` or a copy in `lost`; tasks
    downstream ran without their output. Then the whole attempt must be discarded. `failed` is the error of a step or source.
    """

    blobs: list[Blob] = field(default_factory=list)
    sinks: list[tuple[str, int, pa.Table]] = field(default_factory=list)
    """Output of sink tasks: task, batch, table."""
    stats: list[TaskStats] = field(default_factory=list)
    flows: list[MeasuredFlow] = field(default_factory=list)
    down: dict[str, str] = field(default_factory=dict)
    """Nodes that do not respond, with the reason."""
    lost: set[tuple[str, str]] = field(default_factory=set)
    """Copies that are missing or damaged: node and task."""
    skipped: set[tuple[str, int]] = field(default_factory=set)
    """Ordered tasks and batches that could not be run, written or read because a node or copy was missing."""
    failed: StepFailed | None = None


def run_stage(
    layout: Layout,
    stage: int,
    partition: int,
    orders: Sequence[Order],
    sources: Sources,
    incoming: Iterable[Blob],
    stores: Callable[[str], StoreLike],
    cache: SegmentCache,
) -> StageResult:
    """Run the orders, oldest first, for the tasks of a stage and partition.

    `incoming` is the data from earlier stages for this partition. `stores` returns the store of a node by name. Raises
    StepFailed for an error in a step or source; nodes that are down are reported in the result.
    """
    nodes = NodeStores(stores, cache)
    arrived: dict[int, list[Blob]] = {}
    for blob in incoming:
        arrived.setdefault(blob.batch, []).append(blob)
    with ThreadPoolExecutor(_THREADS) as threads:
        work = _Work(layout, stage, partition, sources, nodes, threads, StageResult(down=nodes.down, lost=nodes.lost))
        for order in orders:
            work.run(order, arrived.pop(order.batch, []))
    return work.result


@dataclass
class _Work:
    layout: Layout
    stage: int
    partition: int
    sources: Sources
    nodes: NodeStores
    threads: Executor
    result: StageResult
    held: dict[str, Held] = field(default_factory=dict)
    """The latest versions that this job wrote, by task."""

    def run(self, order: Order, arrived: Iterable[Blob]) -> None:
        """One batch."""
        packer, inbox = Packer(self.layout), self._open(arrived)
        batch = _Batch(order, self._running(order), inbox)
        batch.read = self._outputs_in_nodes(batch)
        for number, parcels in inbox.items():
            if self.layout.stage_of[self._stream(number).target] > self.stage:  # on its way to a later stage
                for parcel in parcels:
                    packer.add(number, parcel)
        for name in self.layout.operators(self.stage):
            operator = self.layout.pipeline.by_name[name]
            outputs = self._outputs(operator, batch)
            for number, stream in enumerate(self.layout.pipeline.streams):
                if stream.source == name and outputs:
                    parcel = sort(stream, outputs, operator.schema, batch.running[stream.target])
                    if self.layout.crosses(stream):
                        packer.add(number, parcel)
                    else:
                        inbox.setdefault(number, []).append(parcel)
            if not self.layout.pipeline.outputs[name]:
                self.result.sinks.extend((operator.task(task), order.batch, table) for task, table in outputs.items())
        self.result.blobs.extend(packer.blobs(self.partition, order.batch))
        self._write(batch.made)

    def _outputs(self, operator: PipelineOperator, batch: _Batch) -> dict[int, pa.Table]:
        """The outputs of an operator's tasks in this partition, by task, without missing tasks."""
        outputs: dict[int, pa.Table] = {}
        for task in self.layout.tasks(operator.name, self.partition):
            name = operator.task(task)
            if operator.source is not None:
                if self._wanted(operator, task, batch.running):
                    outputs[task] = self._read_source(operator, task, batch.order.batch)
            elif name in batch.order.runs:
                made = self._step(operator, task, batch)
                if made is not None:
                    outputs[task] = made.output
                    batch.made.append(made)
                else:
                    self.result.skipped.add((name, batch.order.batch))
            elif name in batch.read:
                outputs[task] = decode(batch.read[name])
            elif name in batch.order.outputs and self._wanted(operator, task, batch.running):
                self.result.skipped.add((name, batch.order.batch))
        return outputs

    def _step(self, operator: PipelineOperator, task: int, batch: _Batch) -> Made | None:
        """Run one task; None if its home node or its previous version cannot be reached."""
        name, number = operator.task(task), batch.order.batch
        run = batch.order.runs[name]
        before = self._before(name, run)
        if before is None:
            return None
        begin, cpu = perf_counter(), thread_time()
        parcels = [self._gather(stream, task, batch) for stream in operator.inputs]
        context = Context(operator.name, task, number, self.layout.pipeline.batch_seconds)
        state = TaskSegments(name, before, self.nodes)
        try:
            assert operator.step is not None
            result = operator.step(context, state, [parcel.table for parcel in parcels])
            output = _checked(result, operator)
        except Exception as error:
            if state.lost:
                return None
            raise StepFailed(operator.name, name, number, f"{type(error).__name__}: {error}") from error
        if state.lost:  # although the step caught the error
            return None
        rows = sum(parcel.table.num_rows for parcel in parcels)
        stats = TaskStats(name, number, rows, output.num_rows, perf_counter() - begin, step_cpu=thread_time() - cpu)
        return Made(name, number, batch.order.attempt, run, before, result, output, stats)

    def _before(self, name: str, run: TaskRun) -> Held | None:
        """The version that a task starts from."""
        if run.home in self.nodes.down:
            return None
        return self.nodes.held(name, run.before) if run.before else self.held.get(name)

    def _gather(self, stream: Stream, task: int, batch: _Batch) -> Parcel:
        """A task's input from one stream; the rows from each upstream task are recorded."""
        number = self.layout.pipeline.streams.index(stream)
        parcel = gather(batch.inbox.get(number, ()), task, self.layout.pipeline.by_name[stream.source].schema)
        self.result.flows.append(MeasuredFlow(batch.order.batch, stream, parcel.up, parcel.down, parcel.rows))
        return parcel

    def _read_source(self, operator: PipelineOperator, task: int, batch: int) -> pa.Table:
        try:
            return _fitting(self.sources(operator.name, task, batch), operator)
        except Exception as error:
            raise StepFailed(operator.name, operator.task(task), batch, f"{type(error).__name__}: {error}") from error

    def _outputs_in_nodes(self, batch: _Batch) -> dict[str, bytes]:
        """The outputs, read from nodes, of tasks of this partition that do not run but whose output is needed."""
        wanted = {}
        for name in self.layout.operators(self.stage):
            operator = self.layout.pipeline.by_name[name]
            for task in self.layout.tasks(name, self.partition):
                version = batch.order.outputs.get(operator.task(task))
                if version is not None and self._wanted(operator, task, batch.running):
                    wanted[operator.task(task)] = version
        return self.nodes.outputs(wanted)

    def _wanted(self, operator: PipelineOperator, task: int, running: Mapping[str, NDArray[np.bool_]]) -> bool:
        """Whether the output of this task is the input of a running task, or an output of the pipeline."""
        streams = self.layout.pipeline.outputs[operator.name]
        targets = ((stream.target, stream.downstream(task)) for stream in streams)
        return not streams or any(running[name][tasks.start : tasks.stop].any() for name, tasks in targets)

    def _write(self, made: Sequence[Made]) -> None:
        for one, (held, stats) in zip(made, write_all(made, self.nodes, self.threads), strict=True):
            self.result.stats.append(stats)
            if held is None:
                self.held.pop(one.task, None)
                self.result.skipped.add((one.task, one.batch))
            else:
                self.held[one.task] = held

    def _open(self, arrived: Iterable[Blob]) -> dict[int, list[Parcel]]:
        """Parcels by the number of their stream."""
        inbox: dict[int, list[Parcel]] = {}
        for blob in arrived:
            for number, parcel in unpack(blob.data):
                inbox.setdefault(number, []).append(parcel)
        return inbox

    def _running(self, order: Order) -> dict[str, NDArray[np.bool_]]:
        """By operator, which of its tasks run."""
        running = {operator.name: np.zeros(operator.tasks, bool) for operator in self.layout.pipeline.operators}
        for task in order.runs:
            name, _, number = task.rpartition(".")
            running[name][int(number) - 1] = True
        return running

    def _stream(self, number: int) -> Stream:
        return self.layout.pipeline.streams[number]


@dataclass
class _Batch:
    """A batch that is being processed."""

    order: Order
    running: dict[str, NDArray[np.bool_]]
    inbox: dict[int, list[Parcel]]
    read: dict[str, bytes] = field(default_factory=dict)
    made: list[Made] = field(default_factory=list)


def _checked(result: Result, operator: PipelineOperator) -> pa.Table:
    if not isinstance(result, Result):
        raise TypeError(f"the step returned {type(result).__name__}, not a Result")
    for name, table in result.add.items():
        if not isinstance(table, pa.Table):
            raise TypeError(f"segment {name!r} is {type(table).__name__}, not a pyarrow.Table")
    return _fitting(result.output, operator)


def _fitting(table: pa.Table, operator: PipelineOperator) -> pa.Table:
    """The table without metadata. Raises TypeError if its columns are not as declared."""
    if not isinstance(table, pa.Table):
        raise TypeError(f"the output is {type(table).__name__}, not a pyarrow.Table")
    if not table.schema.equals(operator.schema):
        raise TypeError(
            f"the output has the columns ({_columns(table.schema)}), but the schema has ({_columns(operator.schema)})"
        )
    return table.cast(operator.schema) if table.schema.metadata or operator.schema.metadata else table


def _columns(schema: pa.Schema) -> str:
    return ", ".join(f"{column.name}: {column.type}" for column in schema)
