"""The host: carries out what the machine says. Spark runs the jobs, nodes hold the state, threads beat hearts and replay.

One batch a trigger: Spark calls `_on_batch`, which asks the machine, runs the job, tells the machine what came of it, and returns
when the batch is published. A replay runs beside it in a thread of its own.
"""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from ppa_core.fidelity import compile_topology
from ppa_core.runtime.ingest import data_source
from ppa_core.runtime.jobs import Job, JobResult, execute
from ppa_core.runtime.layout import Layout
from ppa_core.runtime.machine import (
    AwaitReplay,
    BatchDone,
    BatchReady,
    Emit,
    Event,
    Graph,
    Machine,
    NodeLost,
    ReplayDone,
    RunBatch,
    StartReplay,
    Sweep,
)
from ppa_core.runtime.nodes import Node
from ppa_core.runtime.pipeline import Pipeline
from ppa_core.runtime.placement import place
from ppa_core.runtime.store import NodeDown, Store


@dataclass(frozen=True)
class Settings:
    """How a pipeline is run. Intervals of checkpoints and replicas are in batches."""

    partitions: int = 2
    checkpoint_every: int = 15
    sync_every: int = 1
    heartbeat: float = 1.0
    batches: int | None = None
    """Stop after so many; None runs until stopped."""


@dataclass(frozen=True)
class Record:
    """One published output: a later revision of the same batch replaces an earlier one."""

    batch: int
    revision: int
    status: str
    of: float
    missing: tuple[str, ...]
    table: pa.Table
    at: float = field(compare=False)
    """When it was published, by the clock of `time.time`."""


@dataclass(frozen=True)
class Note:
    """Something that happened, for whoever watches: what, when, and figures that belong to it."""

    kind: str
    at: float
    batch: int
    figures: dict[str, object] = field(default_factory=dict)


Watch = Callable[[Record | Note], None]


