"""The planning page, run by itself as a user would drive it."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from ppa_core.planners import plan
from ppa_core.topology import Build, Family, dumps, generate
from ppa_core.topology.examples import load_example, names

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "pages" / "planning.py"


def opened(**query: str) -> AppTest:
    page = AppTest.from_file(PAGE, default_timeout=60)
    for key, value in query.items():
        page.query_params[key] = value
    return page.run()


def shown(page: AppTest) -> dict[str, str]:
    assert not page.exception
    return {metric.label: metric.value for metric in page.metric}


def traces(page: AppTest) -> dict[str, Any]:
    (chart,) = page.get("plotly_chart")
    return {trace["name"]: trace for trace in json.loads(chart.proto.spec)["data"]}


def test_page_shows_what_the_planner_says() -> None:
    page = opened(planner="greedy", budget="12")
    found = plan(load_example("tree"), 12, "greedy")
    assert shown(page) == {
        "Output fidelity (OF)": f"{found.of:.4f}",
        "Completeness (IC)": f"{found.ic:.4f}",
        "Proven bound": "none",
        "Status": "heuristic",
        "Tasks replicated": f"{len(found.tasks)} of 31",
    }
    replicated, steps = (table.value for table in page.dataframe)
    assert [task for tasks in replicated["tasks"] for task in tasks] == list(found.tasks)
    assert list(steps["why"]) == [step.note for step in found.steps]
    assert {name: len(trace["x"]) for name, trace in traces(page).items()} == {"default": 32, "greedy": 32}
    assert not any(block.value.startswith("What a curve") for block in page.markdown)  # nothing of the code's own notes


def test_exact_says_what_it_proved() -> None:
    values = shown(opened(topology="loss_model", planner="exact", budget="3"))
    assert values["Status"] == "optimal"
    assert values["Proven bound"] == values["Output fidelity (OF)"]


@pytest.mark.slow
@pytest.mark.parametrize("example", names())
def test_every_shipped_topology_opens(example: str) -> None:
    page = opened(topology=example)
    shown(page)
    assert page.text[0].value.startswith(f"{example}: ")


def test_budget_comes_from_the_address_and_the_slider() -> None:
    page = opened(budget="20", planner="greedy")
    assert page.slider(key="budget").value == 20
    page.slider(key="budget").set_value(31).run()
    assert shown(page)["Tasks replicated"] == "31 of 31"
    assert shown(page)["Output fidelity (OF)"] == "1.0000"


@pytest.mark.slow
@pytest.mark.parametrize("nonsense", ["999", "-3", "many", "", "1e400"])
def test_nonsense_in_the_address_is_passed_over(nonsense: str) -> None:
    page = opened(budget=nonsense, topology=nonsense, planner=nonsense, metric=nonsense)
    assert shown(page)["Tasks replicated"] == "8 of 31"


def test_smaller_topology_takes_a_budget_that_fits() -> None:
    page = opened(budget="31", planner="greedy")
    page.selectbox(key="topology").set_value("loss_model").run()
    assert shown(page)["Tasks replicated"].endswith(" of 5")


def test_uploaded_file_is_planned_and_its_names_are_text() -> None:
    topology = Build("# big <b>x</b> $x$").source("**S**", 2, rate=1).operator("![i](http://x)", 1, {"**S**": "full"}).done()
    page = opened(planner="greedy")
    page.file_uploader[0].set_value(("mine.json", dumps(topology).encode(), "application/json")).run()
    assert shown(page)["Tasks replicated"].endswith(" of 3")
    assert page.text[0].value == "# big <b>x</b> $x$: 2 operators, 3 tasks"
    assert list(page.dataframe[0].value["operator"]) == ["**S**", "![i](http://x)"]
    assert not any("**S**" in block.value or "<b>" in block.value for block in page.markdown)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b'{"operators": [', "not valid JSON"),
        (b"\xff", "not UTF-8"),
        (b'{"operators": [{"name": "![i](http://x)", "tasks": 0, "rate": 1}]}', "number of tasks"),
    ],
)
def test_bad_file_gets_a_friendly_message_with_place_and_reason(content: bytes, reason: str) -> None:
    page = opened(planner="greedy")
    page.file_uploader[0].set_value(("bad.json", content, "application/json")).run()
    assert shown(page) == {}
    assert page.error[0].value == "This file is not a topology that can be planned."
    assert page.code[0].value.startswith("bad.json")
    assert reason in page.code[0].value


def test_topology_without_a_task_that_could_take_budget() -> None:
    topology = Build("log").source("S", 2, rate=1, external=True).done()
    page = opened()
    page.file_uploader[0].set_value(("log.json", dumps(topology).encode(), "application/json")).run()
    assert shown(page)["Output fidelity (OF)"] == "1.0000"
    assert shown(page)["Tasks replicated"] == "0 of 0"


def test_external_sources_are_not_counted_and_say_that_they_never_fail() -> None:
    page = opened(topology="q1", planner="greedy", budget="4")
    assert shown(page)["Tasks replicated"] == "4 of 13"
    assert page.dataframe[0].value["replicated"][0] == "external, never fails"
    assert "29 of them external" in page.text[0].value
    assert "external, never fails" in page.get("graphviz_chart")[0].proto.spec


@pytest.mark.slow
def test_curve_ends_with_its_time_and_says_which_budgets_it_has() -> None:
    topology = generate(Family(operators=(10, 10), tasks=(10, 20), zipf=1, joins=0.5), 3)
    page = opened(planner="greedy")
    page.selectbox(key="planner").set_value("exact")
    page.number_input[0].set_value(0.5)
    began = time.perf_counter()
    page.file_uploader[0].set_value(("large.json", dumps(topology).encode(), "application/json")).run()
    assert shown(page)["Tasks replicated"].endswith(f" of {len(topology.tasks)}")
    assert time.perf_counter() - began < 40  # 33 proofs and more take as long as they like
    drawn = traces(page)
    assert set(drawn) == {"default", "exact", "greedy"}
    assert (drawn["exact"]["mode"] == "markers") == any(c.value.startswith("exact: single points") for c in page.caption)
    page.slider(key="budget").set_value(1).run()
    assert set(traces(page)["exact"]["x"]) == {*drawn["exact"]["x"], 1}  # its time is spent: only the new plan is added


def test_app_starts_with_the_planning_page() -> None:
    app = AppTest.from_file(ROOT / "app.py", default_timeout=60).run()
    assert shown(app)["Tasks replicated"].endswith(" of 31")
