"""The Spark page."""

from __future__ import annotations

import json

from monitoring.connection import Address
from monitoring.reader import MonitorReader
from monitoring.recorded import record
from pages.shared.series import overrun_chart, phase_rows, phases_chart
from tests.pages.driving import opened, said
from tests.pages.recording import CLOSED, script


def test_every_chart_has_data_and_every_axis_a_unit(address: Address, run: str) -> None:
    page = opened("spark", pipeline=str(record(address, script(run, CLOSED))))
    assert not page.exception
    charts = [json.loads(chart.proto.spec) for chart in page.get("vega_lite_chart")]
    assert len(charts) == 5
    for spec in charts:
        assert spec["encoding"]["x"]["title"] == "time (UTC)"
        assert spec["encoding"]["y"]["title"].endswith(")")
    assert {metric.label for metric in page.metric} == {"Input rate (rows/s)", "Processing rate (rows/s)", "Last trigger (s)"}


def test_run_without_progress_says_so(address: Address, run: str) -> None:
    assert "Spark has reported no progress yet." in said(opened("spark", pipeline=str(record(address, script(run, 0)))))


def test_phases_add_up_to_the_trigger(address: Address, run: str) -> None:
    pipeline = record(address, script(run, CLOSED))
    progress = MonitorReader(address).progress(pipeline)
    table = phases_chart(progress).data.to_pylist()
    for each in progress[:5]:
        parts = sum(row["seconds"] for row in table if row["batch"] == each.batch)
        assert abs(parts - each.durations["triggerExecution"] / 1000) < 1e-9
    assert phase_rows(progress)[0]["phase"] == "addBatch"
    overruns = [row["value"] for row in overrun_chart(progress, 0.5).data.to_pylist()]
    assert overruns == [max(0.0, p.durations["triggerExecution"] / 1000 - 0.5) for p in progress]
