"""Spark's progress as events, without a Spark."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from monitoring.collector import Collector
from monitoring.recorded import RecordedRun
from monitoring.records import Progress
from ppa_core.driver.progress import Listener
from ppa_core.engine.run_events import BatchProgress


def told(**change: Any) -> Any:
    known = {
        "batchId": 7, "timestamp": "2025-11-16T00:00:01.500Z", "numInputRows": 16_000, "inputRowsPerSecond": 15_999.96,
        "processedRowsPerSecond": float("nan"), "durationMs": {"addBatch": 512, "triggerExecution": 600, "newPhase": 3},
    }  # fmt: skip
    return SimpleNamespace(progress=SimpleNamespace(**{**known, **change}))


def test_a_progress_becomes_a_line_and_the_monitors_record() -> None:
    lines: list[BatchProgress] = []
    Listener(lines.append, lambda: 0).onQueryProgress(told())
    assert lines[0].durations == {"addBatch": 512, "triggerExecution": 600, "newPhase": 3}
    (record,) = Collector(RecordedRun().info).handle(lines[0])
    assert record == Progress(7, 1763251201.5, 16_000, 0.0, 0.0, (0, 0, 0, 0, 512, 0, 600), {"newPhase": 3})


def test_the_input_rate_is_by_the_time_since_rows_came_before_not_by_sparks_looks() -> None:
    lines: list[BatchProgress] = []
    listener = Listener(lines.append, lambda: 0)
    for timestamp, rows in (("01.000", 16_000), ("01.990", 0), ("02.000", 16_000), ("04.000", 16_000)):
        # 16,000 rows 10 ms after an idle look are 1.6 million rows/s to Spark
        listener.onQueryProgress(told(timestamp=f"2025-11-16T00:00:{timestamp}Z", numInputRows=rows, inputRowsPerSecond=1.6e6))
    assert [line.input_rate for line in lines] == [0.0, 0.0, 16_000.0, 8_000.0]


def test_what_spark_reports_wrongly_is_never_raised_into_spark() -> None:
    lines: list[BatchProgress] = []
    listener = Listener(lines.append, lambda: 0)
    for change in ({"timestamp": None}, {"durationMs": 7}, {"batchId": "x"}):
        listener.onQueryProgress(told(**change))
    listener.onQueryStarted(None)  # type: ignore[arg-type]
    listener.onQueryIdle(None)  # type: ignore[arg-type]
    listener.onQueryTerminated(None)  # type: ignore[arg-type]
    assert lines == []
