"""The host: a pipeline running on Spark and nodes. It puts together the parts that execute the machine's instructions.

BatchLoop      Spark's streaming query, batch by batch
ReplayRunner   replays of lost tasks, in parallel with the batches
NodeWatcher    suspected, lost, damaged and returned nodes
Deadlines      an output for every batch by its deadline
Decisions      the machine, protected by a lock: events in, instructions out
Publisher      outputs and events, through the Outbox
Outbox         everything that waits for a disk, a pipe or a node, in one thread
LedgerStore    the machine's saved state, in the nodes
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import SparkSession

from ppa_core.driver.batches import BatchLoop
from ppa_core.driver.deadlines import Deadlines
from ppa_core.driver.decisions import Decisions, new_cause
from ppa_core.driver.executor_hosts import ExecutorHosts
from ppa_core.driver.executors import on_a_cluster
from ppa_core.driver.ingest import CATCH_UP, data_source
from ppa_core.driver.job_runner import JobRunner
from ppa_core.driver.jobs import warm_up
from ppa_core.driver.ledger_store import LedgerStore
from ppa_core.driver.outbox import Outbox
from ppa_core.driver.publisher import Publisher
from ppa_core.driver.records import Settings, Watch
from ppa_core.driver.replays import ReplayRunner
from ppa_core.driver.stalls import remove_stalled
from ppa_core.driver.watcher import NodeWatcher
from ppa_core.engine import run_events
from ppa_core.engine.events import DeadlinePassed, Restarted
from ppa_core.engine.ledger import Ledger, restore
from ppa_core.engine.machine import Machine, first_attempt
from ppa_core.engine.recovery import Graph
from ppa_core.errors import BadInput
from ppa_core.nodes.heartbeats import Heartbeats
from ppa_core.nodes.store import Store
from ppa_core.pipeline.definition import Pipeline
from ppa_core.pipeline.tables import digest
from ppa_core.placement.nodes import Node
from ppa_core.placement.place import place
from ppa_core.safety.names import check_run
from ppa_core.worker.layout import Layout

_log = logging.getLogger(__name__)

_STORE_TIMEOUT = 2.0
DECLARED_FAILED = "declared failed by an operator"
"""The reason why a banned node is lost."""
_LOOK_FOR_STALLS = 0.2
_LEAST_PATIENCE = 1.0
"""Seconds that a request to a node may take at least."""


def new_run_id() -> str:
    """A unique name for a run; keys in the nodes begin with it."""
    return f"{int(time.time() * 1000):x}"


class Host:
    """`run` returns when all batches are published and accurate, or the host is stopped.

    `resumable` is a file that is created once the run can be resumed from its nodes. `strict` and `witness`: see `LedgerStore`.
    """

    def __init__(
        self,
        spark: SparkSession,
        pipeline: Pipeline,
        nodes: tuple[Node, ...],
        plan: frozenset[str],
        settings: Settings,
        watch: Watch = lambda seen: None,
        run_id: str | None = None,
        resumable: Path | None = None,
        outbox: Outbox | None = None,
        *,
        strict: bool = False,
        witness: Node | None = None,
    ) -> None:
        self.spark, self.pipeline, self.settings, self.resumable = spark, pipeline, settings, resumable
        self.run_id = check_run(run_id or new_run_id())
        self.failure: BaseException | None = None
        self.started = threading.Event()
        """Set once the nodes are in use: before that, the host takes no commands."""
        self.stopping = threading.Event()
        self.layout = Layout.of(pipeline, settings.partitions)
        self.outbox = outbox or Outbox()
        self.outbox.on_failure = self.fail
        self.stores = {node.name: Store(node, self.run_id, timeout=_STORE_TIMEOUT) for node in nodes}
        graph = Graph.of(pipeline.topology(), {operator.name: operator.lookback_batches for operator in pipeline.operators})
        self.machine = Machine(graph, place(graph.tasks, nodes, plan), settings.checkpoint_every, settings.sync_every)
        interval = pipeline.batch_seconds if settings.interval is None else settings.interval
        deadline = settings.deadline or 2 * (interval or pipeline.batch_seconds)
        self.deadlines = Deadlines(interval, deadline, self._deadline_passed)
        self.publisher = Publisher(pipeline, self.machine, self.outbox, watch, self.deadlines)
        self.ledger = LedgerStore(self.stores, strict, witness)
        self.decisions = Decisions(self.machine, self.publisher, self.ledger, self.outbox, shape(pipeline))
        patience = max(_LEAST_PATIENCE, deadline / 2)
        self.jobs = JobRunner(spark, self.layout, nodes, self.run_id, self.decisions, self.stopping, patience)
        heartbeats = Heartbeats({node.name: node for node in nodes}, self.run_id, deadline / 10, patience)
        self.watcher = NodeWatcher(self.stores, self.decisions, heartbeats, self.stopping)
        self.replays = ReplayRunner(self.decisions, self.jobs, self.watcher, pipeline.batch_seconds, self.stopping, self.fail)
        self.batches = BatchLoop(
            spark, pipeline, settings, self.decisions, self.jobs, self.replays, self.watcher, self.deadlines,
            self.stopping, self.fail, resumable,
        )  # fmt: skip
        self._prepared = False
        self.decisions.cancel = self.jobs.cancel
        self.decisions.start_replay = self.replays.start
        self.decisions.nodes_down = self.watcher.nodes_down

    def prepare(self) -> None:
        """Do what can be done before this driver is the one that runs: nothing in the nodes is touched."""
        if on_a_cluster(self.spark.sparkContext.master):
            self.watcher.executors = ExecutorHosts(self.spark.sparkContext, self.jobs.nodes)
        self.spark.dataSource.register(data_source(self.layout, self.deadlines.interval, self.settings.batches))
        warm_up(self.spark, self.jobs.job(()))
        self._prepared = True

    def run(self, epoch: int = 1) -> None:
        """Run until the requested batches are published and corrected, or until `stop`. Raises the error that ended the run.

        `epoch` is the number of this driver among those of the run.
        """
        if not self._prepared:
            self.prepare()
        self.resume(epoch)
        self.started.set()
        beating = threading.Thread(target=self.watcher.run, args=(self.settings.heartbeat, self.fail), daemon=True)
        beating.start()
        threading.Thread(target=self.deadlines.run, args=(self.stopping,), name="ppa-deadlines", daemon=True).start()
        threading.Thread(target=self._remove_stalled, name="ppa-stalled", daemon=True).start()
        self.batches.run()
        self.stopping.set()
        beating.join()
        self.outbox.flush()
        if self.failure:
            raise self.failure
        if self.batches.ended():
            self.watcher.remove_run()

    def _deadline_passed(self, batch: int) -> None:
        if not self.stopping.is_set() and (self.settings.batches is None or batch < self.settings.batches):
            _log.warning("no output by the deadline", extra={"batch": batch})
            self.decisions.handle(DeadlinePassed(batch, new_cause(time.time())))

    def _remove_stalled(self) -> None:
        """Run batches again whose job has been running for as long as a deadline, if that is because something hangs."""
        while self.deadlines.interval and not self.stopping.wait(_LOOK_FOR_STALLS):
            running = self.machine.running
            if running is None or self.jobs.seconds(running.order.attempt) < self.deadlines.seconds:
                continue
            if remove_stalled(self.watcher.executors):
                self.jobs.cancel(running.order.attempt)

    def stop(self) -> None:
        """Let `run` return soon. The data in the nodes is kept: the run can be resumed."""
        self.stopping.set()

    def fail(self, error: BaseException) -> None:
        """Let `run` return soon and raise this error, unless there was another one before."""
        self.failure = self.failure or error
        self.stopping.set()

    def resume(self, epoch: int = 1) -> None:
        """Start using the nodes; resume from the ledger if an earlier driver of the run left one."""
        self.publisher.epoch = epoch
        self.ledger.start(epoch)
        known = self.ledger.read()
        if known is None:
            self._check_fresh()
            self.machine.attempt = first_attempt(epoch)
            self.watcher.prepare_nodes()
            return
        if known.pipeline != self.decisions.shape:
            what = "was started with a different pipeline: operators, tasks, columns or windows differ"
            raise BadInput(f"run {self.run_id!r}", f"{what}; resume it with the same pipeline, or choose another name")
        self._restore(known, epoch)
        # The old driver may have died before it lost the banned nodes.
        self.decisions.nodes_lost(dict.fromkeys(self.machine.intent.banned, DECLARED_FAILED))
        self.watcher.resume()

    def _restore(self, known: Ledger, epoch: int) -> None:
        machine = self.machine
        restore(machine, known)
        following = 1 + max(machine.head, *machine.tentative, -1)
        now, interval = time.time(), self.deadlines.interval
        if known.began and now - (known.began + following * interval) < CATCH_UP * interval:
            self.deadlines.resume(following, known.began, now)
            if machine.intent.paused:
                self.deadlines.pause()
        found = (tuple(sorted(machine.missing)), tuple(sorted(machine.tentative)), tuple(sorted(machine.lost)))
        restarted = run_events.DriverRestarted(
            time.time(), machine.head, *found, machine.intent.paused, cause=machine.cause
        )  # fmt: skip
        self.publisher.event(restarted)
        self.decisions.handle(Restarted(epoch))

    def _check_fresh(self) -> None:
        """Refuse to start a new run in the folder of an earlier one, whose state is not in any node."""
        if self.resumable is not None and self.resumable.exists():
            reason = "it contains an earlier run whose state is not in any node; choose another output folder"
            raise BadInput(str(self.resumable.parent), reason)

    @property
    def after_batch(self) -> Callable[[int], None]:
        return self.batches.after_batch

    @after_batch.setter
    def after_batch(self, called: Callable[[int], None]) -> None:
        self.batches.after_batch = called


def shape(pipeline: Pipeline) -> str:
    """A digest of the pipeline's structure: a run can only be resumed with the same one."""
    parts = [
        (o.name, o.tasks, str(o.schema), o.lookback_batches, [(i.source, i.partitioning, i.key) for i in o.inputs])
        for o in pipeline.operators
    ]
    return digest(repr((pipeline.batch_seconds, parts)).encode())
