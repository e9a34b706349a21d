"""Jobs that do not end: executors are removed with growing patience, and that is no failure of the job."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ppa_core.driver import job_runner
from ppa_core.driver.executor_hosts import Patience
from ppa_core.driver.job_runner import FAILURES, JobRunner
from ppa_core.engine.orders import Order
from ppa_core.errors import PpaError


def test_executors_are_removed_at_once_then_ever_more_rarely_and_at_once_again_after_a_while() -> None:
    patience, removed, now = Patience(), list[int](), 0
    while now < 300:
        if patience.lets(now):
            patience.used(now)
            removed.append(now)
        now += 1
    assert removed == [0, 5, 15, 35, 75, 135, 195, 255]
    assert not patience.lets(300)
    assert patience.lets(400)
    patience.used(400)
    assert next(now for now in range(401, 420) if patience.lets(now)) == 405


class Failing:
    """Every job fails; it is cancelled first if `cancelled`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, cancelled: bool) -> None:
        self.attempts = list[int]()
        machine = SimpleNamespace(head=0, cause="", running=None, replaying=None)
        quiet = SimpleNamespace(addJobTag=lambda tag: None, removeJobTag=lambda tag: None, cancelJobsWithTag=lambda tag: None)
        decisions = SimpleNamespace(
            machine=machine,
            publisher=SimpleNamespace(event=lambda event: None),
            handle=lambda event: self.attempts.append(event.attempt),
        )
        parts = cast(Any, (SimpleNamespace(sparkContext=quiet), None, (), "run", decisions, threading.Event(), 1.0))
        self.jobs = JobRunner(*parts)

        def execute(spark: object, job: object, rows: object) -> None:
            if cancelled:
                self.jobs.cancel(machine.running.order.attempt)
            raise RuntimeError("it failed")

        monkeypatch.setattr(job_runner, "execute", execute)
        self.machine = machine

    def run(self, attempt: int) -> None:
        order = Order(1, attempt, {})
        self.machine.running = SimpleNamespace(order=order)
        self.jobs.run((order,), None)


def test_a_job_that_was_cancelled_because_executors_hang_is_run_again_as_often_as_needed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    failing, many = Failing(monkeypatch, cancelled=True), range(1, 4 * FAILURES)
    for attempt in many:
        failing.run(attempt)
    assert failing.attempts == list(many)


def test_a_job_that_fails_again_and_again_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    failing = Failing(monkeypatch, cancelled=False)
    for attempt in range(FAILURES):
        failing.run(attempt)
    with pytest.raises(PpaError, match=f"a job failed {FAILURES + 1} times in a row"):
        failing.run(FAILURES)
