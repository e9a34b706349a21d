"""The outbox: in order, in one thread, and nothing is published after a failure."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from ppa_core.driver.outbox import Outbox


@pytest.fixture
def outbox() -> Iterator[Outbox]:
    made = Outbox()
    yield made
    made.flush(5.0)


def waits(gate: threading.Event) -> None:
    gate.wait(20)


def test_effects_run_in_the_order_they_were_put_in_one_thread(outbox: Outbox) -> None:
    seen: list[tuple[int, str]] = []
    for i in range(200):
        outbox.put(lambda i=i: seen.append((i, threading.current_thread().name)))  # type: ignore[misc]
    assert outbox.flush(20)
    assert [number for number, _ in seen] == list(range(200))
    assert {name for _, name in seen} == {"ppa-outbox"}


def test_who_puts_does_not_wait_and_who_flushes_does(outbox: Outbox) -> None:
    gate, done = threading.Event(), threading.Event()
    outbox.put(lambda: waits(gate))
    outbox.put(done.set)
    assert not outbox.flush(0.05)
    assert not done.is_set()
    gate.set()
    assert outbox.flush(20)
    assert done.is_set()


def test_of_ledgers_that_wait_one_after_the_other_the_newest_is_written(outbox: Outbox) -> None:
    gate, seen = threading.Event(), list[str]()
    outbox.put(lambda: waits(gate))
    outbox.put(lambda: seen.append("ledger 1"), replaces="ledger")
    outbox.put(lambda: seen.append("ledger 2"), replaces="ledger")
    outbox.put(lambda: seen.append("output"))
    outbox.put(lambda: seen.append("ledger 3"), replaces="ledger")  # never before the output
    gate.set()
    outbox.flush(20)
    assert seen == ["ledger 2", "output", "ledger 3"]


def test_after_a_failure_nothing_is_published_and_events_still_go_out(outbox: Outbox) -> None:
    seen: list[str] = []
    failures: list[BaseException] = []
    outbox.on_failure = failures.append

    def broken() -> None:
        raise OSError("disk full")

    outbox.put(broken)
    outbox.put(lambda: seen.append("ledger"), replaces="ledger")
    outbox.put(lambda: seen.append("event"), publishes=False)
    outbox.put(broken, publishes=False)
    assert outbox.flush(20)
    assert seen == ["event"]
    assert [str(error) for error in failures] == ["disk full"]
    assert outbox.failure is failures[0]


def test_effects_can_put_effects(outbox: Outbox) -> None:
    seen: list[str] = []
    outbox.put(lambda: outbox.put(lambda: seen.append("second")))
    end = time.monotonic() + 20
    while not seen and time.monotonic() < end:
        outbox.flush(1)
    assert seen == ["second"]
