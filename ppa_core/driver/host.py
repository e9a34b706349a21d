"""The host: carries out what the machine says. Spark runs the jobs, nodes hold the state, threads beat hearts and replay.

One batch a trigger: Spark calls `_on_batch`, which asks the machine, runs the job, tells the machine what came of it, and
returns when the batch is published. A replay runs beside it in a thread of its own.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from ppa_core.driver.ingest import data_source
from ppa_core.driver.jobs import Job, JobResult, execute, warm_up
from ppa_core.driver.records import Note, PublishedOutput, Settings, Watch
from ppa_core.engine.events import (
    AwaitReplay,
    BatchDone,
    BatchReady,
    CopyLost,
    Drain,
    Emit,
    Event,
    Instruction,
    JobFailed,
    NodeBack,
    NodeLost,
    PlanChanged,
    ReplayDone,
    Restarted,
    RunBatch,
    StartReplay,
    Sweep,
)
from ppa_core.engine.ledger import dump, restore
from ppa_core.engine.machine import Machine
from ppa_core.engine.meter import Meter
from ppa_core.engine.orders import Order
from ppa_core.engine.predictions import fidelity
from ppa_core.engine.recovery import Graph
from ppa_core.engine.standing import MeasuredRates, Standing
from ppa_core.errors import BadInput, PpaError
from ppa_core.nodes.health import NodeHealth
from ppa_core.nodes.ledger import newest as newest_ledger
from ppa_core.nodes.ledger import save as save_ledger
from ppa_core.nodes.store import NodeDown, NodeSlow, Store
from ppa_core.pipeline.definition import Pipeline, StepFailed
from ppa_core.pipeline.sources.live import LiveSource, RefusedRows
from ppa_core.pipeline.tables import digest
from ppa_core.placement.nodes import Node
from ppa_core.placement.place import Placement, place
from ppa_core.safety.names import check_run
from ppa_core.safety.owned import temporary
from ppa_core.terminal import logs
from ppa_core.topology import Topology
from ppa_core.worker.layout import Layout

_log = logging.getLogger(__name__)

__all__ = ["Host", "Note", "PublishedOutput", "Settings", "Watch", "new_run_id"]

RESTARTS = 5
"""How often the streaming query is started again after it broke off before its first batch since."""

FAILURES = 5
"""How often in a row a job may fail for no known reason."""

RATES_EVERY = 10
"""Batches from one look at the rates, whether they are to be published, to the next."""
MOST_RATES = 20_000
"""Substreams; the rates of a topology with more are not published: those it was declared with are used for predictions."""

_STORE_TIMEOUT = 2.0
_NAMED = 3
"""Refused rows of a batch that are told with their reasons; all are counted."""
_TOGETHER = 0.1
"""Seconds after the first sign of a failure in which nodes that fail with it are gone too."""


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
        self.live = [operator.source for operator in pipeline.operators if isinstance(operator.source, LiveSource)]
        self.topology = pipeline.topology()
        graph = Graph.of(self.topology, {operator.name: operator.lookback_batches for operator in pipeline.operators})
        placement = place(graph.tasks, nodes, plan)
        self.machine = Machine(graph, placement, settings.checkpoint_every, settings.sync_every)
        self.run_id = check_run(run_id or new_run_id())
        self.offsets = offsets
        self.saved = 0
        self.stores = {node.name: Store(node, self.run_id, timeout=_STORE_TIMEOUT) for node in nodes}
        self.health = NodeHealth(self.stores)
        self.kept: dict[str, Any] = {}
        """What operators asked for, and a restarted driver must know again."""
        self.lock = threading.RLock()
        self.begun = threading.Event()
        """Set once the nodes are taken into use: before, nothing can be asked of the host."""
        self.stopping = threading.Event()
        self.failure: BaseException | None = None
        self.failures = 0
        self.dropped: set[tuple[str, str]] = set()
        """Damaged copies (node, task) that were removed since a batch last ran whole."""
        self.next_run: RunBatch | None = None
        self.awaited: int | None = None
        self.patience = 0.0
        """Seconds more that a batch waits for a replay that is about to end."""
        self.published = time.time()
        self.took = 0.0
        """When the last batch was published, and how long it took."""
        self.replays: dict[int, threading.Thread] = {}
        self.sweeps: list[Sweep] = []
        self.outputs: dict[tuple[int, int], pa.Table] = {}
        self.revisions: dict[int, int] = {}
        self.meter = Meter(self.pipeline)
        self.after_batch: Callable[[int], None] = lambda batch: None
        self.going = threading.Event()
        """Clear while the run is paused."""
        self.going.set()
        self.banned: frozenset[str] = frozenset()
        """Nodes that an operator has declared dead: they are not used again until told to."""
        self.placed: Placement | None = None
        self.standing: Standing | None = None
        self.rates: MeasuredRates | None = None
        """What was published last."""
        self.failed_at: int | None = None
        """The last batch before tasks were lost: when they are back at it, they are recovered, as the paper measures it."""

    # --------------------------------------------------------------------------------------------------------------- run

    def run(self) -> None:
        """Run until the wanted batches are published and corrected, or until `stop`. Raises what made it end."""
        interval = self.pipeline.batch_seconds if self.settings.interval is None else self.settings.interval
        self.spark.dataSource.register(data_source(self.layout, interval, self.settings.batches))
        warm_up(self.spark, Job(self.layout, (), self.nodes, self.run_id))
        self._resume()
        self.begun.set()
        beating = threading.Thread(target=self._beat, daemon=True)
        beating.start()
        with temporary("ppa-offsets-") as fresh:
            self._stream_on(str(self.offsets or fresh))
        self.stopping.set()
        beating.join()
        if self.failure:
            raise self.failure
        if self._ended():
            self._clean_up()

    def stop(self) -> None:
        """Let `run` return soon. What is in the nodes stays: the run can be gone on with."""
        self.stopping.set()

    def _stream_on(self, offsets: str) -> None:
        """Run the streaming query, again and again if it breaks off, until all is done or nothing goes any more."""
        restarts = 0
        while restarts < RESTARTS:
            before = self.machine.head
            reason = self._stream(offsets)
            if self.failure or self.stopping.is_set() or self._ended():
                return
            restarts = restarts + 1 if self.machine.head == before else 1
            self.watch(Note("stream restarted", time.time(), self.machine.head, {"reason": reason}))
        self.failure = PpaError(f"the stream broke off {RESTARTS} times after batch {self.machine.head}: {reason}")

    def _stream(self, offsets: str) -> str:
        """Run the streaming query until its work is done, it is stopped, or breaks off: a process of Spark's own may die."""
        stream = self.spark.readStream.format("ppa").load()
        query = stream.writeStream.foreachBatch(self._on_batch).option("checkpointLocation", offsets).start()
        try:
            while query.isActive and not self.stopping.is_set() and not self._ended():
                self.stopping.wait(0.05)
            error = query.exception()
            return str(error).strip().splitlines()[0][:300] if error else "no reason given"
        finally:
            query.stop()

    def _resume(self) -> None:
        """Take the nodes into use; go on where a driver of the same run died, if there was one."""
        kept = newest_ledger(self.stores.values())
        if kept is None:
            self._check_fresh()
            for name in set(self.stores) - set(self.health.renewed(self.stores)):
                self._lost({name: "it does not answer"})
            return
        self.saved, text = kept
        known = json.loads(text)
        if known["pipeline"] != self.shape:
            what = "was begun with another pipeline: other operators, tasks, columns or windows"
            raise BadInput(f"run {self.run_id!r}", f"{what}; go on with that one, or take another name")
        restore(self.machine, text)
        self.banned, self.kept = frozenset(known["banned"]), known["kept"]
        if known["paused"]:
            self.going.clear()
        self.revisions = dict.fromkeys(self.machine.tentative, 1)
        found: dict[str, object] = {
            "missing": sorted(self.machine.missing),
            "tentative": sorted(self.machine.tentative),
            "lost": sorted(self.machine.lost),
        }
        self.watch(Note("resumed", time.time(), self.machine.head, found))
        self._tell(Restarted())
        self._lost(self.health.dead(set(self.stores) - self.machine.lost))

    def _check_fresh(self) -> None:
        """Refuse to begin anew where Spark would go on in the middle: the nodes that knew the state are gone."""
        if self.offsets is not None and any((self.offsets / "commits").glob("[0-9]*")):
            reason = "it has offsets of a run that no node knows any more; name another output folder"
            raise BadInput(str(self.offsets.parent), reason)

    @property
    def shape(self) -> str:
        """What a run can only go on with if it is still the same."""
        parts = [
            (o.name, o.tasks, str(o.schema), o.lookback_batches, [(i.source, i.partitioning, i.key) for i in o.inputs])
            for o in self.pipeline.operators
        ]
        return digest(repr((self.pipeline.batch_seconds, parts)).encode())

    def _ended(self) -> bool:
        """Whether all wanted batches are published, and none of them is tentative."""
        with self.lock:
            if self.settings.batches is None or self.machine.head + 1 < self.settings.batches:
                return False
            return not self.machine.missing

    def _clean_up(self) -> None:
        """Leave nothing in the nodes: they may be the user's, and the run is over."""
        for name in set(self.stores) - self.machine.lost:
            try:
                self.stores[name].forget()
            except NodeDown:
                _log.info("node %s does not answer: what it holds of the run stays there", name, exc_info=True)

    # ------------------------------------------------------------------------------------------------------------- batches

    def _on_batch(self, rows: DataFrame, batch: int) -> None:
        try:
            with logs.about(batch=batch):
                self._batch(rows, batch)
        except BaseException as error:
            _log.info("the run ends in batch %d", batch, exc_info=True, extra={"batch": batch})
            self.failure = self.failure or error
            self.stopping.set()
            raise

    def _batch(self, rows: DataFrame, batch: int) -> None:
        if batch <= self.machine.head or self.stopping.is_set():
            return
        while not self.going.wait(0.1) and not self.stopping.is_set():
            pass
        self._seal(batch)
        began = time.time()
        self._make_ready(batch)
        ran, result, order = 0, JobResult(), None
        while self.next_run is not None and not self.stopping.is_set():
            with self.lock:
                run, self.next_run = self.next_run, None
            ran += 1
            with logs.about(attempt=run.order.attempt):
                found = self._execute((run.order,), rows)
                if found is not None:
                    result, order = found, run.order
                    self._batch_ran(run, result)
        if self.stopping.is_set() or order is None:
            return
        self.published, self.took = time.time(), time.time() - began
        figures: dict[str, object] = {"seconds": self.took, "attempts": ran, **_figures(self.pipeline, result)}
        figures["stats"] = [stats for part in result.parts for stats in part.stats]
        figures["checkpointed"] = [task for task, made in order.runs.items() if made.checkpoint]
        figures["synced"] = [task for task, made in order.runs.items() if made.replica]
        if self.live:
            refused = sum((source.refused(batch) for source in self.live), RefusedRows())
            figures["refused"] = refused.count
            figures["refusals"] = [f"{one.file}: {one.line}: {one.reason}" for one in refused.first[:_NAMED]]
        self.watch(Note("batch", time.time(), batch, figures))
        self._tell_rates(batch)
        self._sweep()
        self._release()
        self.after_batch(batch)

    def _seal(self, batch: int) -> None:
        """Have live sources fix what belongs to a batch; one whose medium does not answer is asked until it does."""
        for source in self.live:
            while not self.stopping.is_set() and not source.seal(batch):
                self.watch(Note("source silent", time.time(), self.machine.head))
                self.stopping.wait(self.pipeline.batch_seconds)

    def _release(self) -> None:
        """Let live sources forget what no replay can want any more."""
        reach = None if self.settings.keep_input else self.machine.graph.reach()
        if reach is not None and not self.machine.missing and self.machine.head % 10 == 0:
            for source in self.live:
                source.release(max(0, self.machine.good - reach))

    def _make_ready(self, batch: int) -> None:
        """Tell the machine until it gives an order: it may want a short replay to end first.

        The wait has an end, for output must go on: as long as the batch can still be out two intervals after the one before.
        It is longer every time that it was in vain, so that catching up ends too.
        """
        interval = self.pipeline.batch_seconds
        until = self.published + 2 * interval - 1.5 * self.took + self.patience
        while self.next_run is None and not self.stopping.is_set():
            patient = time.time() < until
            self._tell(BatchReady(batch, patient))
            if not patient:
                self.patience += interval
            elif self.awaited is not None:
                thread, self.awaited = self.replays.get(self.awaited), None
                if thread:
                    thread.join(max(0.0, until - time.time()))
            elif not self.machine.missing:
                self.patience = 0.0

    def _batch_ran(self, run: RunBatch, result: JobResult) -> None:
        with self.lock:
            self._lost(result.down)
            if self.machine.running is run:
                self._copies_lost(result.lost)
            if self.machine.running is not run:
                return
            if result.skipped:
                self._failed(run.order.attempt, f"tasks {_some(result.skipped)} could not run: {result.down}")
                return
            self.failures = 0
            self.outputs[run.order.batch, run.order.attempt] = _joined(self.pipeline, result, run.order.batch)
            if not run.missing:
                self.dropped = set()
                self.meter.take(flow for part in result.parts for flow in part.flows)
            self._tell(BatchDone(run.order.attempt))

    def _replay(self, replay: StartReplay) -> None:
        try:
            if len(replay.orders) > self.machine.close_enough:
                self._let_a_batch_pass()
            began = time.time()
            with logs.about(batch=replay.orders[-1].batch, attempt=replay.attempt):
                result = self._execute(replay.orders, None)
                if result is not None:
                    self._replay_ran(replay, result, time.time() - began)
        except Exception as error:  # noqa: BLE001 - it ends a thread; `run` raises it
            _log.exception("the run ends in a replay", extra={"batch": replay.orders[-1].batch, "attempt": replay.attempt})
            self.failure = self.failure or error
            self.stopping.set()

    def _let_a_batch_pass(self) -> None:
        """Where batches take most of their interval, let the next one out first: beside a replay it takes twice as long."""
        interval, head = self.pipeline.batch_seconds, self.machine.head
        end = time.time() + interval
        while self.took > interval / 2 and self.machine.head == head and time.time() < end and not self.stopping.wait(0.02):
            pass

    def _replay_ran(self, replay: StartReplay, result: JobResult, seconds: float) -> None:
        with self.lock:
            self._lost(result.down)
            if self.machine.replaying is replay:
                self._copies_lost(result.lost)
            if self.machine.replaying is not replay:
                return
            if result.skipped:
                self._failed(replay.attempt, f"tasks {_some(result.skipped)} could not be replayed: {result.down}")
                return
            self.failures = 0
            for order in replay.orders:
                if order.batch in self.machine.tentative:
                    self.outputs[order.batch, replay.attempt] = _joined(self.pipeline, result, order.batch)
            rows = sum(stats.rows_in for part in result.parts for stats in part.stats)
            figures: dict[str, object] = {"batches": len(replay.orders), "seconds": seconds, "rows_in": rows}
            self.watch(Note("replayed", time.time(), replay.orders[-1].batch, figures))
            self._tell(ReplayDone(replay.attempt))
            if self.failed_at is not None and self.machine.good >= self.failed_at:
                self.watch(Note("recovered", time.time(), self.machine.good, {"tasks": sorted(replay.orders[-1].runs)}))
                self.failed_at = None

    def _execute(self, orders: tuple[Order, ...], rows: DataFrame | None) -> JobResult | None:
        """Run a job; None if it was overtaken, or failed and is to be run again."""
        attempt, context = orders[0].attempt, self.spark.sparkContext
        context.addJobTag(tag := _tag(attempt))
        try:
            return execute(self.spark, Job(self.layout, orders, self.nodes, self.run_id), rows)
        except StepFailed:
            raise
        except Exception as error:  # noqa: BLE001 - whatever Spark raises
            _log.info("a job failed", exc_info=True, extra={"batch": orders[-1].batch, "attempt": attempt})
            with self.lock:
                if self.stopping.is_set() or not self._counts(attempt):
                    return None
                self._failed(attempt, str(error))
                return None
        finally:
            context.removeJobTag(tag)

    def _counts(self, attempt: int) -> bool:
        """Whether an attempt is still under way for the machine."""
        running, replaying = self.machine.running, self.machine.replaying
        return attempt in (running.order.attempt if running else None, replaying.attempt if replaying else None)

    def _failed(self, attempt: int, reason: str) -> None:
        """A job did not do its work: have it run again, unless that has happened too often in a row."""
        self.failures += 1
        if self.failures > FAILURES:
            raise PpaError(f"a job failed {self.failures} times in a row after batch {self.machine.head}: {reason[:600]}")
        self.watch(Note("job failed", time.time(), self.machine.head, {"reason": reason[:300]}))
        self._tell(JobFailed(attempt))

    # ------------------------------------------------------------------------------------------------------------ machine

    def _tell(self, event: Event) -> None:
        """Tell the machine what happened and do what it says."""
        with self.lock:
            self._obey(self.machine.handle(event))
            self._tell_places()
            if not isinstance(event, BatchReady):
                self._save()

    def _obey(self, instructions: Sequence[Instruction]) -> None:
        for instruction in instructions:
            match instruction:
                case RunBatch():
                    self.next_run = instruction
                case StartReplay():
                    for overtaken in self.replays:
                        self.spark.sparkContext.cancelJobsWithTag(_tag(overtaken))
                    self.replays = {a: thread for a, thread in self.replays.items() if thread.is_alive()}
                    thread = threading.Thread(target=self._replay, args=(instruction,), daemon=True)
                    self.replays[instruction.attempt] = thread
                    tasks = sorted(instruction.exact)
                    figures: dict[str, object] = {"tasks": tasks, "first": instruction.orders[0].batch}
                    self.watch(Note("replaying", time.time(), instruction.orders[-1].batch, figures))
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
        alive = [store for name, store in self.stores.items() if name not in self.machine.lost]
        more = {"pipeline": self.shape, "banned": sorted(self.banned), "paused": not self.going.is_set(), "kept": self.kept}
        down = save_ledger(alive, self.saved, dump(self.machine, **more))
        self._lost({error.node: error.reason for error in down if not isinstance(error, NodeSlow)})

    def _lost(self, down: dict[str, str]) -> None:
        """Tell the machine of nodes that do not answer. Nodes fail together: all others are asked before anything is done."""
        with self.lock:
            if self.stopping.is_set() or not set(down) - self.machine.lost:
                return
            time.sleep(_TOGETHER)
            down = {**self.health.dead(set(self.stores) - self.machine.lost - set(down)), **down}
            in_flight, wanted = self.machine.running, []
            for node in sorted(set(down) - self.machine.lost):
                before = self.machine.missing
                homes = sorted(task for task, home in self.machine.placement.primaries.items() if home == node)
                self.watch(Note("node lost", time.time(), self.machine.head, {"node": node, "reason": down[node]}))
                wanted += self.machine.handle(NodeLost(node))
                missing = self.machine.missing
                figures: dict[str, object] = {
                    "node": node, "lost": homes, "missing": sorted(missing - before), "of": self.fidelity(missing),
                }  # fmt: skip
                self.watch(Note("failover", time.time(), self.machine.head, figures))
            self._go_on(in_flight, wanted)

    def _copies_lost(self, lost: Collection[tuple[str, str]]) -> None:
        """Tell the machine of copies that were damaged, and remove them: the next version there is written whole.

        A node that has lost all that it held, or the same copy twice before a batch ran whole, is lost itself.
        """
        if self.stopping.is_set() or not lost:
            return
        unreliable = {node: f"it does not keep {task}" for node, task in self.dropped & set(lost)}
        self._lost({**unreliable, **self.health.dead({node for node, _ in lost} - self.machine.lost)})
        for node, task in lost:
            self._drop_copy(node, task)
        self.dropped |= set(lost)
        in_flight, wanted = self.machine.running, []
        for node, task in sorted(copy for copy in lost if copy[0] not in self.machine.lost):
            before = self.machine.missing
            wanted += self.machine.handle(CopyLost(node, task))
            missing = sorted(self.machine.missing - before)
            figures: dict[str, object] = {"node": node, "task": task, "missing": missing}
            self.watch(Note("copy lost", time.time(), self.machine.head, figures))
        self._go_on(in_flight, wanted)

    def _drop_copy(self, node: str, task: str) -> None:
        try:
            if node not in self.machine.lost:
                self.stores[node].drop(task)
        except NodeDown as error:
            _log.info("node %s does not answer", node, exc_info=True)
            self._lost({node: error.reason})

    def _go_on(self, in_flight: RunBatch | None, wanted: Sequence[Instruction]) -> None:
        """After losses: end the job that they overtook, and obey what still counts of what the machine said to each."""
        if self.machine.missing:
            self.failed_at = self.machine.head
        if in_flight and self.machine.running is not in_flight:
            self.spark.sparkContext.cancelJobsWithTag(_tag(in_flight.order.attempt))
        self._obey([i for i in wanted if i is self.machine.running or i is self.machine.replaying])
        self._tell_places()
        self._save()

    def _tell_places(self) -> None:
        if self.machine.placement != self.placed:
            self.placed = placed = self.machine.placement
            places: dict[str, object] = {
                "homes": placed.primaries, "replicas": placed.replicas, "checkpoints": placed.checkpoints,
            }  # fmt: skip
            self.watch(Note("placed", time.time(), self.machine.head, places))
        standing = self.machine.standing()
        if standing != self.standing:
            self.standing = standing
            self.watch(Note("standing", time.time(), self.machine.head, {"standing": standing}))

    def _tell_rates(self, batch: int) -> None:
        """Publish the meter's rates, now and then if they have changed."""
        if batch % RATES_EVERY:
            return
        rates = MeasuredRates(batch, self.meter.rates())
        if 0 < len(rates.tuples) <= MOST_RATES and rates.differs(self.rates):
            self.rates = rates
            self.watch(Note("rates", time.time(), batch, {"rates": rates}))

    def _emit(self, emit: Emit) -> None:
        table = self.outputs.pop((emit.batch, emit.attempt))
        revision = self.revisions.get(emit.batch, 0) + 1
        self.revisions[emit.batch] = revision
        if emit.status != "tentative":
            self.revisions.pop(emit.batch)
        of = self.fidelity(emit.missing)
        self.watch(PublishedOutput(emit.batch, revision, emit.status, of, tuple(sorted(emit.missing)), table, time.time()))

    def fidelity(self, missing: frozenset[str]) -> float:
        """OF with these tasks missing, by the live rates."""
        return fidelity(self.loaded(), missing) if missing else 1.0

    def loaded(self) -> Topology:
        """The topology with the live rates."""
        return self.pipeline.topology(self.meter.rates())

    # ------------------------------------------------------------------------------------------------------------ commands

    def save(self) -> None:
        """Have a restarted driver know what is `kept`, and whether the run is paused: the ledger has it when this returns."""
        with self.lock:
            self._save()

    def change_plan(self, plan: frozenset[str]) -> None:
        """Replicas for exactly these tasks from the next batch on."""
        self._tell(PlanChanged(plan))

    def drain(self, nodes: frozenset[str]) -> None:
        """Keep nothing on these nodes from the next batch on; others that were drained may be used again."""
        self._tell(Drain(nodes))

    def declare_dead(self, nodes: Collection[str]) -> None:
        """Treat nodes as dead, whatever they answer, until they are taken out of `banned`."""
        self.banned |= set(nodes)
        self._lost(dict.fromkeys(nodes, "declared dead by an operator"))

    # -------------------------------------------------------------------------------------------------------------- nodes

    def _beat(self) -> None:
        """Ask every node for a sign of life, again and again; lost ones too, for they may be back."""
        while not self.stopping.wait(self.settings.heartbeat):
            try:
                lost = self.machine.lost
                self._lost(self.health.dead(set(self.stores) - lost))
                for name in self.health.renewed(lost & self.machine.lost - self.banned):
                    self._tell(NodeBack(name))
                    self.watch(Note("node back", time.time(), self.machine.head, {"node": name}))
                alive = set(self.stores) - self.machine.lost
                beat: dict[str, object] = {
                    "alive": sorted(alive), "memory": self.health.memory(alive), "drained": sorted(self.machine.drained),
                }  # fmt: skip
                self.watch(Note("heartbeat", time.time(), self.machine.head, beat))
            except Exception as error:  # noqa: BLE001 - it ends a thread; `run` raises it
                _log.exception("the run ends in a heartbeat", extra={"batch": self.machine.head})
                self.failure = self.failure or error
                self.stopping.set()

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
                except NodeSlow:
                    _log.info("node %s is slow: %s is not swept this time", node, sweep.task, exc_info=True)
                except NodeDown as error:
                    _log.info("node %s does not answer a sweep", node, exc_info=True)
                    self._lost({node: error.reason})


def _tag(attempt: int) -> str:
    return f"ppa-attempt-{attempt}"


def _some(skipped: set[tuple[str, int]]) -> str:
    return ", ".join(sorted({task for task, _ in skipped})[:5])


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
