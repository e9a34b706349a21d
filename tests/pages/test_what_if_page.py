"""The what-if page, on files and on a running pipeline."""

from __future__ import annotations

import json
import re

import pytest
from streamlit.testing.v1 import AppTest

from monitoring.commands import ApplyPlan
from monitoring.connection import Address
from monitoring.reader import MonitorReader
from monitoring.recorded import record
from ppa_core.planners import plan
from ppa_core.topology import Build, dumps, load_example
from tests.pages.driving import answering, log_in, marked_up, opened, said
from tests.pages.recording import CLOSED, OPEN, QUIET, hostile, script

pytestmark = pytest.mark.slow


def metrics(page: AppTest) -> dict[str, str]:
    assert not page.exception, page.exception
    return {metric.label: metric.value for metric in page.metric}


def curve(page: AppTest) -> dict[str, int]:
    """How many budgets each planner's curve has."""
    spec = json.loads(page.get("plotly_chart")[0].proto.spec)
    return {trace["name"]: len(trace["x"]) for trace in spec["data"]}


def test_without_a_monitor_files_can_be_thought_about() -> None:
    page = opened("what_if", planner="greedy", budget="12")
    found = plan(load_example("tree"), 12, "greedy")
    values = metrics(page)
    assert values["Worst-case OF"] == f"{found.of:.4f}"
    assert values["Gain of one more replica"] == f"{plan(load_example('tree'), 13, 'greedy').of - found.of:+.4f}"
    assert values["Tasks replicated"] == "12 of 31"
    assert curve(page) == {"default": 32, "greedy": 32}
    assert "No monitor is available." in said(page)
    assert not any(button.label.startswith("Apply") for button in page.button)


def test_budget_comes_from_the_address_and_the_slider() -> None:
    page = opened("what_if", planner="greedy", budget="20")
    assert page.slider(key="budget").value == 20
    page.slider(key="budget").set_value(31).run()
    assert metrics(page)["Worst-case OF"] == "1.0000"
    page.selectbox(key="topology").set_value("loss_model").run()
    assert metrics(page)["Tasks replicated"].endswith(" of 5")


@pytest.mark.parametrize("nonsense", ["999", "-3", "many", "1e400"])
def test_nonsense_in_the_address_is_passed_over(nonsense: str) -> None:
    page = opened("what_if", budget=nonsense, topology=nonsense, planner=nonsense, source=nonsense)
    assert metrics(page)["Tasks replicated"] == "8 of 31"


def test_uploaded_names_are_text() -> None:
    page = opened("what_if", planner="greedy", source="file")
    page.file_uploader[0].set_value(("mine.json", dumps(hostile()).encode(), "application/json")).run()
    assert metrics(page)["Tasks replicated"].endswith(" of 9")
    assert any(text.value.startswith("# <b>x</b>: 4 operators") for text in page.text)
    assert "<b>" not in marked_up(page)
    spec = json.loads(page.get("plotly_chart")[0].proto.spec)
    assert spec["layout"]["title"]["text"] == "# &lt;b&gt;x&lt;/b&gt;"


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b'{"operators": [', "not valid JSON"),
        (b"\xff", "not UTF-8"),
        (b'{"operators": [{"name": "![i](http://x)", "tasks": 0, "rate": 1}]}', "number of tasks"),
    ],
)
def test_bad_file_gets_place_and_reason(content: bytes, reason: str) -> None:
    page = opened("what_if", source="file")
    page.file_uploader[0].set_value(("bad.json", content, "application/json")).run()
    assert metrics(page) == {}
    assert page.error[0].value == "This file is not a valid topology."
    assert reason in page.code[0].value


def test_topology_without_a_task_that_could_take_budget() -> None:
    topology = Build("log").source("S", 2, rate=1, external=True).done()
    page = opened("what_if", source="file")
    page.file_uploader[0].set_value(("log.json", dumps(topology).encode(), "application/json")).run()
    assert metrics(page)["Tasks replicated"] == "0 of 0"


def test_running_pipeline_begins_at_its_own_budget_and_planner(address: Address, run: str) -> None:
    page = opened("what_if", pipeline=str(record(address, script(run, QUIET))))
    assert page.slider(key="budget").value == 5
    assert page.selectbox(key="planner").value == "greedy"
    assert "Replicas kept: 5" in said(page)
    assert "Replicas added: none" in said(page)


def test_failing_racks_show_what_is_lost_now_and_with_the_budget(address: Address, run: str) -> None:
    page = opened("what_if", pipeline=str(record(address, script(run, CLOSED))))
    page.multiselect(key="failing").set_value(["rack:r2"]).run()
    few = float(metrics(page)["OF with the current replicas"])
    page.slider(key="budget").set_value(15).run()
    values = metrics(page)
    assert float(values["OF with the current replicas"]) == few < 1
    assert values["OF with a budget of 15"] == "1.0000"
    assert "MC-trees lost: 0 of 16" in said(page)
    assert "Expected recovery time: up to about" in said(page)
    assert "Median time until everything was corrected, over 1 earlier incident: " in said(page)


def test_prediction_is_what_the_incident_then_told(address: Address, run: str) -> None:
    """The recorded run loses rack r1 after batch 60: predicted before it, OF is what its tentative outputs said."""
    pipeline = record(address, script(run, 60))
    page = opened("what_if", pipeline=str(pipeline))
    page.multiselect(key="failing").set_value(["rack:r1"]).run()
    later = MonitorReader(address).state(record(address, script(f"{run}later", OPEN)))
    assert later is not None
    assert metrics(page)["OF with the current replicas"] == f"{later.of:.4f}"


def test_operator_applies_a_budget(address: Address, run: str, password: str) -> None:
    pipeline = record(address, script(run, QUIET))
    page = log_in(opened("what_if", pipeline=str(pipeline)), password)
    page.slider(key="budget").set_value(8).run()
    page.selectbox(key="planner").set_value("exact").run()
    with answering(address, pipeline, lambda token: ("done", "8 replicas")) as taken:
        page.button(key="apply").click().run()
        assert "Replicas added: " in said(page)
        assert "apply-plan of 8 replicas, budget 8, planner exact" in said(page)
        added = re.search(r"Replicas added: \d+ \((.*)\)", said(page))
        page.button(key="confirm").click().run()
    (command,) = (token.command for token in taken)
    assert isinstance(command, ApplyPlan)
    assert (command.budget, command.planner, len(command.tasks)) == (8, "exact", 8)
    assert added
    assert set(added[1].split(", ")) <= set(command.tasks), "what was promised is what is sent"
    assert "Command completed." in said(page)


def test_a_refusal_is_said(address: Address, run: str, password: str) -> None:
    pipeline = record(address, script(run, QUIET))
    page = log_in(opened("what_if", pipeline=str(pipeline), planner="exact"), password)
    with answering(address, pipeline, lambda token: ("failed", "not now")) as taken:
        page.button(key="apply").click().run()
        page.button(key="confirm").click().run()
    assert len(taken) == 1
    assert "planner exact: failed: not now" in said(page)
