"""The host: carries out what the machine says. Spark runs the jobs, nodes hold the state, threads beat hearts and replay.

One batch a trigger: Spark calls `_on_batch`, which asks the machine, runs the job, tells the machine what came of it, and
returns when the batch is published. A replay runs beside it in a thread of its own.
"""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from ppa_core.errors import PpaError
from ppa_core.fidelity import compile_topology
from ppa_core.runtime import ledger
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
    Instruction,
    Machine,
    NodeLost,
    ReplayDone,
    Restarted,
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
    interval: float | None = None
    """Seconds between batches, if not the pipeline's; 0 reads as fast as it goes."""


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


RESTARTS = 5
"""How often the streaming query is started again after it broke off."""

MISSES = 3
"""Heartbeats in a row that a node may be too slow to answer before it is taken for dead."""

Watch = Callable[[Record | Note], None]


def new_run_id() -> str:
    """A name that no other run has: nodes keep the runs' data apart by it."""
    return f"{int(time.time() * 1000):x}"


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
        run_id: str | None = None,
        offsets: Path | None = None,
    ) -> None:
        self.spark, self.pipeline, self.nodes, self.settings, self.watch = spark, pipeline, nodes, settings, watch
        self.layout = Layout.of(pipeline, settings.partitions)
        self.topology = pipeline.topology()
        graph = Graph.of(self.topology)
        placement = place(graph.tasks, nodes, plan)
        self.machine = Machine(graph, placement, settings.checkpoint_every, settings.sync_every)
        self.run_id = run_id or new_run_id()
        self.offsets = offsets
        self.saved = 0
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
        self.failed_at: int | None = None
        """The last batch before tasks were lost: when they are back at it, they are recovered, as the paper measures it."""

    # --------------------------------------------------------------------------------------------------------------- run

    def run(self) -> None:
        """Run until the wanted batches are published and corrected, or until `stop`."""
        interval = self.pipeline.batch_seconds if self.settings.interval is None else self.settings.interval
        self.spark.dataSource.register(data_source(self.layout, interval, self.settings.batches))
        threading.Thread(target=self._beat, daemon=True).start()
        self._resume()
        with tempfile.TemporaryDirectory(prefix="ppa-offsets-") as fresh:
            for _ in range(RESTARTS):
                self._stream(str(self.offsets or fresh))
                if self.failure or self.stopping.is_set() or self._ended():
                    break
                self.watch(Note("stream restarted", time.time(), self.machine.head))
            else:
                self.failure = PpaError(f"the stream broke off {RESTARTS} times, after batch {self.machine.head} at last")
        self.stopping.set()
        if self.failure:
            raise self.failure

    def _stream(self, offsets: str) -> None:
        """Run the streaming query until its work is done, it is stopped, or breaks off: a process of Spark's own may die."""
        stream = self.spark.readStream.format("ppa").load()
        query = stream.writeStream.foreachBatch(self._on_batch).option("checkpointLocation", offsets).start()
        try:
            while query.isActive and not self.stopping.is_set() and not self._ended():
                self.stopping.wait(0.05)
        finally:
            query.stop()

    def stop(self) -> None:
        self.stopping.set()

    def _resume(self) -> None:
        """Go on where a driver of the same run died, if there was one."""
        kept = ledger.newest(self.stores.values())
        if kept:
            self.saved, text = kept
            ledger.restore(self.machine, text)
            self.revisions = dict.fromkeys(self.machine.tentative, 1)
            self.watch(Note("resumed", time.time(), self.machine.head))
            self._tell(Restarted())

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
        while self.next_run is not None:
            with self.lock:
                run, self.next_run = self.next_run, None
            result = execute(self.spark, self._job((run.order,)), rows)
            ran += 1
            self._batch_ran(run, result)
        figures: dict[str, object] = {"seconds": time.time() - began, "attempts": ran, **_figures(self.pipeline, result)}
        self.watch(Note("batch", time.time(), batch, figures))
        self._sweep()

    def _batch_ran(self, run: RunBatch, result: JobResult) -> None:
        with self.lock:
            self._lost(result.down)
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
            self.spark.addTag(tag := f"replay-{replay.attempt}")
            result = execute(self.spark, self._job(replay.orders), None)
            self.spark.removeTag(tag)
            with self.lock:
                self._lost(result.down)
                if self.machine.replaying is replay and not result.skipped:
                    for order in replay.orders:
                        if order.batch in self.machine.tentative:
                            self.outputs[order.batch, replay.attempt] = _joined(self.pipeline, result, order.batch)
                    figures: dict[str, object] = {"batches": len(replay.orders), "seconds": time.time() - began}
                    self.watch(Note("replayed", time.time(), replay.orders[-1].batch, figures))
                    self._tell(ReplayDone(replay.attempt))
                    if self.failed_at is not None and self.machine.good >= self.failed_at:
                        self.watch(Note("recovered", time.time(), self.machine.good, {"tasks": sorted(replay.orders[-1].runs)}))
                        self.failed_at = None
        except Exception as error:  # noqa: BLE001 - it ends a thread; `run` raises it
            if not self.stopping.is_set() and self.machine.replaying is replay:
                self.failure = error
                self.stopping.set()

    def _job(self, orders: tuple) -> Job:  # type: ignore[type-arg]
        return Job(self.layout, orders, self.nodes, self.run_id)

    # ------------------------------------------------------------------------------------------------------------ machine

    def _tell(self, event: Event) -> None:
        """Tell the machine what happened and do what it says."""
        with self.lock:
            self._obey(self.machine.handle(event))
            if not isinstance(event, BatchReady):
                self._save()

    def _obey(self, instructions: Sequence[Instruction]) -> None:
        for instruction in instructions:
            match instruction:
                case RunBatch():
                    self.next_run = instruction
                case StartReplay():
                    for overtaken in self.replays:
                        self.spark.interruptTag(f"replay-{overtaken}")
                    thread = threading.Thread(target=self._replay, args=(instruction,), daemon=True)
                    self.replays[instruction.attempt] = thread
                    thread.start()
                case AwaitReplay(attempt):
                    self.awaited = attempt
                case Emit():
                    self._emit(instruction)
                case Sweep():
                    self.sweeps.append(instruction)

    def _save(self) -> None:
        """Write the ledger: a driver that is started again goes on from here."""
        self.saved += 1
        alive = [store for name, store in sorted(self.stores.items(), reverse=True) if name not in self.machine.lost]
        down = ledger.save(alive, self.saved, ledger.dump(self.machine))
        if down:
            self._lost({error.node: error.reason for error in down})

    def _lost(self, down: dict[str, str]) -> None:
        """Tell the machine of nodes that do not answer. Nodes fail together: all others are asked before anything is done."""
        with self.lock:
            if self.stopping.is_set() or not set(down) - self.machine.lost:
                return
            others = self._silent(set(down) | self.machine.lost)
            down = {**down, **{name: reason for name, reason in others.items() if "efused" in reason or "reset" in reason}}
            wanted: list[Instruction] = []
            for node in sorted(set(down) - self.machine.lost):
                before = self.machine.missing
                homes = sorted(task for task, home in self.machine.placement.primaries.items() if home == node)
                self.watch(Note("node lost", time.time(), self.machine.head, {"node": node, "reason": down[node]}))
                wanted += self.machine.handle(NodeLost(node))
                figures: dict[str, object] = {"node": node, "lost": homes, "missing": sorted(self.machine.missing - before)}
                self.watch(Note("failover", time.time(), self.machine.head, figures))
            if self.machine.missing:
                self.failed_at = self.machine.head
            self._obey([i for i in wanted if i is self.machine.running or i is self.machine.replaying])
            self._save()

    def _silent(self, known: set[str]) -> dict[str, str]:
        """The other nodes that do not answer either, and why."""
        found = {}
        for name, store in self.stores.items():
            if name not in known:
                try:
                    store.ping()
                except NodeDown as error:
                    found[name] = error.reason
        return found

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
        """Ask every node for a sign of life, again and again. One that refuses is lost; a slow one is asked `MISSES` times."""
        missed: dict[str, int] = {}
        while not self.stopping.wait(self.settings.heartbeat):
            for name, reason in self._silent(set(self.machine.lost)).items():
                missed[name] = missed.get(name, 0) + (1 if "imed out" in reason or "imeout" in reason else MISSES)
                if missed[name] >= MISSES:
                    self._lost({name: reason})
            missed = {name: count for name, count in missed.items() if name not in self.machine.lost}

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
                    self._lost({node: error.reason})