class Host:
    """A pipeline running on Spark and nodes. `run` returns when the last batch is accurate, or the host is stopped."""

    def __init__(
        self,
        spark: SparkSession,
        pipeline: Pipeline,
        nodes: tuple[Node, ...],
        plan: frozenset[str],
        settings: Settings,
        watch: Watch = lambda seen: None,
    ) -> None:
        self.spark, self.pipeline, self.nodes, self.settings, self.watch = spark, pipeline, nodes, settings, watch
        self.layout = Layout.of(pipeline, settings.partitions)
        self.topology = pipeline.topology()
        graph = Graph.of(self.topology)
        placement = place(graph.tasks, nodes, plan)
        self.machine = Machine(graph, placement, settings.checkpoint_every, settings.sync_every)
        self.run_id = f"{int(time.time() * 1000):x}"
        self.stores = {node.name: Store(node, self.run_id, timeout=0.5) for node in nodes}
        self.lock = threading.RLock()
        self.stopping = threading.Event()
        self.failure: BaseException | None = None
        self.next_run: RunBatch | None = None
        self.awaited: int | None = None
        self.replays: dict[int, threading.Thread] = {}
        self.sweeps: list[Sweep] = []
        self.outputs: dict[tuple[int, int], pa.Table] = {}
        self.revisions: dict[int, int] = {}
        self.measured: dict[str, float] = {}

    # --------------------------------------------------------------------------------------------------------------- run

    def run(self) -> None:
        """Run until the wanted batches are published and corrected, or until `stop`."""
        self.spark.dataSource.register(data_source(self.layout, self.pipeline.batch_seconds, self.settings.batches))
        threading.Thread(target=self._beat, daemon=True).start()
        with tempfile.TemporaryDirectory(prefix="ppa-offsets-") as offsets:
            query = (
                self.spark.readStream.format("ppa")
                .load()
                .writeStream.foreachBatch(self._on_batch)
                .option("checkpointLocation", str(Path(offsets)))
                .start()
            )
            try:
                while query.isActive and not self.stopping.is_set() and not self._ended():
                    self.stopping.wait(0.05)
            finally:
                self.stopping.set()
                query.stop()
        if self.failure:
            raise self.failure

    def stop(self) -> None:
        self.stopping.set()

    def _ended(self) -> bool:
        """Whether all wanted batches are published, and none of them is tentative."""
        with self.lock:
            if self.settings.batches is None or self.machine.head + 1 < self.settings.batches:
                return False
            return not self.machine.missing

    def _on_batch(self, rows: DataFrame, batch: int) -> None:
        try:
            self._batch(rows, batch)
        except BaseException as error:
            self.failure = error
            self.stopping.set()
            raise

    def _batch(self, rows: DataFrame, batch: int) -> None:
        if batch <= self.machine.head:
            return
        began = time.time()
        while self.next_run is None:
            self._tell(BatchReady(batch))
            if self.awaited is not None:
                thread = self.replays.get(self.awaited)
                self.awaited = None
                if thread:
                    thread.join()
        ran = 0
        while self.next_run:
            with self.lock:
                run, self.next_run = self.next_run, None
            result = execute(self.spark, self._job((run.order,)), rows)
            ran += 1
            self._batch_ran(run, result)
        figures: dict[str, object] = {"seconds": time.time() - began, "attempts": ran, **_figures(result)}
        self.watch(Note("batch", time.time(), batch, figures))
        self._sweep()

    def _batch_ran(self, run: RunBatch, result: JobResult) -> None:
        with self.lock:
            for node in result.down:
                self._lost(node, result.down[node])
            if self.machine.running is not run:
                return
            if result.skipped:  # a node failed and came back in between: what it held is gone all the same
                raise NodeDown(min(result.down, default="?"), f"tasks {sorted(result.skipped)[:3]} could not run")
            self.outputs[run.order.batch, run.order.attempt] = _joined(self.pipeline, result, run.order.batch)
            if not run.missing:
                seconds = self.pipeline.batch_seconds
                self.measured = {k: v for part in result.parts for flow in part.flows for k, v in flow.rates(seconds).items()}
            self._tell(BatchDone(run.order.attempt))

    def _replay(self, replay: StartReplay) -> None:
        try:
            began = time.time()
            result = execute(self.spark, self._job(replay.orders), None)
            with self.lock:
                for node in result.down:
                    self._lost(node, result.down[node])
                if self.machine.replaying is replay and not result.skipped:
                    for order in replay.orders:
                        if order.batch in self.machine.tentative:
                            self.outputs[order.batch, replay.attempt] = _joined(self.pipeline, result, order.batch)
                    figures: dict[str, object] = {"batches": len(replay.orders), "seconds": time.time() - began}
                    self.watch(Note("replayed", time.time(), replay.orders[-1].batch, figures))
                    self._tell(ReplayDone(replay.attempt))
        except BaseException as error:
            if not self.stopping.is_set():
                self.failure = error
                self.stopping.set()

    def _job(self, orders: tuple) -> Job:  # type: ignore[type-arg]
        return Job(self.layout, orders, self.nodes, self.run_id)

    # ------------------------------------------------------------------------------------------------------------ machine

    def _tell(self, event: Event) -> None:
        """Tell the machine what happened and do what it says."""
        with self.lock:
            for instruction in self.machine.handle(event):
                match instruction:
                    case RunBatch():
                        self.next_run = instruction
                    case StartReplay():
                        thread = threading.Thread(target=self._replay, args=(instruction,), daemon=True)
                        self.replays[instruction.attempt] = thread
                        thread.start()
                    case AwaitReplay(attempt):
                        self.awaited = attempt
                    case Emit():
                        self._emit(instruction)
                    case Sweep():
                        self.sweeps.append(instruction)

    def _lost(self, node: str, reason: str) -> None:
        with self.lock:
            if node in self.machine.lost or self.stopping.is_set():
                return
            before = self.machine.missing
            self.watch(Note("node lost", time.time(), self.machine.head, {"node": node, "reason": reason}))
            self._tell(NodeLost(node))
            missing = sorted(self.machine.missing - before)
            self.watch(Note("failover", time.time(), self.machine.head, {"node": node, "missing": missing}))

    def _emit(self, emit: Emit) -> None:
        table = self.outputs.pop((emit.batch, emit.attempt))
        revision = self.revisions.get(emit.batch, 0) + 1
        self.revisions[emit.batch] = revision
        if emit.status != "tentative":
            self.revisions.pop(emit.batch)
        of = self.fidelity(emit.missing)
        self.watch(Record(emit.batch, revision, emit.status, of, tuple(sorted(emit.missing)), table, time.time()))

    def fidelity(self, missing: frozenset[str]) -> float:
        """OF with these tasks missing, by the rates measured last."""
        if not missing:
            return 1.0
        compiled = compile_topology(self.pipeline.topology(self.measured))
        alive = np.ones(compiled.tasks, dtype=bool)
        alive[list(self.topology.numbers(missing))] = False
        return compiled.value(alive)

    # -------------------------------------------------------------------------------------------------------------- nodes

    def _beat(self) -> None:
        """Ask every node for a sign of life, again and again."""
        while not self.stopping.wait(self.settings.heartbeat):
            for name, store in self.stores.items():
                if name in self.machine.lost:
                    continue
                try:
                    store.ping()
                except NodeDown as error:
                    self._lost(name, error.reason)

    def _sweep(self) -> None:
        """Between batches: nothing that is being written now can be swept away."""
        with self.lock:
            sweeps, self.sweeps = self.sweeps, []
            if self.machine.missing:
                return
        for sweep in sweeps:
            for node in sweep.nodes - self.machine.lost:
                try:
                    self.stores[node].sweep(sweep.task, sweep.keep, sweep.outputs_from)
                except NodeDown as error:
                    self._lost(node, error.reason)


def _joined(pipeline: Pipeline, result: JobResult, batch: int) -> pa.Table:
    """The sinks' output of a batch as one table, with a column for the task."""
    tables = []
    for task, table in result.sinks(batch):
        tables.append(table.append_column("_sink", pa.array([task] * table.num_rows, pa.string())))
    return pa.concat_tables(tables, promote_options="permissive").combine_chunks() if tables else pa.table({})


def _figures(result: JobResult) -> dict[str, object]:
    stats = [stats for part in result.parts for stats in part.stats]
    return {
        "rows_in": sum(s.rows_in for s in stats),
        "step_cpu": sum(s.step_cpu + s.home_cpu for s in stats),
        "replica_cpu": sum(s.replica_cpu for s in stats),
        "checkpoint_cpu": sum(s.checkpoint_cpu for s in stats),
        "state_bytes": sum(s.state_bytes for s in stats),
    }
