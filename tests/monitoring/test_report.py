"""The incident report: whole, and nothing in it that a name could smuggle in."""

from __future__ import annotations

import re
from dataclasses import replace

from monitoring.recorded import RecordedRun
from monitoring.records import Incident, StoredEvent
from monitoring.report import MAX_ROWS, html, recovery_figure
from monitoring.task_records import StateChange
from monitoring.views import BatchRecord, IncidentReport, Recovery
from ppa_core.engine.run_events import FailedOver, JobFailed

HOSTILE = '</script><script>alert("x")</script><img src=x onerror=alert(1)>\u2028'


def report(text: str) -> IncidentReport:
    info = replace(RecordedRun().info, name=text, run=text)
    incident = Incident(
        "1", 100.0, 4, 110.0, (text,), text, (text,), (text,), ((5, 6), (8, 8)), ((5, 6),), 0.5, 0.4, 2, 101.0, 105.0
    )
    lost = FailedOver(100.0, 4, text, (text,), (text,), 0.5, cause="1")
    events = (StoredEvent(lost, "100-0"), StoredEvent(JobFailed(1e17, 4, text, cause="1")))
    batches = (
        BatchRecord(4, 99.0, "accurate", 1.0),
        BatchRecord(5, 101.0, "corrected", 0.5, 2, 10, (text,), 104.0, 0.4),
        BatchRecord(8, 104.0, "tentative", 0.5, 1, 10, (text,)),
    )
    changes = (StateChange(100.0, 4, "1", {text: "failed"}), StateChange(110.0, 9, "1", {text: "running"}))
    return IncidentReport(info, incident, events, batches, changes, (Recovery(text, 100.0, 100.5, 110.0),))


def test_everything_is_escaped() -> None:
    page = html(report(HOSTILE))
    safe = html(report("name"))
    for tag in ("<script", "</script", "<img", "onerror=alert(1)>"):
        assert page.count(tag) == safe.count(tag), tag


def test_a_name_that_is_a_template_is_shown_as_it_is() -> None:
    page = html(report("{{ 7 * 191 }}{% raw %}"))
    assert "<dd>{{ 7 * 191 }}{% raw %}</dd>" in page
    assert "1337" not in page[page.index("<body>") :].split("<script")[0]


def test_a_long_table_says_how_much_of_it_is_shown() -> None:
    one = report("n1")
    page = html(replace(one, recoveries=one.recoveries * (MAX_ROWS + 1)))
    assert f"<p>The first {MAX_ROWS} of {MAX_ROWS + 1}.</p>" in page
    assert page.count("<p>The first") == 1


def test_an_incident_that_goes_on_and_knows_little_has_a_report_too() -> None:
    little = IncidentReport(RecordedRun().info, Incident("1", 100.0, 4), (), (), (), ())
    page = html(little)
    assert "not yet" in page
    assert recovery_figure(little).data == ()


def test_the_summary_has_the_figures() -> None:
    page = html(report("n1"))
    for text in ("10.0 s later", "3: 5–6, 8", "after 1.0 s", "0.5000", "0.4000, mean of 2 batches", "after 10.0 s"):
        assert text in page


def test_the_page_needs_no_network() -> None:
    page = html(report("n1"))
    assert all(f'id="figure{i}"' in page for i in range(4))
    assert not re.search(r'<(script|link|img)[^>]+(src|href)="?http', page)
