"""The plots of a benchmark run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from benchmarks.random_topologies import PLANNERS
from ppa_core.plots import look, write_figure


def write(result: dict[str, Any], folder: Path) -> list[Path]:
    """Write the plots for which the result has data, as PNG; returns their paths."""
    written = []
    for name, key, draw in (
        ("bench_accuracy", "accuracy", accuracy),
        ("bench_times", "planners", times),
        ("bench_random", "random_topologies", random_study),
    ):
        if result.get(key):
            path = folder / f"{name}.png"
            write_figure(draw(result[key]), path)
            written.append(path)
    return written


def accuracy(rows: list[dict[str, Any]]) -> go.Figure:
    """Predicted OF and measured accuracy by budget, one panel per query and metric."""
    queries, metrics = list(dict.fromkeys(row["query"] for row in rows)), ("of", "ic")
    titles = [f"{query}: plans made with {metric.upper()}" for metric in metrics for query in queries]
    figure = make_subplots(rows=2, cols=len(queries), subplot_titles=titles, shared_yaxes=True, shared_xaxes=True)
    for line, metric in enumerate(metrics, 1):
        for column, query in enumerate(queries, 1):
            here = [row for row in rows if (row["query"], row["metric"]) == (query, metric)]
            for name in dict.fromkeys(row["planner"] for row in here):
                mine, drawn = [row for row in here if row["planner"] == name], look(name)
                first = (line, column) == (1, 1)
                for value, dash in (("of", "dot"), ("accuracy", "solid")):
                    figure.add_scatter(
                        x=[row["budget"] for row in mine], y=[row[value] for row in mine], row=line, col=column,
                        name=f"{name}: {'OF predicted' if value == 'of' else 'accuracy measured'}", showlegend=first,
                        mode="lines+markers", marker={**drawn["marker"], "size": 9 if value == "accuracy" else 5},
                        line={"color": drawn["line"]["color"], "dash": dash},
                    )  # fmt: skip
    figure.update_layout(
        template="plotly_white",
        title={"text": "All primaries killed: predicted OF and measured accuracy", "x": 0.02},
        font={"size": 13},
        height=760,
        legend={"orientation": "h", "y": -0.12},
    )
    figure.update_xaxes(title={"text": "budget (share of the tasks)"}, row=2)
    figure.update_yaxes(title={"text": "share (0 to 1)"}, range=[-0.04, 1.04], col=1)
    return figure


def times(rows: list[dict[str, Any]]) -> go.Figure:
    """Seconds by number of tasks, both logarithmic, one curve per planner."""
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
    """Mean OF by replication ratio, one panel per setting, as in the paper's study."""
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
