"""The incidents page: list, replay, report."""

from __future__ import annotations

import json

from streamlit.testing.v1 import AppTest

from monitoring.connection import Address
from monitoring.reader import MonitorReader
from monitoring.recorded import record
from pages.shared.replay import batches_at, plan_at, span, states_at
from tests.pages.driving import marked_up, opened, said
from tests.pages.recording import CLOSED, OPEN, QUIET, OwnPlay, hostile, script, write


def marks(page: AppTest) -> dict[str, str]:
    names = [trace.get("name", "") for trace in json.loads(page.get("plotly_chart")[0].proto.spec)["data"]]
    return dict(name.rsplit(": ", 1) for name in names if ": " in name)


def test_run_without_incident_says_so(address: Address, run: str) -> None:
    assert "This run has had no incidents." in said(opened("incidents", pipeline=str(record(address, script(run, QUIET)))))


def test_incident_can_be_replayed_moment_by_moment(address: Address, run: str) -> None:
    pipeline = record(address, script(run, CLOSED))
    (incident,) = MonitorReader(address).incidents(pipeline)
    page = opened("incidents", pipeline=str(pipeline), incident=incident.id)
    assert page.slider(key=f"moment {incident.id}").value == 1.0
    assert marks(page)["recovering"] == str(len(incident.failed))
    page.slider(key=f"moment {incident.id}").set_value(-5.0).run()
    assert "recovering" not in marks(page)
    page.slider(key=f"moment {incident.id}").set_value(page.slider(key=f"moment {incident.id}").max).run()
    assert "recovering" not in marks(page)
    assert "0 outputs tentative" in said(page)
    assert page.query_params["incident"] == incident.id


def test_predicted_and_measured_are_those_of_the_incident(address: Address, run: str) -> None:
    pipeline = record(address, script(run, CLOSED))
    (incident,) = MonitorReader(address).incidents(pipeline)
    page = opened("incidents", pipeline=str(pipeline))
    values = {metric.label: metric.value for metric in page.metric}
    assert values["Lowest predicted OF"] == f"{incident.predicted:.4f}"
    assert values["Measured accuracy"] == f"{incident.accuracy:.4f}"
    assert page.dataframe[0].value["incident"][0] == incident.id
    assert page.get("download_button")


def test_open_incident_goes_on(address: Address, run: str) -> None:
    page = opened("incidents", pipeline=str(record(address, script(run, OPEN))))
    assert page.dataframe[0].value["duration"][0] == "in progress"
    assert not page.exception


def test_unknown_incident_in_the_address_is_passed_over(address: Address, run: str) -> None:
    page = opened("incidents", pipeline=str(record(address, script(run, CLOSED))), incident="nonsense")
    assert not page.exception
    assert page.metric


def test_hostile_names_are_text(address: Address, run: str) -> None:
    play = OwnPlay(hostile(), script(run, CLOSED, "x", budget=3, rack="<b>r1</b>"), ("<b>r1</b>", "**r2**"))
    page = opened("incidents", pipeline=str(write(address, play)))
    assert not page.exception
    assert "<b>r1" not in marked_up(page)
    assert "<img" not in marked_up(page)


def test_outputs_were_tentative_until_they_were_corrected(address: Address, run: str) -> None:
    pipeline = record(address, script(run, CLOSED))
    reader = MonitorReader(address)
    report = reader.incident(pipeline, reader.incidents(pipeline)[0].id)
    assert report is not None
    corrected = [batch for batch in report.batches if batch.corrected_at is not None]
    moment = (corrected[0].corrected_at or 0.0) - 0.01
    then = {batch.batch: batch for batch in batches_at(report, moment)}
    assert then[corrected[0].batch].status == "tentative"
    assert then[corrected[0].batch].accuracy is None
    after = {batch.batch: batch for batch in batches_at(report, moment + 0.02)}
    assert after[corrected[0].batch].status == "corrected"
    assert max(batch.at for batch in then.values()) <= moment
    first, last = span(report)
    assert first < 0 < last
    plans = reader.plans(pipeline)
    before, now = plan_at(report, plans, report.incident.since), plan_at(report, plans, report.incident.since + 1000)
    assert len(now) == len(before) + 3  # the recorded run takes a larger budget after its incident
    assert set(states_at(report, before, report.incident.since - 1).values()) == {"replicated"}
