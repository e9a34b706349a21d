"""The batch loop: Spark's streaming query, one batch per trigger.

Spark calls `_on_batch`, which gets an order from the machine, runs the job, reports the result to the machine, and returns when
the batch is published and the ledger is written. Which batch comes next is in the ledger: Spark counts its own from 0 in every
query, and what it writes of them is temporary.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from ppa_core.driver.deadlines import MARGIN, Deadlines
from ppa_core.driver.decisions import Decisions
from ppa_core.driver.ingest import schedule
from ppa_core.driver.job_runner import JobRunner, skipped_tasks
from ppa_core.driver.jobs import JobResult
from ppa_core.driver.publisher import task_figures
from ppa_core.driver.records import Settings
from ppa_core.driver.replays import ReplayRunner
from ppa_core.driver.watcher import NodeWatcher
from ppa_core.engine import run_events
from ppa_core.engine.event_codec import cut
from ppa_core.engine.events import BatchReady, RunBatch
from ppa_core.engine.orders import Order
from ppa_core.errors import PpaError
from ppa_core.pipeline.definition import Pipeline
from ppa_core.pipeline.sources.live import LiveSource, RefusedRows
from ppa_core.safety.owned import temporary
from ppa_core.terminal import logs

_log = logging.getLogger(__name__)

RESTARTS = 5
"""Maximum number of restarts of the streaming query in a row without a batch in between."""
_NAMED = 3
"""Refused rows of a batch that are reported with a reason; all are counted."""


class RunOver(Exception):
    """The run ends before the batch is published: Spark must not commit it."""


class BatchLoop:
    """Runs batches until all requested ones are published and corrected, or the run is stopped."""

    def __init__(
        self,
        spark: SparkSession,
        pipeline: Pipeline,
        settings: Settings,
        decisions: Decisions,
        jobs: JobRunner,
        replays: ReplayRunner,
        watcher: NodeWatcher,
        deadlines: Deadlines,
        stopping: threading.Event,
        failed: Callable[[BaseException], None],
        resumable: Path | None = None,
    ) -> None:
        self.spark, self.pipeline, self.settings, self.resumable = spark, pipeline, settings, resumable
        self.decisions, self.jobs, self.replays, self.watcher = decisions, jobs, replays, watcher
        self.deadlines, self.stopping, self.failed = deadlines, stopping, failed
        self.after_batch: Callable[[int], None] = lambda batch: None
        self.live = [operator.source for operator in pipeline.operators if isinstance(operator.source, LiveSource)]
        self._offsets, self.first = Path(), 0
        """What Spark writes of the current query, and its first batch."""
        self._patience = 0.0
        """Additional seconds that a batch waits for a replay that is about to end."""
        self._published, self._took = time.time(), 0.0
        """When the last batch was published, and how long it took."""

    # ------------------------------------------------------------------------------------------------------------- stream

    def run(self) -> None:
        """Run the streaming query, and restart it if it ends by itself, until all batches are done or the run is stopped."""
        restarts = 0
        while restarts < RESTARTS:
            before = self.decisions.machine.head
            reason = self._stream(self.deadlines.began)
            if self.stopping.is_set() or self.ended():
                return
            head = self.decisions.machine.head
            restarts = restarts + 1 if head == before else 1
            self.decisions.publisher.event(run_events.StreamRestarted(time.time(), head, cut(reason)))
        self.failed(PpaError(f"the streaming query ended {RESTARTS} times after batch {self.decisions.machine.head}: {reason}"))

    def ended(self) -> bool:
        """Whether all requested batches are published and none is tentative."""
        with self.decisions.lock:
            machine = self.decisions.machine
            wanted = self.settings.batches
            return wanted is not None and machine.head + 1 >= wanted and not machine.missing

    def _stream(self, began: float) -> str:
        """Run the streaming query until all batches are done, it is stopped, or it fails; the reason why it ended."""
        with temporary("ppa-offsets-") as self._offsets:
            self.first = self.decisions.machine.head + 1
            stream = self.spark.readStream.format("ppa").options(first=self.first, began=repr(began)).load()
            query = stream.writeStream.foreachBatch(self._on_batch).option("checkpointLocation", str(self._offsets)).start()
            try:
                while query.isActive and not self.stopping.is_set() and not self.ended():
                    self.stopping.wait(0.05)
                error = query.exception()
                return str(error).strip().splitlines()[0][:300] if error else "no reason given"
            finally:
                query.stop()

    # -------------------------------------------------------------------------------------------------------------- batch

    def _on_batch(self, rows: DataFrame, number: int) -> None:
        batch = self.first + number
        try:
            with logs.about(batch=batch):
                self._batch(rows, batch)
        except RunOver:
            raise
        except BaseException as error:
            _log.info("the run failed in batch %d", batch, exc_info=True, extra={"batch": batch})
            self.failed(error)
            raise

    def _batch(self, rows: DataFrame, batch: int) -> None:
        machine, outbox = self.decisions.machine, self.decisions.outbox
        if batch <= machine.head:
            return
        while machine.intent.paused and not self.stopping.wait(0.1):
            self.deadlines.pause()
        self._seal(batch)
        began = time.time()
        self._follow_schedule(batch)
        self._make_ready(batch)
        ran, result, order = 0, JobResult(), None
        while (run := self.decisions.take_run()) is not None and not self.stopping.is_set():
            ran += 1
            with logs.about(attempt=run.order.attempt, cause=machine.cause):
                found = self.jobs.run((run.order,), rows)
                if found is not None:
                    result, order = found, run.order
                    self._ran(run, result)
        outbox.flush()
        if outbox.failure is not None:
            raise outbox.failure
        if machine.head < batch or order is None:
            raise RunOver(f"batch {batch} is not published: the run is stopping")
        self._published, self._took = time.time(), time.time() - began
        self.replays.batch_seconds = self._took
        self._report(batch, result, order, ran)
        if self.resumable is not None and batch == self.first:
            self.resumable.touch()
        self.watcher.sweep()
        self._release()
        self.after_batch(batch)

    def _follow_schedule(self, batch: int) -> None:
        """Take over the schedule of the batch: it begins anew if a driver was away for long."""
        if self.deadlines.interval and (began := schedule(self._offsets, batch - self.first)) is not None:
            self.deadlines.start(batch, began)

    def _seal(self, batch: int) -> None:
        """Seal the batch in all live sources; if one does not answer, try again until it does."""
        for source in self.live:
            while not self.stopping.is_set() and not source.seal(batch):
                self.decisions.publisher.event(run_events.SourceSilent(time.time(), self.decisions.machine.head))
                self.stopping.wait(self.pipeline.batch_seconds)

    def _release(self) -> None:
        """Let live sources delete input that no replay can need any more."""
        machine = self.decisions.machine
        reach = None if self.settings.keep_input else machine.graph.reach()
        if reach is not None and not machine.missing and machine.head % 10 == 0:
            for source in self.live:
                source.release(max(0, machine.good - reach))

    def _make_ready(self, batch: int) -> None:
        """Announce the batch to the machine until it gives an order: it may wait for a short replay first.

        The wait is limited, because output must continue: the batch should be published within two intervals of the previous
        one, and by its deadline. Each time the wait was too short it becomes longer, so that recovery ends too.
        """
        decisions, interval, now = self.decisions, self.pipeline.batch_seconds, time.time()
        until = self._published + 2 * interval - 1.5 * self._took + self._patience
        spare = self.deadlines.left(batch, now) - 1.5 * self._took - MARGIN
        until = min(until, now + spare) if spare > 0 else until  # a batch that is late anyway can wait
        while decisions.next_run is None and not self.stopping.is_set():
            patient = time.time() < until
            with decisions.lock:  # no batch starts after the answer to `pause`
                paused = decisions.machine.intent.paused
                if not paused:
                    decisions.handle(BatchReady(batch, patient))
            if paused:
                self.stopping.wait(0.1)
            elif not patient:
                self._patience += interval
            elif decisions.awaited is not None:
                attempt, decisions.awaited = decisions.awaited, None
                self.replays.join(attempt, until - time.time())
            elif not decisions.machine.missing:
                self._patience = 0.0

    def _ran(self, run: RunBatch, result: JobResult) -> None:
        machine = self.decisions.machine
        self.watcher.nodes_down(result.down)
        if machine.running is run:
            self.watcher.copies_damaged(result.lost)
        if machine.running is not run:
            return
        if result.skipped:
            self.jobs.failed(run.order.attempt, f"tasks {skipped_tasks(result)} could not run: {result.down}")
        elif self.decisions.batch_done(run, result):
            self.jobs.succeeded()
            if not run.missing:
                self.watcher.batch_complete()

    def _report(self, batch: int, result: JobResult, order: Order, attempts: int) -> None:
        stats = [stats for part in result.parts for stats in part.stats]
        by_name = self.pipeline.by_name
        first = {o.name for o in self.pipeline.operators if any(by_name[s.source].source is not None for s in o.inputs)}
        refused = sum((source.refused(batch) for source in self.live), RefusedRows())
        finished = run_events.BatchFinished(
            time.time(), batch, self._took, attempts,
            source_rows=sum(s.rows_in for s in stats if s.task.rpartition(".")[0] in first),
            rows_in=sum(s.rows_in for s in stats),
            step_cpu=sum(s.step_cpu + s.home_cpu for s in stats),
            replica_cpu=sum(s.replica_cpu for s in stats),
            checkpoint_cpu=sum(s.checkpoint_cpu for s in stats),
            state_bytes=sum(s.state_bytes for s in stats),
            checkpointed=tuple(task for task, made in order.runs.items() if made.checkpoint),
            synced=tuple(task for task, made in order.runs.items() if made.replica),
            refused=refused.count,
            refusals=tuple(cut(f"{one.file}: {one.line}: {one.reason}") for one in refused.first[:_NAMED]),
            stats=task_figures(result),
        )  # fmt: skip
        self.decisions.publisher.event(finished)
        self.decisions.publisher.publish_rates(batch)
