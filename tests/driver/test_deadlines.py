"""Deadlines: which batches get an empty output, and when."""

from __future__ import annotations

from ppa_core.driver.deadlines import MARGIN, Deadlines


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
