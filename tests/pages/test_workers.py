"""Work in processes of its own: it is done, or ended for its time or its viewer, and the next is done all the same."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

import pytest

from pages.server.workers import TooLong, Unwanted, WorkerEnded, Workers
from ppa_core.errors import BadInput, RequestError
from ppa_core.planners import plan
from ppa_core.topology import load_example


@pytest.fixture
def workers() -> Iterator[Workers]:
    made = Workers(most=1)
    yield made
    made.close()


def wanted() -> bool:
    return True


def test_plan_of_a_worker_is_the_plan(workers: Workers) -> None:
    found = workers.run(20.0, wanted, plan, load_example("tree"), 8, "greedy")
    assert found.tasks == plan(load_example("tree"), 8, "greedy").tasks
    process = workers.run(20.0, wanted, os.getpid)
    assert process != os.getpid()
    assert workers.run(20.0, wanted, os.getpid) == process  # one worker, that stays


def test_errors_come_back_as_they_are(workers: Workers) -> None:
    with pytest.raises(RequestError) as error:
        workers.run(20.0, wanted, plan, load_example("tree"), -1)
    assert isinstance(error.value, BadInput)
    with pytest.raises(RuntimeError, match="ValueError"):
        workers.run(20.0, wanted, int, "x")


def test_work_that_takes_too_long_is_killed_and_the_next_is_done(workers: Workers) -> None:
    process = workers.run(20.0, wanted, os.getpid)
    with pytest.raises(TooLong):
        workers.run(0.3, wanted, time.sleep, 60)
    assert workers.run(20.0, wanted, os.getpid) != process
    with pytest.raises(ProcessLookupError):
        os.kill(process, 0)


def test_work_that_nobody_waits_for_is_killed(workers: Workers) -> None:
    process, until = workers.run(20.0, wanted, os.getpid), time.monotonic() + 0.3
    with pytest.raises(Unwanted):
        workers.run(60.0, lambda: time.monotonic() < until, time.sleep, 60)
    with pytest.raises(ProcessLookupError):
        os.kill(process, 0)


def test_worker_that_dies_is_replaced(workers: Workers) -> None:
    with pytest.raises(WorkerEnded):
        workers.run(20.0, wanted, os._exit, 1)
    assert workers.run(20.0, wanted, abs, -1) == 1
