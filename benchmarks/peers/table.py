"""The table: one row per system, failure and sink, over several runs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from math import inf, isinf
from statistics import median
from typing import Any

import plotly.graph_objects as go

from benchmarks.peers.measure import Figures

FAILURES = {"kill": "killed", "hang": "hung"}
_COLOURS = {"kill": "#4c78a8", "hang": "#e45756"}


@dataclass(frozen=True)
class Measured:
    """The figures of one run at one sink."""

    system: str
    failure: str
    sink: str
    others: float
    """The share of the machine that other programs took during the run."""
    figures: Figures

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def rows(runs: Iterable[Measured]) -> list[dict[str, object]]:
    """The table of all runs; lost, repeated and wrong rows are sums over the runs."""
    groups: dict[tuple[str, str, str], list[Measured]] = {}
    for run in runs:
        groups.setdefault((run.failure, run.system, run.sink), []).append(run)
    found: list[dict[str, object]] = []
    for (failure, system, sink), members in sorted(groups.items(), key=lambda item: list(FAILURES).index(item[0][0])):
        group = [one.figures for one in members]
        backs = [inf if one.back is None else one.back for one in group]
        found.append(
            {
                "one of the hosts": FAILURES[failure],
                "system": system,
                "output": sink,
                "silence, median, s": _seconds(median(one.silence for one in group)),
                "worst, s": _seconds(max(one.silence for one in group)),
                "rows lost": sum(one.lost for one in group),
                "repeated": sum(one.duplicated for one in group),
                "wrong": sum(one.wrong for one in group),
                "latency back after, median, s": _seconds(median(backs)),
                "at worst, s": _seconds(max(backs)),
                "latency before, s": _seconds(median(one.latency for one in group)),
                "others, %": round(100 * max(one.others for one in members)),
                "runs": len(group),
            }
        )
    return found


def picture(table: list[dict[str, object]]) -> go.Figure:
    """The longest silence by system and failure, the median as a bar and the worst as a line above it."""
    figure = go.Figure()
    for failure, name in FAILURES.items():
        here = [row for row in table if row["one of the hosts"] == name]
        middle = [float(str(row["silence, median, s"])) for row in here]
        worst = [float(str(row["worst, s"])) - value for row, value in zip(here, middle, strict=True)]
        figure.add_bar(
            x=[f"{row['system']}<br>{row['output']}" for row in here],
            y=middle,
            name=f"host {name}",
            marker={"color": _COLOURS[failure]},
            error_y={"type": "data", "array": worst, "arrayminus": [0.0] * len(worst)},
        )
    figure.update_layout(
        template="plotly_white",
        title={"text": "Longest silence of the output, the normal interval of 1 s included", "x": 0.02},
        yaxis={"title": {"text": "seconds (logarithmic)"}, "type": "log", "dtick": 1},
        barmode="group",
        font={"size": 13},
        height=560,
    )
    return figure


def _seconds(value: float) -> float | str:
    return "not while watched" if isinf(value) else round(value, 2)
