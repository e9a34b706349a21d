"""Things over time, as tables and Vega-Lite drawings of them: these are updated in place every second. Pure.

A drawing is a `Chart`: its data and its specification. Every axis says its unit. Times are in UTC.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from monitoring.records import Progress, TaskColumns
from monitoring.views import BatchRecord
from pages.shared.looks import STATUS_COLOURS, STATUS_LETTERS

CELLS = 60
"""Batches in the strip."""
_TIME: dict[str, Any] = {
    "field": "at", "type": "temporal", "title": "time (UTC)", "scale": {"type": "utc"},
    "axis": {"format": "%H:%M:%S", "labelOverlap": True, "tickCount": 8},
}  # fmt: skip
_WHEN = {"field": "at", "type": "temporal", "title": "time (UTC)", "format": "%Y-%m-%d %H:%M:%S", "formatType": "time"}
_STATUS: dict[str, Any] = {
    "field": "status", "type": "nominal", "title": "output",
    "scale": {"domain": list(STATUS_COLOURS), "range": list(STATUS_COLOURS.values())},
    "legend": {"orient": "top"},
}  # fmt: skip


@dataclass(frozen=True)
class Chart:
    """What is drawn, and how."""

    data: pd.DataFrame
    spec: dict[str, Any]


def batch_table(batches: Sequence[BatchRecord]) -> pd.DataFrame:
    """One row a batch; times as timestamps, a missing figure as nothing."""
    columns = ("batch", "status", "of", "accuracy", "rows", "seconds", "attempts", "source_rows")
    table = pd.DataFrame({name: [getattr(batch, name) for batch in batches] for name in columns})
    for name in ("of", "accuracy", "seconds", "attempts", "source_rows"):
        table[name] = pd.to_numeric(table[name])
    table["at"] = _times([batch.at for batch in batches])
    table["letter"] = [STATUS_LETTERS[batch.status] for batch in batches]
    waits = [None if b.corrected_at is None else round(b.corrected_at - b.at, 3) for b in batches]
    table["corrected after"] = pd.to_numeric(pd.Series(waits, dtype="object"))
    return table


def of_chart(batches: Sequence[BatchRecord], height: int = 170) -> Chart:
    """The live OF over time, with a mark for each output that was not accurate at once."""
    line = {
        "mark": {"type": "line", "interpolate": "step-after", "color": "#0072B2", "strokeWidth": 2},
        "encoding": {"x": _TIME, "y": _of_axis("output fidelity (share, 0–1)")},
    }
    marks = {
        "transform": [{"filter": "datum.status != 'accurate'"}],
        "mark": {"type": "point", "filled": True, "size": 45},
        "encoding": {
            "x": _TIME,
            "y": _of_axis("output fidelity (share, 0–1)"),
            "color": _STATUS,
            "shape": {"field": "status", "type": "nominal", "scale": _shapes(), "legend": {"orient": "top"}, "title": "output"},
            "tooltip": _tooltips(),
        },
    }
    return Chart(batch_table(batches), {"height": height, "layer": [line, marks]})


def strip_chart(batches: Sequence[BatchRecord]) -> Chart:
    """The last batches, one cell each, with its colour and its letter."""
    x = {"field": "batch", "type": "ordinal", "title": "batch (number)", "axis": {"labelAngle": 0, "labelOverlap": "parity"}}
    cells = {
        "mark": {"type": "rect", "height": 26, "stroke": "#FFFFFF", "strokeOpacity": 0.6},
        "encoding": {"x": x, "color": _STATUS, "tooltip": _tooltips()},
    }
    letters = {
        "mark": {"type": "text", "color": "#000000", "fontSize": 11, "fontWeight": "bold"},
        "encoding": {"x": x, "text": {"field": "letter"}, "tooltip": _tooltips()},
    }
    return Chart(batch_table(batches[-CELLS:]), {"height": 30, "layer": [cells, letters]})


def accuracy_chart(batches: Sequence[BatchRecord]) -> Chart:
    """For each batch that was tentative: the OF that was predicted, and the accuracy that was measured."""
    chosen = [batch for batch in batches if batch.status != "accurate"]
    rows = [(b.batch, "predicted (OF)", b.of) for b in chosen]
    rows += [(b.batch, "measured accuracy", b.accuracy) for b in chosen if b.accuracy is not None]
    table = pd.DataFrame(rows, columns=["batch", "what", "value"])
    names = ["predicted (OF)", "measured accuracy"]
    what: dict[str, Any] = {"field": "what", "type": "nominal", "title": None, "legend": {"orient": "top"}}
    spec = {
        "height": 240,
        "mark": {"type": "point", "filled": True, "size": 70},
        "encoding": {
            "x": {"field": "batch", "type": "quantitative", "title": "batch (number)", "scale": {"zero": False, "nice": False},
                  "axis": {"tickMinStep": 1, "format": "d"}},
            "y": {"field": "value", "type": "quantitative", "title": "share of the accurate output (0–1)",
                  "scale": {"domain": [0, 1]}},
            "color": {**what, "scale": {"domain": names, "range": ["#0072B2", "#D55E00"]}},
            "shape": {**what, "scale": {"domain": names, "range": ["diamond", "cross"]}},
            "tooltip": [{"field": "batch"}, {"field": "what", "title": "share"}, {"field": "value", "format": ".4f"}],
        },
    }  # fmt: skip
    return Chart(table, spec)


# ----------------------------------------------------------------------------------------------------------------- Spark


def rates_chart(progress: Sequence[Progress]) -> Chart:
    """What Spark read and what it could have processed."""
    table = pd.DataFrame(
        {
            "at": _times([p.at for p in progress]),
            "input": [p.input_rate for p in progress],
            "processing": [p.processed_rate for p in progress],
        }
    )
    return _lines(table, ["input", "processing"], "rate (rows/s)")


def phases_chart(progress: Sequence[Progress]) -> Chart:
    """What a trigger's time went into; the rest of the trigger is what no phase accounts for."""
    rows = []
    for p, at in zip(progress, _times([p.at for p in progress]), strict=True):
        told = {name: value for name, value in p.durations.items() if name != "triggerExecution"}
        rest = p.durations.get("triggerExecution", 0) - sum(told.values())
        rows += [(at, p.batch, name, value / 1000) for name, value in told.items() if value > 0]
        rows += [(at, p.batch, "rest of the trigger", rest / 1000)] if rest > 0 else []
    table = pd.DataFrame(rows, columns=["at", "batch", "phase", "seconds"])
    spec = {
        "height": 260,
        "mark": {"type": "area", "interpolate": "step-after", "line": False},
        "encoding": {
            "x": _TIME,
            "y": {"field": "seconds", "type": "quantitative", "stack": True, "title": "batch duration (s)"},
            "color": {"field": "phase", "type": "nominal", "title": "phase", "legend": {"orient": "top", "columns": 4}},
            "tooltip": [_WHEN, {"field": "batch"}, {"field": "phase"}, {"field": "seconds", "format": ".3f", "title": "s"}],
        },
    }
    return Chart(table, spec)


