"""The planners page."""

from __future__ import annotations

import re

import pytest
from streamlit.testing.v1 import AppTest

from monitoring.connection import Address
from monitoring.recorded import record
from ppa_core.planners import plan
from ppa_core.topology import Family, dumps, generate, load_example, names
from tests.pages.driving import ROOT, marked_up, opened, said
from tests.pages.recording import QUIET, hostile, script

pytestmark = pytest.mark.slow


def test_planners_side_by_side_with_what_they_pick_and_why() -> None:
    page = opened("planners", topology="tree", budget="9")
    assert not page.exception
    compared, chosen, steps = (table.value for table in page.dataframe)
    assert list(compared["planner"]) == ["greedy", "dp", "structure_aware", "exact"]
    best = plan(load_example("tree"), 9, "exact")
    assert compared.set_index("planner").loc["exact", "OF"] == best.of
    assert compared.set_index("planner").loc["exact", "gap"] == 0
    assert compared.set_index("planner").loc["greedy", "gap"] > 0
    assert list(chosen.loc[chosen["exact"] == "chosen", "task"]) == list(best.tasks)
    assert list(steps["why"]) == [step.note for step in plan(load_example("tree"), 9, "greedy").steps]
    page.selectbox(key="steps").set_value("exact").run()
    assert list(page.dataframe[2].value["why"]) == [step.note for step in best.steps]


@pytest.mark.parametrize("example", names())
def test_every_shipped_topology_opens(example: str) -> None:
    page = opened("planners", topology=example)
    assert f"{example}: " in said(page)


def test_planners_that_are_chosen_are_compared() -> None:
    page = opened("planners", topology="q2", budget="5")
    page.multiselect(key="planners").set_value(["full", "greedy"]).run()
    assert list(page.dataframe[0].value["planner"]) == ["full", "greedy"]
    page.multiselect(key="planners").set_value([]).run()
    assert "Select at least one planner" in said(page)


def test_running_pipeline_is_planned(address: Address, run: str) -> None:
    page = opened("planners", pipeline=str(record(address, script(run, QUIET))))
    assert "tree: 5 operators, 31 tasks, 16 of them external" in said(page)
    assert page.slider(key="budget").value == 5


def test_hostile_names_are_text() -> None:
    page = opened("planners", source="file")
    page.file_uploader[0].set_value(("mine.json", dumps(hostile()).encode(), "application/json")).run()
    assert "<b>" not in marked_up(page)
    assert "<img" not in marked_up(page)


def test_curve_ends_with_its_time_and_says_so() -> None:
    topology = generate(Family(operators=(10, 10), tasks=(10, 20), zipf=1, joins=0.5), 3)
    page = opened("planners", source="file", planners="exact")
    page.file_uploader[0].set_value(("large.json", dumps(topology).encode(), "application/json")).run()
    page.number_input[1].set_value(1.0).run()
    assert re.search(r"exact: only \d+ budgets? computed within the time limit of 1 s\.", said(page))


def test_app_opens_with_the_live_page() -> None:
    app = AppTest.from_file(ROOT / "pages" / "navigation.py", default_timeout=60).run()
    assert app.title[0].value == "Live"
    assert "No monitor is available." in said(app)
