"""Pictures: the curves that are drawn, and that files are what their names say."""

from __future__ import annotations

import re
import struct
from pathlib import Path

import pytest

from ppa_core import plots
from ppa_core.errors import RequestError, Unavailable
from ppa_core.fidelity import Metric
from ppa_core.planners import PLANNERS, Plan, Status
from ppa_core.topology import Build

HOSTILE = '</script><script>alert(1)</script><b>bold</b> & "quoted"'


def a_plan(planner: str, budget: int, *, of: float = 0.5, ic: float = 0.25, status: Status = Status.HEURISTIC) -> Plan:
    return Plan(planner, Metric.OF, budget, tuple(f"O.{n + 1}" for n in range(budget)), of, ic, status, None, 0.01)


@pytest.mark.parametrize("tasks", [1, 2, 31, 32, 33, 34, 100, 10_000])
def test_budget_grid_goes_from_none_to_all_in_few_steps(tasks: int) -> None:
    grid = plots.budget_grid(Build("log").source("L", 5, rate=1, external=True).operator("O", tasks, {"L": "full"}).done())
    assert (grid[0], grid[-1]) == (0, tasks)
    assert grid == sorted(set(grid))
    assert len(grid) == min(tasks + 1, 33)


def test_every_planner_has_its_own_colour_dash_or_marker() -> None:
    planners = [*PLANNERS, "another"]
    figure = plots.budget_curve([a_plan(planner, 1) for planner in planners], "tree", Metric.OF)
    looks = {(trace.line.dash, trace.marker.symbol) for trace in figure.data}
    assert len(looks) == len({trace.line.color for trace in figure.data}) == len(planners)
    assert {trace.name for trace in figure.data} == set(planners)


def test_curve_is_in_order_of_budget_and_says_how_many_tasks_and_what_is_proven() -> None:
    plans = [a_plan("exact", 2, of=0.75, status=Status.OPTIMAL), a_plan("exact", 1, of=0.5), a_plan("exact", 0, of=0.0)]
    (trace,) = plots.budget_curve(plans, "tree", Metric.OF).data
    assert list(trace.x) == [0, 1, 2]
    assert list(trace.y) == [0.0, 0.5, 0.75]
    assert [tuple(row) for row in trace.customdata] == [(0, "heuristic"), (1, "heuristic"), (2, "proven optimal")]


def test_axes_have_titles_with_units_and_the_marked_budget_a_line() -> None:
    figure = plots.budget_curve([a_plan("greedy", 3)], "tree", Metric.OF, marked=3)
    assert figure.layout.xaxis.title.text == "budget (number of tasks with an active replica)"
    assert "output fidelity" in figure.layout.yaxis.title.text
    assert figure.layout.shapes[0].x0 == 3
    assert "completeness (IC" in plots.budget_curve([], "tree", Metric.IC).layout.yaxis.title.text


def test_numbers_at_the_axes_are_free_of_markers_and_a_long_name_is_shortened() -> None:
    figure = plots.budget_curve([a_plan("greedy", 0), a_plan("greedy", 100)], "N" * 500, Metric.OF)
    low, high = figure.layout.xaxis.range
    assert low < 0 < 100 < high
    assert figure.layout.title.text == "N" * 59 + "…"
    assert plots.shortened("日本語", 4) == "日…"
    assert plots.shortened("tree", 4) == "tree"


def test_planner_asked_for_a_few_budgets_gets_no_line() -> None:
    plans = [a_plan("greedy", 0), a_plan("exact", 0)]
    modes = {trace.name: trace.mode for trace in plots.budget_curve(plans, "tree", Metric.OF, sparse=["exact"]).data}
    assert modes == {"greedy": "lines+markers", "exact": "markers"}


def test_html_stands_by_itself_and_names_are_text(tmp_path: Path) -> None:
    target = tmp_path / "curve.html"
    plots.write_figure(plots.budget_curve([a_plan("greedy", 3)], HOSTILE, Metric.OF), target)
    page = target.read_text(encoding="utf-8")
    assert "alert(1)</script>" not in page
    assert "<b>bold</b>" not in page
    assert not re.search(r"<(script|link|img)[^>]+(src|href)=", page)  # nothing is fetched
    assert "Plotly.newPlot" in page


@pytest.mark.slow
def test_png_is_a_png_of_the_size_asked_for(tmp_path: Path) -> None:
    target = tmp_path / "curve.png"
    plots.write_figure(plots.budget_curve([a_plan("greedy", 3)], HOSTILE, Metric.OF), target)
    content = target.read_bytes()
    assert content.startswith(b"\x89PNG\r\n\x1a\n")
    width, height = struct.unpack(">II", content[16:24])
    assert (width, height) == (plots.WIDTH * plots.SCALE, plots.HEIGHT * plots.SCALE)
    assert content.endswith(b"IEND\xaeB`\x82")


def test_files_that_cannot_be_written_are_refused_with_the_reason(tmp_path: Path) -> None:
    figure = plots.budget_curve([a_plan("greedy", 3)], "tree", Metric.OF)
    folder = tmp_path / "folder.png"
    folder.mkdir()
    for target, reason in [
        (tmp_path / "curve.gif", "ends in .png or .html"),
        (folder, "is a folder"),
        (tmp_path / "nowhere" / "curve.png", "there is no folder"),
        (tmp_path / ("x" * 300 + ".html"), "cannot be written"),
    ]:
        with pytest.raises(RequestError, match=reason):
            plots.write_figure(figure, target)
    assert list(tmp_path.iterdir()) == [folder]


def test_png_renderer_that_does_not_start_names_the_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    from kaleido.scopes.plotly import PlotlyScope

    monkeypatch.setattr(PlotlyScope, "executable_path", classmethod(lambda _: "/no/such/renderer"))
    with pytest.raises(Unavailable, match=r"write a \.html file instead"):
        plots.png(plots.budget_curve([a_plan("greedy", 3)], "tree", Metric.OF))