def _joined(pipeline: Pipeline, result: JobResult, batch: int) -> pa.Table:
    """The sinks' output of a batch as one table, with a column for the task; empty if every sink is missing."""
    sinks = [operator for operator in pipeline.operators if not pipeline.outputs[operator.name]]
    tables = [operator.schema.empty_table().append_column("_sink", pa.array([], pa.string())) for operator in sinks]
    for task, table in result.sinks(batch):
        tables.append(table.append_column("_sink", pa.array([task] * table.num_rows, pa.string())))
    return pa.concat_tables(tables, promote_options="permissive").combine_chunks()


def _figures(pipeline: Pipeline, result: JobResult) -> dict[str, object]:
    stats = [stats for part in result.parts for stats in part.stats]
    first = {o.name for o in pipeline.operators if any(pipeline.by_name[s.source].source is not None for s in o.inputs)}
    return {
        "source_rows": sum(s.rows_in for s in stats if s.task.rpartition(".")[0] in first),
        "rows_in": sum(s.rows_in for s in stats),
        "step_cpu": sum(s.step_cpu + s.home_cpu for s in stats),
        "replica_cpu": sum(s.replica_cpu for s in stats),
        "checkpoint_cpu": sum(s.checkpoint_cpu for s in stats),
        "state_bytes": sum(s.state_bytes for s in stats),
    }
