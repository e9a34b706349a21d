"""OF and run time by budget, in the colours of the page. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go
import pyarrow as pa

from pages.shared.budgets import Points
from pages.shared.series import Chart, rows_table
from ppa_core.fidelity import Metric
from ppa_core.plots import budget_curve, look

_BLACK = "#000000"


def curve_figure(points: Sequence[Points], name: str, metric: Metric, budget: int, present: int | None, ink: str) -> go.Figure:
    """OF or IC of each planner's plans by budget, with lines at the selected budget and at that of the pipeline."""
    plans = [plan for each in points for plan in each.plans]
    sparse = [each.planner for each in points if each.sparse]
    figure = budget_curve(plans, name, metric, marked=budget, sparse=sparse)
    if present is not None:
        figure.add_vline(x=present, line={"color": ink, "dash": "dash", "width": 1})
        figure.add_annotation(
            x=present, y=0.02, yref="paper", text="current", showarrow=False, xanchor="left", yanchor="bottom", xshift=4,
            font={"color": ink},
        )  # fmt: skip
    figure.add_annotation(
        x=budget, y=0.98, yref="paper", text="selected", showarrow=False, xanchor="left", yanchor="top", xshift=4,
        font={"color": ink},
    )  # fmt: skip
    for trace in figure.data:
        if trace.line.color == _BLACK:  # drawn in the text colour of the page, which is light on a dark page
            trace.line.color = trace.marker.color = ink
    figure.update_layout(
        template="none", height=420, paper_bgcolor="rgba(0,0,0,0)", plot_bgcolor="rgba(0,0,0,0)",
        font={"color": ink, "size": 13}, margin={"l": 70, "r": 20, "t": 60, "b": 60},
    )  # fmt: skip
    figure.update_xaxes(gridcolor="rgba(128,128,128,0.25)")
    figure.update_yaxes(gridcolor="rgba(128,128,128,0.25)", zeroline=False)
    return figure


def time_chart(points: Sequence[Points]) -> Chart:
    """Run time of each planner by budget, on a logarithmic scale."""
    rows = [(plan.planner, plan.budget, max(plan.seconds, 1e-4)) for each in points for plan in each.plans]
    table = rows_table(rows, planner=pa.string(), budget=pa.int64(), seconds=pa.float64())
    names = list(dict.fromkeys(each.planner for each in points))
    shapes = {"exact": "circle", "structure_aware": "square", "greedy": "triangle-up", "dp": "cross", "default": "diamond"}
    colours = [_grey(str(look(name)["line"]["color"])) for name in names]
    what = {"field": "planner", "type": "nominal", "title": None, "legend": {"orient": "top"}}
    spec = {
        "height": 260,
        "mark": {"type": "point", "filled": True, "size": 50},
        "encoding": {
            "x": {"field": "budget", "type": "quantitative", "title": "budget (maximum number of tasks with a replica)"},
            "y": {"field": "seconds", "type": "quantitative", "title": "time for one plan (s)", "scale": {"type": "log"}},
            "color": {**what, "scale": {"domain": names, "range": colours}},
            "shape": {**what, "scale": {"domain": names, "range": [shapes.get(name, "triangle-down") for name in names]}},
            "tooltip": [{"field": "planner"}, {"field": "budget"}, {"field": "seconds", "format": ".4f", "title": "s"}],
        },
    }
    return Chart(table, spec)


def _grey(colour: str) -> str:
    return "#7F7F7F" if colour == _BLACK else colour
