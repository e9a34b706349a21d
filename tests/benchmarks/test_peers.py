"""The comparison with Flink and Spark: what is computed from a run's results, and what the other systems are told."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from benchmarks.peers import flink, flink_environment, ppa, spark, work
from benchmarks.peers.measure import BEFORE, FAIL_AT, Figures, Seen, against_exact, back, figures, longest_silence, normal
from benchmarks.peers.others import Others, share
from benchmarks.peers.table import Measured, picture, rows
from benchmarks.peers.watching import Tail, parsed
from benchmarks.peers.work import Row, exact
from ppa_core.drills.report import Seen as Events
from ppa_core.driver.output_log import OutputLog
from ppa_core.driver.records import PublishedOutput

ZERO = 1000.0


def results(window: int, at: float) -> list[Row]:
    return [Row(at, window, key, count, total) for key, (count, total) in exact(window).items()]


def run(latencies: dict[int, float], last: int, normally: float = 0.5) -> Seen:
    """A run with these latencies, and the normal one everywhere else."""
    seen = Seen(ZERO)
    for window in range(1, last + 1):
        if window == FAIL_AT + 1:
            seen.fail(ZERO + FAIL_AT + normally)
        seen.add(results(window, ZERO + window + latencies.get(window, normally)))
    return seen


# ------------------------------------------------------------------------------------------------------------------ the work


def test_an_exact_window_counts_every_tuple_of_its_seconds_once() -> None:
    for window in (1, 7, work.WINDOW, work.WINDOW + 5):
        seconds = min(window, work.WINDOW)
        assert sum(count for count, _ in exact(window).values()) == seconds * work.SOURCES * work.RATE


def test_an_exact_window_is_what_counting_tuple_by_tuple_gives() -> None:
    keys, values = (np.concatenate(part) for part in zip(*(work.tuples(s, 0, 2000) for s in range(work.SOURCES)), strict=True))
    assert exact(2)[7] == ((keys == 7).sum(), values[keys == 7].sum())


def test_the_sql_that_flink_and_spark_share_is_the_arithmetic_of_the_exact_results() -> None:
    keys, values = work.tuples(3, 41, 42)
    mixed = eval(work.MIXED.format(number="n").replace("MOD", "divmod"), {"n": 3 * work.LENGTH + 41, "divmod": divmod})[1]
    assert (mixed % work.KEYS, mixed // work.KEYS % work.KEYS) == (keys[0], values[0])


def test_ppa_reads_the_same_tuples() -> None:
    table = work._batch(np.random.default_rng(), 5, 2)
    keys, values = work.tuples(5, 2000, 3000)
    assert (table["key"].to_pylist(), table["value"].to_pylist()) == (keys.tolist(), values.tolist())


# -------------------------------------------------------------------------------------------------------------- the figures


def test_a_run_without_trouble_has_gaps_of_one_second_and_nothing_lost() -> None:
    found = figures(run({}, FAIL_AT + 10), ZERO + 60)
    assert found == Figures(pytest.approx(1.0), 0, 0, 0, pytest.approx(1.0), pytest.approx(0.5))  # type: ignore[arg-type]


def test_silence_is_the_longest_gap_after_the_warm_up() -> None:
    late = {FAIL_AT + 1: 6.5, FAIL_AT + 2: 5.5, FAIL_AT + 3: 4.5}
    warming = dict.fromkeys(range(1, FAIL_AT - BEFORE), 30.0)
    assert longest_silence(run(late | warming, FAIL_AT + 12), ZERO + 60) == pytest.approx(7.0)


def test_silence_that_never_ended_lasts_until_the_end() -> None:
    assert longest_silence(run({}, FAIL_AT), ZERO + FAIL_AT + 0.5 + 40) == pytest.approx(40.0)


def test_latency_is_back_with_the_first_of_five_windows_that_are_as_before() -> None:
    late = {FAIL_AT + 1: 3.5, FAIL_AT + 2: 2.5, FAIL_AT + 3: 1.5}
    assert back(run(late, FAIL_AT + 8)) == pytest.approx(4.0)
    assert back(run(late, FAIL_AT + 7)) is None, "only four windows were seen"


def test_one_slow_window_among_five_does_not_count() -> None:
    assert back(run({FAIL_AT + 3: 0.9}, FAIL_AT + 8)) == pytest.approx(1.0)


def test_latency_that_stays_above_110_percent_is_never_back() -> None:
    assert back(run(dict.fromkeys(range(FAIL_AT + 1, FAIL_AT + 20), 0.6), FAIL_AT + 19)) is None


def test_normal_latency_is_that_of_the_windows_before_the_failure() -> None:
    assert normal(run(dict.fromkeys(range(1, FAIL_AT - BEFORE + 1), 9.0), FAIL_AT + 1)) == pytest.approx(0.5)


def test_a_window_appears_with_its_last_row() -> None:
    seen, window = Seen(ZERO), results(1, ZERO + 1.5)
    seen.add(window[:-1])
    assert seen.newest == 0
    seen.add([Row(ZERO + 2.0, *(getattr(window[-1], name) for name in ("window", "key", "count", "total")))])
    assert seen.appeared == {1: ZERO + 2.0}


def test_a_system_that_catches_up_is_not_steady() -> None:
    falling = {window: 40.0 - window for window in range(1, FAIL_AT + 1)}
    assert not run(falling, FAIL_AT).steady()
    assert run({}, FAIL_AT).steady()
    assert not run({}, FAIL_AT - 1).steady(), "its windows are not full"


def test_rows_lost_repeated_and_wrong_are_counted_one_by_one() -> None:
    good = results(1, ZERO) + results(2, ZERO)
    assert against_exact(good, 2) == (0, 0, 0)
    assert against_exact(good[1:], 2) == (1, 0, 0)
    assert against_exact([*good, good[3]], 2) == (0, 1, 0)
    wrong = Row(ZERO, 1, good[0].key, good[0].count + 1, good[0].total)
    assert against_exact([wrong, *good[1:]], 2) == (0, 0, 1)
    assert against_exact([wrong, *good], 2) == (0, 1, 0), "the last one counts"
    assert against_exact([*good, *results(3, ZERO)[:5]], 2) == (0, 0, 0), "a window that is not complete yet is left out"


def published(batch: int, revision: int, status: str, rows: int, at: float) -> PublishedOutput:
    columns = {"key": range(rows), "count": [1] * rows, "total": [2] * rows}
    table = pa.table({name: pa.array(values, pa.int64()) for name, values in columns.items()})
    return PublishedOutput(batch, revision, status, 1.0, (), table, at, delay=at - ZERO - batch - 1 if revision == 1 else None)


def test_results_of_ppa_are_the_first_with_rows_and_the_accurate_ones(tmp_path: Path) -> None:
    log, events = OutputLog(tmp_path), Events(failed_at=[ZERO + 1.0])
    for one in (
        published(0, 1, "accurate", 3, ZERO + 1.5),
        published(1, 1, "tentative", 2, ZERO + 2.5),
        published(2, 1, "tentative", 0, ZERO + 5.0),
        published(1, 2, "correction", 3, ZERO + 6.0),
        published(2, 2, "correction", 3, ZERO + 6.5),
    ):
        events.events.append(log.write(one))
    found = ppa.outputs(events, log)
    assert found[ppa.FIRST].appeared == {1: ZERO + 1.5, 2: ZERO + 2.5, 3: ZERO + 6.5}
    assert found[ppa.ACCURATE].appeared == {1: ZERO + 1.5, 2: ZERO + 6.0, 3: ZERO + 6.5}
    assert [len(found[name].rows) for name in (ppa.FIRST, ppa.ACCURATE)] == [8, 9]
    assert found[ppa.FIRST].zero == pytest.approx(ZERO)


# ------------------------------------------------------------------------------------------------------------------- reading


def test_rows_are_read_from_lines_of_both_systems() -> None:
    lines = [b"3> +I[31, 5, 480, 1234]", b"[32, 6, 1, 2]", b"Starting taskexecutor", b"+I[31, 5, 48"]
    assert list(parsed(lines, 7.0)) == [Row(7.0, 31, 5, 480, 1234), Row(7.0, 32, 6, 1, 2)]


def test_a_tail_returns_only_whole_new_lines(tmp_path: Path) -> None:
    tail, path = Tail(), tmp_path / "out"
    assert tail.lines(path) == []
    path.write_bytes(b"one\ntw")
    assert tail.lines(path) == [b"one"]
    path.write_bytes(b"one\ntwo\n")
    assert tail.lines(path) == [b"two"]
    assert tail.lines(path) == []


# ---------------------------------------------------------------------------------------------------- what systems are told


def test_everything_of_flink_is_on_loopback() -> None:
    settings = flink.configuration(Path("/run"), 1, 2, flink.TUNED)
    places = [value for key, value in settings.items() if key.endswith(("address", "host"))]
    assert len(places) == 6
    assert set(places) == {"127.0.0.1"}
    assert settings["heartbeat.timeout"] == "2 s"


def test_two_task_managers_have_slots_for_the_whole_job() -> None:
    assert (len(flink.NAMES) - 1) * flink.SLOTS >= work.SOURCES


def test_the_busiest_task_manager_fails_and_not_one_that_is_idle() -> None:
    def vertex(**running: int) -> dict[str, object]:
        return {"taskmanagers": [{"taskmanager-id": name, "status-counts": {"RUNNING": n}} for name, n in running.items()]}

    assert flink.most_running([vertex(idle=0, one=5, two=6), vertex(one=2, two=2)]) == "two"


def test_a_flink_job_knows_the_time_of_its_first_row() -> None:
    job = flink.job_description(12.5, Path("/run/output"))
    assert "pace(MOD(f0, 600000), 12500)" in job["columns"]["ts"]
    assert json.loads(json.dumps(job)) == job


def test_flink_is_installed_from_pins_with_hashes_and_nothing_else() -> None:
    command = flink_environment.install_command(Path("/venv/bin/python"))
    assert {"--require-hashes", "--no-deps"} <= set(command)
    pins = flink_environment.PINS.read_text()
    assert "apache-flink==2.3." in pins
    assert pins.count("==") <= pins.count("--hash")


def test_the_start_of_sparks_rate_source_is_in_its_own_file() -> None:
    assert spark.source_start("v1\n1700000000123") == 1_700_000_000.123


def test_settings_of_a_spark_job_are_added_to_those_of_all() -> None:
    settings = spark.job_description("spark://127.0.0.1:1", Path("/run"), spark.TUNED)["settings"]
    assert settings["spark.driver.bindAddress"] == "127.0.0.1"
    assert settings["spark.network.timeout"] == "3s"


# ----------------------------------------------------------------------------------------------------------------- the table


def test_others_took_what_was_busy_without_our_own_part() -> None:
    assert share(busy=8.0, own=3.0, total=20.0) == 0.25
    assert share(busy=2.0, own=3.0, total=20.0) == 0.0
    with Others() as others:
        sum(number * number for number in range(300_000))
    assert 0 <= others.share <= 1


def test_the_table_has_medians_worsts_and_sums() -> None:
    runs = [
        Measured("Flink", "kill", "files", 0.1, Figures(silence, 1, 2, 3, took, 0.5))
        for silence, took in ((3.0, 4.0), (5.0, None), (4.0, 6.0))
    ]
    (row,) = rows(runs)
    assert row["silence, median, s"] == 4.0
    assert row["worst, s"] == 5.0
    assert row["latency back after, median, s"] == 6.0
    assert row["at worst, s"] == "not while watched"
    assert (row["rows lost"], row["repeated"], row["wrong"], row["runs"]) == (3, 6, 9, 3)


def test_the_picture_has_a_bar_per_system_and_failure() -> None:
    figure = Figures(1.0, 0, 0, 0, 1.0, 0.5)
    drawn = picture(rows([Measured("PPA", how, "accurate", 0.0, figure) for how in ("kill", "hang")]))
    assert [len(bar.x) for bar in drawn.data] == [1, 1]
