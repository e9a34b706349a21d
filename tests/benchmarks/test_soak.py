"""The parts of a soak that need no test bed: which failures it makes, what it finds in outputs, and its report."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.soak import page
from benchmarks.soak.checking import Verdict, check
from benchmarks.soak.running import Injected, Soak
from benchmarks.soak.schedule import DECK, LAST, SPARED, Bed, can_overlap, schedule
from benchmarks.soak.summary import document, late_without_driver
from ppa_core.drills.baseline import tables, without_spark
from ppa_core.drills.drill import Setup
from ppa_core.drills.failures import PlannedFailure
from ppa_core.drills.slowness import Slowness
from ppa_core.driver.records import Settings
from ppa_core.engine.run_events import OutputPublished, RunEvent, Starting
from ppa_core.pipeline.tables import digest, encode
from ppa_core.plots import write_figure
from ppa_core.process.namespaces import state_of
from ppa_core.queries import load_query

BED = Bed({"r1": ("h1", "h2"), "r2": ("h3", "h4")})
HOUR = 3600
SEEDS = st.integers(0, 2**32)

# --------------------------------------------------------------------------------------------------------------- schedule


@settings(max_examples=30, deadline=None)
@given(SEEDS)
def test_a_seed_always_gives_the_same_failures_and_each_of_them_ends(seed: int) -> None:
    failures = schedule(HOUR, seed, BED)
    assert failures == schedule(HOUR, seed, BED)
    assert 60 < len(failures) < 200
    assert [one.at for one in failures] == sorted(one.at for one in failures)
    assert all(one.at < HOUR - LAST for one in failures)
    for one in failures:
        restarted = (one.what, one.how) in {("driver", "kill"), ("driver", "hang"), ("executor", "kill")}
        assert restarted or (one.seconds is not None and 1 <= one.seconds <= 20)


@settings(max_examples=30, deadline=None)
@given(SEEDS)
def test_two_failures_at_once_spare_some_nodes_and_can_both_end(seed: int) -> None:
    failures = schedule(HOUR, seed, BED)
    for before, one in pairwise(failures):
        if one.alone:
            continue
        assert before.alone
        assert can_overlap(before, one, BED)
        nodes, others = BED.nodes_of(before.what), BED.nodes_of(one.what)
        assert not nodes & others
        assert len(BED.nodes) - len(nodes | others) >= SPARED
    assert any(not one.alone for one in failures)


def test_an_hour_has_every_kind_of_failure() -> None:
    kinds = {
        ("nodes" if "," in one.what else one.what.partition(":")[0], one.how.partition(":")[0])
        for one in schedule(HOUR, 1, BED)
    }
    assert kinds == {(card.what, card.how) for card in DECK}


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (PlannedFailure("primaries", 1), PlannedFailure("standbys", 2)),
        (PlannedFailure("rack:r1", 1), PlannedFailure("rack:r2", 2)),
        (PlannedFailure("rack:r1", 1), PlannedFailure("node:s2", 2)),
        (PlannedFailure("host:h1", 1, "cut"), PlannedFailure("worker", 2)),
        (PlannedFailure("driver", 1, "hang"), PlannedFailure("executor", 2, "hang")),
        (PlannedFailure("host:h1", 1, "slow:100"), PlannedFailure("executor", 2, "hang")),
    ],
)
def test_failures_that_leave_nothing_or_disturb_each_other_are_never_at_once(
    first: PlannedFailure, second: PlannedFailure
) -> None:
    assert not can_overlap(first, second, BED)
    assert not can_overlap(second, first, BED)


# --------------------------------------------------------------------------------------------------------------- checking

EXPECTED = ["a", "b", "c", "d"]


def output(batch: int, status: Literal["accurate", "tentative", "correction"], content: str = "") -> OutputPublished:
    revision = 2 if status == "correction" else 1
    return OutputPublished(0.0, batch, revision, status, 1.0, (), 1, content or EXPECTED[batch], 0.5)


def good() -> list[RunEvent]:
    """Batch 2 is tentative and corrected; the others are accurate."""
    late = [output(2, "tentative", "?"), output(3, "accurate"), output(2, "correction")]
    return [Starting(0.0, -1, "Spark"), output(0, "accurate"), output(1, "accurate"), *late]


def checked(events: list[RunEvent], sink: dict[tuple[int, int], str] | None = None) -> Verdict:
    reported = {(one.batch, one.revision): one.digest for one in events if isinstance(one, OutputPublished)}
    stored = reported if sink is None else reported | sink
    return check(events, EXPECTED, lambda batch, revision: stored.get((batch, revision)) or None)


def test_a_complete_run_is_good() -> None:
    assert checked(good()) == Verdict((), (), (), (), ())
    assert checked(good()).good


def test_a_batch_without_output_is_lost() -> None:
    verdict = checked([event for event in good() if not (isinstance(event, OutputPublished) and event.batch == 1)])
    assert verdict == Verdict((1,), (), (), (), ())
    assert not verdict.good


def test_a_batch_that_was_reported_and_is_not_in_the_sink_is_lost() -> None:
    assert checked(good(), {(2, 2): ""}).lost == (2,)


@pytest.mark.parametrize("status", ["accurate", "correction"])
def test_two_first_outputs_or_two_corrections_of_one_driver_are_duplicates(status: Literal["accurate", "correction"]) -> None:
    batch = 2 if status == "correction" else 1
    verdict = checked([*good(), output(batch, status)])
    assert verdict == Verdict((), (batch,), (), (), ())
    assert not verdict.good


def test_the_same_output_from_the_next_driver_is_repeated_and_another_one_a_duplicate() -> None:
    restarted = [*good(), Starting(1.0, 3, "Spark")]
    verdict = checked([*restarted, output(3, "accurate")])
    assert verdict == Verdict((), (), (), (), (3,))
    assert verdict.good
    assert checked([*restarted, output(3, "tentative", "?")]).duplicated == (3,)


def test_an_accurate_output_that_is_not_the_expected_one_is_different_as_reported_and_in_the_sink() -> None:
    events = [output(1, "accurate", "x") if isinstance(one, OutputPublished) and one.batch == 1 else one for one in good()]
    assert checked(events).different == (1,)
    assert checked(good(), {(2, 2): "x"}).different == (2,)
    assert not checked(events).good


def test_a_tentative_output_without_a_correction_is_found() -> None:
    verdict = checked(good()[:-1])
    assert verdict == Verdict((), (), (), (2,), ())
    assert not verdict.good


# ---------------------------------------------------------------------------------------------------------- the rest


def test_the_baseline_keeps_only_the_last_state_and_has_the_same_outputs() -> None:
    options = {"rate": 20, "window": 3.0, "batch_seconds": 1.0}
    whole = without_spark(Setup("tree", options, 0, (), Settings(batches=8)))
    found = [digest(encode(table)) for table in tables(load_query("tree", **options).pipeline, 8)]
    assert [event.digest for event in whole.outputs()] == found
    assert len(set(found)) == 8


@pytest.fixture
def sleeper() -> Iterator[int]:
    with subprocess.Popen(["sleep", "60"]) as process:
        yield process.pid
        process.kill()


def test_a_slow_process_is_stopped_and_continued_until_the_end(sleeper: int) -> None:
    slow = Slowness(lambda: [sleeper], 0.05)
    states = set[bool]()
    end = time.monotonic() + 10
    while len(states) < 2 and time.monotonic() < end:
        states.add(state_of(sleeper) == "T")
    slow.end()
    assert states == {True, False}
    assert state_of(sleeper) != "T"
    os.kill(sleeper, 0)


def soaked() -> Soak:
    """Four batches, a failure that makes one of them tentative and late, one with trouble, and a little memory."""
    soak = Soak(4, 7, began=100.0, ended=160.0)
    late = OutputPublished(112.0, 2, 1, "tentative", 0.25, ("O1.1",), 1, "?", 3.5)
    outputs = [replace_at(output(batch, "accurate"), 100.0 + batch) for batch in (0, 1)]
    soak.seen.events = [*outputs, late, replace_at(output(3, "accurate"), 125.0), replace_at(output(2, "correction"), 130.0)]
    soak.failures = [
        Injected(PlannedFailure("rack:r1", 1, "cut", 5.0, alone=True), 105.0, 110.0),
        Injected(PlannedFailure("driver", 1, "kill"), 106.0),
        Injected(PlannedFailure("node:n1,n2", 2, "kill", 5.0, alone=True), 120.0, 130.0, "it did not start"),
    ]
    soak.memory = [(100.0 + 10 * i, {"driver, Python": 200.0, "executor h1": 300.0, "n1": 10.0 + i}) for i in range(8)]
    return soak


def replace_at(event: OutputPublished, at: float) -> OutputPublished:
    return OutputPublished(at, event.batch, event.revision, event.status, event.of, (), 1, event.digest, event.delay)


def test_the_report_has_the_figures_by_failure_and_the_page_a_row_for_each(tmp_path: Path) -> None:
    soak = soaked()
    found = json.loads(json.dumps(document(soak, checked(soak.seen.events))))
    assert found["good"] is True
    assert (found["late"], found["late_without_driver"], found["tentative"], found["lowest_of"]) == (1, 0, 1, 0.25)
    assert [row["failure"] for row in found["by_kind"]] == ["2 nodes, kill", "two at once"]
    assert [row["late outputs"] for row in found["by_kind"]] == [0, 1]
    assert found["memory"][2] == {"process": "n1", "second quarter, MB": 12, "last quarter, MB": 16, "most, MB": 17}
    text = page.markdown(found, "soak.png")
    assert "| batches lost, duplicated, different, never corrected | 0, 0, 0, 0 |" in text
    assert "| two at once | 1 | 1 | 0.25 | 1 | 3.5 | 7.0 |" in text
    assert "--seed 7" in text
    write_figure(page.picture(found), tmp_path / "soak.png")
    assert (tmp_path / "soak.png").stat().st_size > 10_000


def test_outputs_are_late_because_of_the_driver_until_it_has_caught_up() -> None:
    soak = Soak(9, 1, began=0.0)
    soak.failures = [
        Injected(PlannedFailure("node:n1", 0, "hang", 5.0), 1.0),
        Injected(PlannedFailure("driver", 3), 3.5),
        Injected(PlannedFailure("node:n2", 5, "hang", 5.0), 20.0),
    ]
    delays = [(1.0, 0.5), (2.0, 2.5), (3.0, 0.5), (19.0, 15.0), (21.0, 9.0), (22.0, 1.0), (26.0, 3.0)]
    outputs = [OutputPublished(at, i, 1, "accurate", 1.0, (), 1, "x", delay) for i, (at, delay) in enumerate(delays)]
    assert late_without_driver(soak, outputs) == 2


def test_a_soak_that_stopped_early_is_not_good_and_says_why() -> None:
    soak = soaked()
    soak.stopped = "no node has the ledger"
    found = document(soak, checked(soak.seen.events))
    assert found["good"] is False
    assert "The run stopped early: no node has the ledger" in page.markdown(found, "soak.png")
