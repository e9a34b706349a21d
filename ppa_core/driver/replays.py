"""The replay runner: lost tasks catch up in a Spark job that runs in parallel with the batches, in a separate thread."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from ppa_core.driver.decisions import Decisions
from ppa_core.driver.job_runner import JobRunner, skipped_tasks
from ppa_core.driver.jobs import JobResult
from ppa_core.driver.watcher import NodeWatcher
from ppa_core.engine.events import StartReplay
from ppa_core.terminal import logs

_log = logging.getLogger(__name__)


class ReplayRunner:
    """Only the newest replay counts; earlier ones are cancelled."""

    def __init__(
        self, decisions: Decisions, jobs: JobRunner, watcher: NodeWatcher, interval: float, stopping: threading.Event,
        failed: Callable[[BaseException], None],
    ) -> None:  # fmt: skip
        self.decisions, self.jobs, self.watcher, self.interval = decisions, jobs, watcher, interval
        self.stopping, self.failed = stopping, failed
        self.batch_seconds = 0.0
        """The duration of the last batch."""
        self._threads: dict[int, threading.Thread] = {}
        self._starting = threading.Lock()

    def start(self, replay: StartReplay) -> None:
        """Start a replay, unless it is superseded already."""
        with self._starting:
            if self.decisions.machine.replaying is not replay:
                return
            superseded = [attempt for attempt, thread in self._threads.items() if thread.is_alive()]
            thread = threading.Thread(target=self._run, args=(replay,), name=f"ppa-replay-{replay.attempt}", daemon=True)
            self._threads = {attempt: self._threads[attempt] for attempt in superseded} | {replay.attempt: thread}
        for attempt in superseded:
            self.jobs.cancel(attempt)
        thread.start()

    def join(self, attempt: int, seconds: float) -> None:
        """Wait for a replay to end, for at most `seconds`."""
        thread = self._threads.get(attempt)
        if thread is not None and thread.ident is not None:
            thread.join(max(0.0, seconds))

    def _run(self, replay: StartReplay) -> None:
        last = replay.orders[-1].batch
        try:
            if len(replay.orders) > self.decisions.machine.short_replay:
                self._wait_for_a_batch()
            began = time.time()
            with logs.about(batch=last, attempt=replay.attempt, cause=self.decisions.machine.cause):
                result = self.jobs.run(replay.orders, None)
                if result is not None:
                    self._ran(replay, result, time.time() - began)
        except Exception as error:  # noqa: BLE001 - it ends this thread; the run raises it
            _log.exception("the run failed in a replay", extra={"batch": last, "attempt": replay.attempt})
            self.failed(error)

    def _wait_for_a_batch(self) -> None:
        """If a batch is in flight, which may have been run again, or if batches take most of their interval, wait for the next
        output: in parallel with a replay it takes twice as long."""
        machine, end = self.decisions.machine, time.time() + self.interval
        head, busy = machine.head, machine.running is not None or self.batch_seconds > self.interval / 2
        while busy and machine.head == head and time.time() < end:
            if self.stopping.wait(0.02):
                return

    def _ran(self, replay: StartReplay, result: JobResult, seconds: float) -> None:
        machine = self.decisions.machine
        self.watcher.nodes_down(result.down)
        if machine.replaying is replay:
            self.watcher.copies_damaged(result.lost)
        if machine.replaying is not replay:
            return
        if result.skipped:
            self.jobs.failed(replay.attempt, f"tasks {skipped_tasks(result)} could not be replayed: {result.down}")
        elif self.decisions.replay_done(replay, result, seconds):
            self.jobs.succeeded()