def lag_chart(progress: Sequence[Progress], batch_seconds: float) -> Chart:
    """By how much each trigger took longer than the interval it should keep."""
    lags = [max(0.0, p.durations.get("triggerExecution", 0) / 1000 - batch_seconds) for p in progress]
    table = pd.DataFrame({"at": _times([p.at for p in progress]), "trigger lag": lags})
    return _lines(table, ["trigger lag"], "time beyond the interval (s)")


def checkpoint_chart(figures: Sequence[TaskColumns]) -> Chart:
    """Bytes that the tasks' checkpoints took, by batch."""
    sizes = [
        sum(size for size, made in zip(c.checkpoint_bytes, c.checkpoint_batch, strict=True) if made == c.batch) / 1e6
        for c in figures
    ]
    table = pd.DataFrame({"at": _times([c.at for c in figures]), "checkpoints": sizes})
    return _lines(table, ["checkpoints"], "checkpoints of a batch (MB)")


def log_chart(progress: Sequence[Progress]) -> Chart:
    """What Spark's own log of offsets and commits took."""
    table = pd.DataFrame(
        {
            "at": _times([p.at for p in progress]),
            "offsets": [p.durations.get("walCommit", 0) for p in progress],
            "commits": [p.durations.get("commitOffsets", 0) for p in progress],
        }
    )
    return _lines(table, ["offsets", "commits"], "writing the log (ms)")


def _lines(table: pd.DataFrame, names: list[str], unit: str) -> Chart:
    """Named columns over time, each with its colour and its dash."""
    long = table.melt("at", names, "what", "value") if len(table) else pd.DataFrame(columns=["at", "what", "value"])
    what: dict[str, Any] = {"field": "what", "type": "nominal", "title": None, "legend": {"orient": "top"}}
    colours, dashes = ["#0072B2", "#D55E00", "#009E73"], [[1, 0], [6, 3], [2, 2]]
    spec = {
        "height": 220,
        "mark": {"type": "line", "interpolate": "step-after"},
        "encoding": {
            "x": _TIME,
            "y": {"field": "value", "type": "quantitative", "title": unit, "scale": {"zero": True}},
            "color": {**what, "scale": {"domain": names, "range": colours[: len(names)]}},
            "strokeDash": {**what, "scale": {"domain": names, "range": dashes[: len(names)]}},
            "tooltip": [_WHEN, {"field": "what"}, {"field": "value", "format": ",.3~f", "title": unit}],
        },
    }
    return Chart(long, spec)


def _of_axis(title: str) -> dict[str, Any]:
    return {"field": "of", "type": "quantitative", "title": title, "scale": {"domain": [0, 1]}, "axis": {"tickCount": 5}}


def _shapes() -> dict[str, Any]:
    return {"domain": list(STATUS_COLOURS), "range": ["circle", "triangle-up", "diamond"]}


def _tooltips() -> list[dict[str, Any]]:
    return [
        {"field": "batch"},
        {"field": "status", "title": "output"},
        {"field": "of", "format": ".4f", "title": "OF told"},
        {"field": "accuracy", "format": ".4f", "title": "accuracy measured"},
        {"field": "rows"},
        {"field": "corrected after", "format": ".1f", "title": "corrected after (s)"},
        _WHEN,
    ]


def _times(times: Sequence[float]) -> pd.Series[Any]:
    """Seconds as timestamps; those that no calendar has are nothing."""
    return pd.Series(pd.to_datetime(pd.Series(times, dtype="float64"), unit="s", utc=True, errors="coerce"))
