"""Jobs that do not end: executors are removed with growing patience, and that is no failure of the job."""

from __future__ import annotations

import threading
import time
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ppa_core.driver import job_runner
from ppa_core.driver.executor_hosts import ExecutorHosts, Patience
from ppa_core.driver.job_runner import FAILURES, JobRunner
from ppa_core.engine.orders import Order
from ppa_core.errors import PpaError
from ppa_core.placement.nodes import Node


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


class Spark:
    """A Spark context as far as `ExecutorHosts` uses it: executors by id with their host, active tasks and age in seconds."""

    def __init__(self, **executors: tuple[str, int, float]) -> None:
        self.killed, self.limits = list[str](), list[int]()
        now = time.time()
        listed = [
            SimpleNamespace(
                id=partial(str, name),
                isActive=lambda: True,
                hostPort=partial("{}:7".format, host),
                activeTasks=partial(int, tasks),
                addTime=partial(SimpleNamespace, getTime=partial(float, (now - age) * 1000)),
            )
            for name, (host, tasks, age) in (executors | {"driver": ("control", 1, 999.0)}).items()
        ]
        scala = SimpleNamespace(
            executorList=lambda active: SimpleNamespace(size=lambda: len(listed), apply=listed.__getitem__),
            killExecutors=self.killed.extend,
            requestTotalExecutors=lambda number, tasks, hosts: self.limits.append(number),
        )
        scala.statusStore = lambda: scala
        self._jsc = SimpleNamespace(sc=lambda: scala)
        self._jvm = SimpleNamespace(PythonUtils=SimpleNamespace(toSeq=list, toScalaMap=dict))


def hosts(spark: Spark) -> ExecutorHosts:
    nodes = [Node(f"n{i}", "r1", "primary", f"redis://u:p@10.0.0.{i}:6379", f"h{i}") for i in (1, 2, 3)]
    return ExecutorHosts(cast(Any, spark), nodes)


def test_busy_executors_are_removed_new_ones_are_not_and_spark_may_replace_them() -> None:
    spark = Spark(a=("10.0.0.1", 1, 100.0), b=("10.0.0.2", 1, 3.0), c=("10.0.0.3", 0, 100.0))
    executors = hosts(spark)
    assert executors.remove_busy()
    assert spark.killed == ["a"]
    assert spark.limits == [2**31 - 1]
    assert not executors.remove_busy()  # so soon


def test_executors_of_silent_hosts_are_removed_once_and_spark_may_replace_them() -> None:
    spark = Spark(a=("10.0.0.1", 0, 100.0), b=("10.0.0.2", 1, 3.0), c=("10.0.0.3", 0, 100.0))
    executors = hosts(spark)
    for lost in ({"n1"}, {"n1"}, {"n1", "n2"}, set[str](), {"n1"}):
        executors.follow(lost)
    assert spark.killed == ["a", "b"]
    assert spark.limits == [2**31 - 1] * 2


def test_an_executor_that_was_removed_and_has_not_ended_is_not_removed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a worker that hangs too: its tasks are never done."""
    spark = Spark(a=("10.0.0.1", 1, 100.0), b=("10.0.0.2", 0, 100.0), c=("10.0.0.3", 0, 100.0))
    executors = hosts(spark)
    assert executors.remove_busy()
    monkeypatch.setattr(executors, "_patience", Patience())
    assert not executors.remove_busy()
    assert spark.killed == ["a"]


def test_the_last_executors_are_left_alone() -> None:
    spark = Spark(a=("10.0.0.1", 1, 100.0), b=("10.0.0.2", 1, 100.0))
    executors = hosts(spark)
    assert not executors.remove_busy()
    executors.follow({"n1", "n2"})
    assert spark.killed == []


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
