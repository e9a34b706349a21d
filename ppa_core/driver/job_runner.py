"""Running Spark jobs: one for each attempt of a batch or a replay. A failed job is run again, up to a limit."""

from __future__ import annotations

import logging
import threading
import time

from pyspark.sql import DataFrame, SparkSession

from ppa_core.driver.decisions import Decisions
from ppa_core.driver.jobs import Job, JobResult, execute
from ppa_core.engine import run_events
from ppa_core.engine.events import AttemptFailed
from ppa_core.engine.orders import Order
from ppa_core.errors import PpaError
from ppa_core.pipeline.definition import StepFailed
from ppa_core.placement.nodes import Node
from ppa_core.worker.layout import Layout

_log = logging.getLogger(__name__)

FAILURES = 5
"""Maximum number of job failures in a row without a known reason."""


class JobRunner:
    """Runs orders as Spark jobs, tagged by their attempt so that they can be cancelled."""

    def __init__(
        self,
        spark: SparkSession,
        layout: Layout,
        nodes: tuple[Node, ...],
        run_id: str,
        decisions: Decisions,
        stopping: threading.Event,
        timeout: float,
    ) -> None:
        self.spark, self.layout, self.nodes, self.run_id = spark, layout, nodes, run_id
        self.decisions, self.stopping, self.timeout = decisions, stopping, timeout
        self._failures = 0
        self._began: dict[int, float] = {}
        self._cancelled: set[int] = set()

    def job(self, orders: tuple[Order, ...]) -> Job:
        return Job(self.layout, orders, self.nodes, self.run_id, self.timeout)

    def run(self, orders: tuple[Order, ...], rows: DataFrame | None) -> JobResult | None:
        """Run a job; None if it was superseded, or failed and will be run again."""
        attempt, context = orders[0].attempt, self.spark.sparkContext
        context.addJobTag(tag := _tag(attempt))
        self._began[attempt] = time.monotonic()
        try:
            return execute(self.spark, self.job(orders), rows)
        except StepFailed:
            raise
        except Exception as error:  # noqa: BLE001 - whatever Spark raises
            _log.info("a job failed", exc_info=True, extra={"batch": orders[-1].batch, "attempt": attempt})
            if not self.stopping.is_set() and self._under_way(attempt):
                self.failed(attempt, str(error))
            return None
        finally:
            del self._began[attempt]
            self._cancelled.discard(attempt)
            context.removeJobTag(tag)

    def cancel(self, attempt: int) -> None:
        """Cancel an attempt's job, if it is running. That is no failure that counts."""
        if attempt in self._began:
            self._cancelled.add(attempt)
        self.spark.sparkContext.cancelJobsWithTag(_tag(attempt))

    def seconds(self, attempt: int) -> float:
        """How long an attempt's job has been running; 0 if it is not."""
        began = self._began.get(attempt)
        return 0.0 if began is None else time.monotonic() - began

    def succeeded(self) -> None:
        self._failures = 0

    def failed(self, attempt: int, reason: str) -> None:
        """A job failed: report it and have it run again. PpaError after too many failures in a row."""
        self._failures += attempt not in self._cancelled
        head = self.decisions.machine.head
        if self._failures > FAILURES:
            raise PpaError(f"a job failed {self._failures} times in a row after batch {head}: {reason[:600]}")
        event = run_events.JobFailed(time.time(), head, reason[:300], cause=self.decisions.machine.cause)
        self.decisions.publisher.event(event)
        self.decisions.handle(AttemptFailed(attempt))

    def _under_way(self, attempt: int) -> bool:
        running, replaying = self.decisions.machine.running, self.decisions.machine.replaying
        return attempt in (running.order.attempt if running else None, replaying.attempt if replaying else None)


def skipped_tasks(result: JobResult) -> str:
    """The first tasks that should have run and did not, for a message."""
    return ", ".join(sorted({task for task, _ in result.skipped})[:5])


def _tag(attempt: int) -> str:
    return f"ppa-attempt-{attempt}"
