"""The pictures of a benchmark run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from benchmarks.random_topologies import PLANNERS
from ppa_core.plots import look, write_figure


def write(result: dict[str, Any], folder: Path) -> list[Path]:
    """Write what the result has data for, as PNG; the paths."""
    written = []
    for name, key, draw in (("bench_times", "planners", times), ("bench_random", "random_topologies", random_study)):
        if result.get(key):
            path = folder / f"{name}.png"
            write_figure(draw(result[key]), path)
            written.append(path)
    return written


def times(rows: list[dict[str, Any]]) -> go.Figure:
    """Seconds by number of tasks, both logarithmic, one curve a planner."""
    figure = go.Figure()
    for name in dict.fromkeys(row["planner"] for row in rows):
        here = [row for row in rows if row["planner"] == name]
        figure.add_scatter(x=[r["tasks"] for r in here], y=[r["seconds"] for r in here], name=name, **look(name))
    figure.update_layout(
        template="plotly_white",
        title={"text": "How each planner's time grows (10 operators, budget 30 % of the tasks)", "x": 0.02},
        xaxis={"title": {"text": "tasks"}, "type": "log"},
        yaxis={"title": {"text": "seconds"}, "type": "log"},
        font={"size": 15},
    )
    return figure


def random_study(rows: list[dict[str, Any]]) -> go.Figure:
    """Mean OF by replication ratio, one panel a setting, as in the paper's study."""
    panels = list(dict.fromkeys((row["experiment"], row["setting"]) for row in rows))
    columns = 4
    lines = -(-len(panels) // columns)
    titles = [f"{experiment}: {setting[:30]}" for experiment, setting in panels]
    figure = make_subplots(rows=lines, cols=columns, subplot_titles=titles, shared_yaxes=True, shared_xaxes=True)
    for k, panel in enumerate(panels):
        here = [row for row in rows if (row["experiment"], row["setting"]) == panel]
        for name in PLANNERS:
            figure.add_scatter(
                x=[row["ratio"] for row in here],
                y=[row[name] for row in here],
                name=name,
                legendgroup=name,
                showlegend=k == 0,
                row=k // columns + 1,
                col=k % columns + 1,
                **look(name),
            )
    figure.update_layout(
        template="plotly_white",
        title={"text": "Mean OF over random topologies", "x": 0.02},
        font={"size": 13},
        height=240 * lines + 100,
    )
    figure.update_xaxes(title={"text": "share of tasks replicated"}, row=lines)
    figure.update_yaxes(title={"text": "mean OF (0 to 1)"}, col=1)
    return figure
