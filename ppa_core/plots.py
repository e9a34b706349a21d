"""Plots of plans: pure functions from plans to plotly figures, and writing a figure to a file."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from html import escape
from pathlib import Path
from typing import Any
from unicodedata import east_asian_width

import plotly.graph_objects as go

from ppa_core.errors import RequestError, Unavailable
from ppa_core.fidelity import Metric
from ppa_core.planners import Plan, Status
from ppa_core.topology import Topology

WIDTH, HEIGHT, SCALE = 1000, 560, 2
"""Size of a figure in points; a PNG has SCALE pixels per point."""

SUFFIXES = (".png", ".html")

_AXIS = {Metric.OF: "output fidelity (OF, 0 to 1)", Metric.IC: "completeness (IC, 0 to 1)"}
_STATUS = {Status.OPTIMAL: "proven optimal", Status.HEURISTIC: "heuristic", Status.TIME_LIMIT: "stopped at the limit"}

# Colour, dash and marker all distinguish the planners; the palette of Okabe and Ito is suitable for colour-blind readers.
_LOOKS = {
    "exact": ("#000000", "solid", "circle"),
    "default": ("#0072B2", "dash", "diamond"),
    "structure_aware": ("#009E73", "dot", "square"),
    "greedy": ("#D55E00", "dashdot", "triangle-up"),
    "dp": ("#CC79A7", "longdash", "star"),
    "structured": ("#56B4E9", "longdashdot", "triangle-down"),
    "full": ("#E69F00", "dot", "x"),
}
_HOVER = "%{y:.4f} with %{customdata[0]} tasks of budget %{x}, %{customdata[1]}"
_OTHER_LOOK = ("#7F7F7F", "dash", "cross")


def budget_grid(topology: Topology, most: int = 33) -> list[int]:
    """Budgets for a curve, from 0 to the number of replicable tasks: all, or `most` evenly spaced ones if there are more."""
    tasks = len(topology.tasks) - len(topology.external_tasks)
    if tasks < most:
        return list(range(tasks + 1))
    return [round(i * tasks / (most - 1)) for i in range(most)]


def budget_curve(
    plans: Sequence[Plan], name: str, metric: Metric, *, marked: int | None = None, sparse: Collection[str] = ()
) -> go.Figure:
    """The value of each planner's plans by budget, one curve per planner; `marked` draws a line at that budget.

    The planners in `sparse` have plans for a few budgets only: they get markers without a line. `name` is that of the topology;
    it is shown as plain text, and shortened if it is too long.
    """
    figure = go.Figure()
    largest = max([1, marked or 0, *(plan.budget for plan in plans)])
    for planner in sorted(dict.fromkeys(plan.planner for plan in plans), key=_drawing_order):
        rows = sorted((plan for plan in plans if plan.planner == planner), key=lambda plan: plan.budget)
        figure.add_scatter(
            x=[plan.budget for plan in rows],
            y=[plan.value for plan in rows],
            name=escape(planner),
            cliponaxis=False,
            customdata=[[len(plan.tasks), _STATUS[plan.status]] for plan in rows],
            hovertemplate=_HOVER + f"<extra>{escape(planner)}</extra>",
            **look(planner) | ({"mode": "markers"} if planner in sparse else {}),
        )
    if marked is not None:
        figure.add_vline(x=marked, line={"color": "#7F7F7F", "dash": "dot", "width": 1})
    figure.update_layout(
        template="plotly_white",
        title={
            "text": escape(shortened(name, 60)),
            "subtitle": {"text": "what a plan is worth when everything else fails"},
            "x": 0.02,
            "y": 0.96,
            "yanchor": "top",
        },
        xaxis={
            "title": {"text": "budget (number of tasks with an active replica)"},
            "range": [-0.03 * largest, 1.03 * largest],  # room, so that no marker hides the numbers at the axis
            "zeroline": False,
        },
        yaxis={"title": {"text": _AXIS[metric]}, "range": [-0.02, 1.03]},
        legend={"title": {"text": "planner"}},
        showlegend=True,
        font={"family": "Source Sans, Open Sans, Helvetica, Arial, sans-serif", "size": 15},
        margin={"l": 80, "r": 30, "t": 90, "b": 70},
        hovermode="closest",
    )
    return figure


def shortened(text: str, most: int) -> str:
    """The text, cut off with … if it is wider than `most` letters; a wide letter counts as two."""
    width = 0
    for i, letter in enumerate(text):
        width += 2 if east_asian_width(letter) in "WF" else 1
        if width > most:
            return text[: max(i - 1, 0)] + "…"
    return text


def look(planner: str) -> dict[str, Any]:
    """The style of a planner's curve, the same in every plot: arguments of a scatter trace."""
    colour, dash, symbol = _LOOKS.get(planner, _OTHER_LOOK)
    width = 4 if dash == "solid" else 2  # others stay visible on top of it
    return {
        "mode": "lines+markers",
        "line": {"color": colour, "dash": dash, "width": width},
        "marker": {"color": colour, "symbol": symbol, "size": 7},
    }


def _drawing_order(planner: str) -> int:
    """The optimum first and so beneath the others; planners that this file does not know last."""
    return list(_LOOKS).index(planner) if planner in _LOOKS else len(_LOOKS)


def check_target(path: Path) -> None:
    """Refuse a file that `write_figure` could not write, before time is spent on what it would show."""
    if path.suffix.lower() not in SUFFIXES:
        raise RequestError(str(path), f"a plot is written to a file that ends in {' or '.join(SUFFIXES)}")
    if os.path.isdir(path):  # noqa: PTH112 - it answers for any name, however long
        raise RequestError(str(path), "is a folder; name a file in it")
    if not os.path.isdir(path.parent):  # noqa: PTH112
        raise RequestError(str(path), f"there is no folder {str(path.parent)!r}; make it first")


def write_figure(figure: go.Figure, path: Path) -> None:
    """Write a figure: `.html` stands by itself without a network, `.png` needs no browser."""
    check_target(path)
    if path.suffix.lower() == ".png":
        content = png(figure, figure.layout.width or WIDTH, figure.layout.height or HEIGHT)
    else:
        content = figure.to_html(include_plotlyjs=True, full_html=True).encode("utf-8")
    try:
        path.write_bytes(content)
    except OSError as error:
        raise RequestError(str(path), f"cannot be written: {error.strerror}") from error


def png(figure: go.Figure, width: int = WIDTH, height: int = HEIGHT) -> bytes:
    """A figure as PNG, drawn by the renderer that comes with kaleido 0.2.1: no browser, no network."""
    # Imported here because only a PNG needs it, and it looks for its renderer when imported.
    import plotly
    from kaleido.scopes.plotly import PlotlyScope

    script = Path(plotly.__file__).parent / "package_data" / "plotly.min.js"
    try:
        scope = PlotlyScope(plotlyjs=str(script), mathjax=None)
        return bytes(scope.transform(figure.to_dict(), format="png", width=width, height=height, scale=SCALE))
    except (ValueError, OSError) as error:
        reason = str(error).strip().splitlines() or ["no reason given"]
        raise Unavailable(f"PNG: its renderer does not start here ({reason[-1]}); write a .html file instead") from error
