"""The live page against recorded runs."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from monitoring.connection import URL_VARIABLE, Address
from monitoring.reader import MonitorReader
from monitoring.recorded import RecordedRun, record
from monitoring.server import start
from tests.pages.driving import marked_up, opened, said
from tests.pages.recording import CLOSED, OPEN, QUIET, OwnPlay, hostile, large, script, write


def legend(page: AppTest) -> dict[str, str]:
    """What the picture of the topology counts, by state."""
    (chart,) = page.get("plotly_chart")
    names = [trace.get("name", "") for trace in json.loads(chart.proto.spec)["data"]]
    return dict(name.rsplit(": ", 1) for name in names if ": " in name)


def texts(page: AppTest) -> list[str]:
    """Every label and hover text of the picture."""
    found: list[str] = []
    for chart in page.get("plotly_chart"):
        for trace in json.loads(chart.proto.spec)["data"]:
            for field in ("text", "hovertext"):
                value: Any = trace.get(field) or []
                found += [value] if isinstance(value, str) else value
    return found


def test_run_without_incident_is_accurate_throughout(address: Address, run: str) -> None:
    record(address, script(run, QUIET))
    page = opened("live", pipeline=f"tree@{run}")
    values = {metric.label: metric.value for metric in page.metric}
    assert values["Current output fidelity (OF)"] == "1.0000"
    assert "batch 39, accurate, 1 000 rows" in said(page)
    assert "incident" not in said(page)
    assert legend(page) == {"external source": "16", "running, replicated": "5", "running": "10"}
    assert page.query_params["pipeline"] == f"tree@{run}"


def test_open_incident_says_what_failed_and_what_the_output_is_worth(address: Address, run: str) -> None:
    pipeline = record(address, script(run, OPEN))
    now = MonitorReader(address).state(pipeline)
    assert now is not None
    assert now.incident is not None
    page = opened("live", pipeline=str(pipeline))
    assert page.metric[0].value == f"{now.of:.4f}"
    assert f"{len(now.incident.failed)} tasks failed" in said(page)
    counted = legend(page)
    assert counted["recovering"] == str(len(now.incident.failed))
    assert counted["taken over by its replica"] == str(len(now.incident.taken_over))
    assert "tentative, OF" in said(page)


def test_closed_incident_leaves_corrected_outputs(address: Address, run: str) -> None:
    record(address, script(run, CLOSED))
    page = opened("live", pipeline=f"tree@{run}")
    assert page.metric[0].value == "1.0000"
    assert set(legend(page)) == {"external source", "running, replicated", "running"}


def test_selected_task_shows_everything_that_is_known_of_it(address: Address, run: str) -> None:
    pipeline = record(address, script(run, OPEN))
    page = opened("live", pipeline=str(pipeline))
    page.selectbox(key="task").set_value("O2.3").run()
    shown = said(page)
    for word in ("node: s", "rack: s", "input rate: ", "state size: 240.0 kB", "checkpoint age: ", "replica is behind by: "):
        assert word in shown
    assert "MC-trees lost if it fails: 4 of 16, 25.0 %" in shown
    assert opened("live", pipeline=str(pipeline), task="O4.1").selectbox(key="task").value == "O4.1"


def test_external_task_has_no_state(address: Address, run: str) -> None:
    record(address, script(run, QUIET))
    page = opened("live", pipeline=f"tree@{run}", task="S.1")
    assert "external source" in said(page)


def test_thousand_tasks_are_operators_until_one_is_opened(address: Address, run: str) -> None:
    write(address, OwnPlay(large(), script(run, QUIET, "large", budget=100)))
    page = opened("live", pipeline=f"large@{run}")
    assert legend(page)["running"] == "700"
    assert sum(text.startswith("100 ") for text in texts(page)) == 10
    page.multiselect(key="opened").set_value(["J"]).run()
    assert sum("<b>J." in text for text in texts(page)) == 100


def test_names_from_the_pipeline_are_text(address: Address, run: str) -> None:
    play = OwnPlay(hostile(), script(run, OPEN, "<b>x</b>", budget=3, rack="<b>r1</b>"), ("<b>r1</b>", "**r2**"))
    pipeline = write(address, play)
    page = opened("live", pipeline=str(pipeline), task="<img src=x onerror=alert(1).1")
    assert "<b>r1</b>" not in marked_up(page)
    assert "<img" not in marked_up(page)
    assert not any("<img" in text or "<i>" in text for text in texts(page))
    assert any("&lt;img" in text for text in texts(page))


def test_old_data_says_how_old(address: Address, run: str) -> None:
    record(address, script(run, QUIET))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pages.shared.reading.now", lambda: time.time() + 100)
        page = opened("live", pipeline=f"tree@{run}")
    assert any("No data from the pipeline for 1 min" in warning.value for warning in page.warning)
    assert any("Last data: " in warning.value for warning in page.warning)


def test_run_that_has_published_nothing_says_so(address: Address, run: str) -> None:
    record(address, script(run, 0))
    page = opened("live", pipeline=f"tree@{run}")
    assert "no output yet" in said(page)


def test_monitor_that_goes_leaves_the_last_data_with_its_time(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch, run: str
) -> None:
    with start(tmp_path_factory.mktemp("gone") / "m") as server:
        monkeypatch.setenv(URL_VARIABLE, server.address.current("reader"))
        record(server.address, script(run, QUIET))
        page = opened("live", pipeline=f"tree@{run}")
        assert not page.error
    time.sleep(1.1)
    page.run()
    assert any("this page shows old data. Last data: " in error.value for error in page.error)
    assert page.metric[0].value == "1.0000"
    assert "does not answer" in said(page)


@pytest.mark.parametrize("name", ["live", "failover", "incidents", "spark"])
def test_without_a_monitor_every_page_says_so(name: str) -> None:
    page = opened(name)
    assert "No monitor is available." in said(page)
    assert "does not answer" in said(page)
    assert not page.metric


@pytest.mark.parametrize("name", ["live", "failover", "incidents", "spark"])
def test_without_a_pipeline_every_page_says_so(
    name: str, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    with start(tmp_path_factory.mktemp("empty") / "m") as server:
        monkeypatch.setenv(URL_VARIABLE, server.address.current("reader"))
        assert "none has been started" in said(opened(name))


def test_unknown_pipeline_in_the_address_is_passed_over(address: Address, run: str) -> None:
    record(address, script(run, QUIET))
    assert "does not know" in said(opened("live", pipeline="nonsense"))


def test_play_that_is_written_is_the_one_that_ships(address: Address, run: str) -> None:
    pipeline = write(address, RecordedRun(script(run, QUIET)))
    assert MonitorReader(address).state(pipeline) is not None
