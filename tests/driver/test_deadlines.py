"""Deadlines: which batches get an empty output, and when."""

from __future__ import annotations

import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from ppa_core.driver.batches import BatchLoop
from ppa_core.driver.deadlines import MARGIN, Deadlines
from ppa_core.driver.records import Settings


def deadlines(interval: float = 1.0, seconds: float = 2.0) -> tuple[Deadlines, list[int]]:
    passed: list[int] = []
    made = Deadlines(interval, seconds, passed.append)
    made.start(0, 100.0)
    return made, passed


def test_before_the_first_output_nobody_waits() -> None:
    made, passed = deadlines()
    made.check(150.0)
    assert passed == []


def test_a_batch_without_an_output_is_reported_once_just_before_its_deadline() -> None:
    made, passed = deadlines()
    made.published(0)
    made.check(102.9 - MARGIN)
    assert passed == []
    for _ in range(2):
        made.check(103.01 - MARGIN)
    assert passed == [1]
    assert made.due(1) == 101.0
    assert made.left(1, 102.0) == 1.0


def test_a_stall_reports_every_batch_at_its_own_deadline() -> None:
    made, passed = deadlines()
    made.published(0)
    for tenth in range(60):
        made.check(100 + tenth / 10)
    assert passed == [1, 2, 3, 4]


def test_what_passed_while_nobody_watched_is_not_reported_and_nothing_is_reported_before_it() -> None:
    made, passed = deadlines()
    made.published(0)
    made.check(110.0)
    assert passed == []
    for batch in range(1, 8):
        made.published(batch)
    made.check(110.0)
    assert passed == [8]


def test_nobody_waits_while_the_run_is_paused() -> None:
    made, passed = deadlines()
    made.published(3)
    made.pause()
    made.check(106.0)
    assert passed == []
    made.published(4)
    made.check(107.0 - MARGIN)
    assert passed == [5]


def test_without_an_interval_there_is_no_deadline() -> None:
    made, passed = deadlines(interval=0.0)
    made.published(0)
    assert made.left(7, 1e9) == float("inf")
    made.check(1e9)
    assert passed == []


def test_a_driver_that_takes_over_in_time_keeps_the_deadlines() -> None:
    passed: list[int] = []
    made = Deadlines(1.0, 2.0, passed.append)
    made.resume(5, 100.0, 106.5)
    made.check(106.8)
    assert passed == []
    made.check(106.95)
    assert passed == [5]


def test_a_driver_that_takes_over_soon_owes_the_outputs_that_were_due_meanwhile() -> None:
    passed: list[int] = []
    made = Deadlines(1.0, 2.0, passed.append)
    made.resume(5, 100.0, 108.4)  # those of 5 and 6 were due at 107 and 108
    for _ in range(5):
        made.check(108.5)
    assert passed == [5, 6]
    made.check(108.95)
    assert passed == [5, 6, 7]


def test_a_driver_that_takes_over_late_computes_first() -> None:
    passed: list[int] = []
    made = Deadlines(1.0, 2.0, passed.append)
    made.resume(5, 100.0, 111.5)
    made.check(111.6)
    made.published(5)
    made.check(112.0)
    assert passed == []
    assert made.due(5) == 105.0


def test_when_the_schedule_begins_anew_after_a_long_absence_the_deadlines_follow(tmp_path: Path) -> None:
    """The first offsets of a new query do not know the schedule yet; the old one counts until they do."""
    passed: list[int] = []
    made = Deadlines(1.0, 2.0, passed.append)
    none = cast(Any, None)
    pipeline = cast(Any, SimpleNamespace(operators=()))
    loop = BatchLoop(none, pipeline, Settings(), none, none, none, none, made, threading.Event(), print)
    loop._offsets = tmp_path
    (tmp_path / "offsets").mkdir()
    for batch, began in ((5, "100.0"), (6, "0.0"), (7, "893.5")):
        (tmp_path / "offsets" / str(batch)).write_text(f'v1\n{{}}\n{{"batch": {batch + 1}, "began": {began}}}')
        loop._follow_schedule(batch)
        if batch < 7:
            assert made.due(batch) == 100.0 + batch
            made.published(batch)
    made.check(902.5)
    assert made.due(7) == 900.5
    assert passed == [7]
