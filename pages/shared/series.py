"""Time series as Vega-Lite charts, which are updated in place every second. Pure.

A `Chart` is a table and a specification. Every axis has a unit. Times are in UTC.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from monitoring.records import Progress
from monitoring.task_records import TaskColumns
from monitoring.views import BatchRecord
from pages.shared.looks import STATUS_COLOURS, STATUS_LETTERS

_MOMENT = pa.timestamp("ms", "UTC")
CELLS = 60
"""Batches in the strip."""
_REST = "other"
_PHASES = ["addBatch", "queryPlanning", "walCommit", "commitOffsets", "latestOffset", "getBatch", _REST]
_TIME: dict[str, Any] = {
    "field": "at", "type": "temporal", "title": "time (UTC)", "scale": {"type": "utc"},
    "axis": {"format": "%H:%M:%S", "labelOverlap": True, "tickCount": 8},
}  # fmt: skip
_WHEN = {"field": "at", "type": "temporal", "title": "time (UTC)", "format": "%Y-%m-%d %H:%M:%S", "formatType": "time"}
_STATUS: dict[str, Any] = {
    "field": "status", "type": "nominal", "title": None,
    "scale": {"domain": list(STATUS_COLOURS), "range": list(STATUS_COLOURS.values())},
    "legend": {"orient": "top"},
}  # fmt: skip


@dataclass(frozen=True)
class Chart:
    """Data and specification of a chart."""

    data: pa.Table
    spec: dict[str, Any]


def batch_table(batches: Sequence[BatchRecord]) -> pa.Table:
    """One row per batch; missing values are null."""
    waits = [None if b.corrected_at is None else round(b.corrected_at - b.at, 3) for b in batches]
    return pa.table(
        {
            "batch": pa.array([b.batch for b in batches], pa.int64()),
            "at": times([b.at for b in batches]),
            "status": pa.array([b.status for b in batches], pa.string()),
            "letter": pa.array([STATUS_LETTERS[b.status] for b in batches], pa.string()),
            "of": pa.array([b.of for b in batches], pa.float64()),
            "accuracy": pa.array([b.accuracy for b in batches], pa.float64()),
            "rows": pa.array([b.rows for b in batches], pa.int64()),
            "corrected after": pa.array(waits, pa.float64()),
        }
    )


def of_chart(batches: Sequence[BatchRecord], height: int = 230) -> Chart:
    """The OF over time, with a symbol for each output that was tentative at first."""
    line = {
        "mark": {"type": "line", "interpolate": "step-after", "color": "#0072B2", "strokeWidth": 2},
        "encoding": {"x": _TIME, "y": _of_axis("OF (0 to 1)")},
    }
    marks = {
        "transform": [{"filter": "datum.status != 'accurate'"}],
        "mark": {"type": "point", "filled": True, "size": 45},
        "encoding": {
            "x": _TIME,
            "y": _of_axis("OF (0 to 1)"),
            "color": _STATUS,
            "shape": {"field": "status", "type": "nominal", "scale": _shapes(), "legend": {"orient": "top"}, "title": None},
            "tooltip": _tooltips(),
        },
    }
    return Chart(batch_table(batches), {"height": height, "layer": [line, marks]})


def strip_chart(batches: Sequence[BatchRecord]) -> Chart:
    """The last batches, one cell each, with a colour and a letter for the status."""
    x = {"field": "batch", "type": "ordinal", "title": "batch (number)", "axis": {"labelAngle": 0, "labelOverlap": "parity"}}
    cells = {
        "mark": {"type": "rect", "height": 26, "stroke": "#FFFFFF", "strokeOpacity": 0.6},
        "encoding": {"x": x, "color": {**_STATUS, "legend": None}, "tooltip": _tooltips()},
    }
    letters = {
        "mark": {"type": "text", "color": "#000000", "fontSize": 11, "fontWeight": "bold"},
        "encoding": {"x": x, "text": {"field": "letter"}, "tooltip": _tooltips()},
    }
    return Chart(batch_table(batches[-CELLS:]), {"height": 95, "layer": [cells, letters]})


def accuracy_chart(batches: Sequence[BatchRecord]) -> Chart:
    """Predicted OF and measured accuracy of each batch that was tentative at first."""
    chosen = [batch for batch in batches if batch.status != "accurate"]
    rows = [(b.batch, "predicted OF", b.of) for b in chosen]
    rows += [(b.batch, "measured accuracy", b.accuracy) for b in chosen if b.accuracy is not None]
    table = rows_table(rows, batch=pa.int64(), what=pa.string(), value=pa.float64())
    names = ["predicted OF", "measured accuracy"]
    what: dict[str, Any] = {"field": "what", "type": "nominal", "title": None, "legend": {"orient": "top"}}
    spec = {
        "height": 300,
        "mark": {"type": "point", "filled": True, "size": 70},
        "encoding": {
            "x": {"field": "batch", "type": "quantitative", "title": "batch (number)", "scale": {"zero": False, "nice": False},
                  "axis": {"tickMinStep": 1, "format": "d"}},
            "y": {"field": "value", "type": "quantitative", "title": "share of accurate output",
                  "scale": {"domain": [0, 1]}},
            "color": {**what, "scale": {"domain": names, "range": ["#0072B2", "#D55E00"]}},
            "shape": {**what, "scale": {"domain": names, "range": ["diamond", "cross"]}},
            "tooltip": [{"field": "batch"}, {"field": "what", "title": "share"}, {"field": "value", "format": ".4f"}],
        },
    }  # fmt: skip
    return Chart(table, spec)


# ----------------------------------------------------------------------------------------------------------------- Spark


def rates_chart(progress: Sequence[Progress]) -> Chart:
    """Input and processing rate of Spark."""
    rates = {"input": [p.input_rate for p in progress], "processing": [p.processed_rate for p in progress]}
    return _lines([p.at for p in progress], rates, "rate (rows/s)")


def phases_chart(progress: Sequence[Progress]) -> Chart:
    """Duration of triggers by phase; `other` is the time that belongs to no phase."""
    rows: list[tuple[Any, ...]] = []
    for p in progress:
        phases = {name: value for name, value in p.durations.items() if name != "triggerExecution"}
        rest = p.durations.get("triggerExecution", 0) - sum(phases.values())
        rows += [(moment(p.at), p.batch, name, value / 1000) for name, value in phases.items() if value > 0]
        rows += [(moment(p.at), p.batch, _REST, rest / 1000)] if rest > 0 else []
    table = rows_table(rows, at=_MOMENT, batch=pa.int64(), phase=pa.string(), seconds=pa.float64())
    spec = {
        "height": 300,
        "mark": {"type": "area", "interpolate": "step-after", "line": False},
        "encoding": {
            "x": _TIME,
            "y": {"field": "seconds", "type": "quantitative", "stack": True, "title": "duration (s)"},
            "color": {
                "field": "phase",
                "type": "nominal",
                "title": None,
                "legend": {"orient": "top", "columns": 3},
                "scale": {
                    "domain": _PHASES,
                    "range": ["#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#999999"],
                },
            },
            "tooltip": [_WHEN, {"field": "batch"}, {"field": "phase"}, {"field": "seconds", "format": ".3f", "title": "s"}],
        },
    }
    return Chart(table, spec)


def phase_rows(progress: Sequence[Progress]) -> list[dict[str, object]]:
    """Mean duration of the phases, longest first."""
    sums: dict[str, int] = {}
    for p in progress:
        for name, value in p.durations.items():
            sums[name] = sums.get(name, 0) + value
    whole = sums.pop("triggerExecution", 0) or sum(sums.values())
    ordered = sorted(sums.items(), key=lambda item: -item[1])
    return [{"phase": n, "mean (ms)": v / len(progress), "share": v / whole if whole else 0.0} for n, v in ordered]


def overrun_chart(progress: Sequence[Progress], batch_seconds: float) -> Chart:
    """The time that each trigger took beyond the batch interval."""
    overruns = [max(0.0, p.durations.get("triggerExecution", 0) / 1000 - batch_seconds) for p in progress]
    return _lines([p.at for p in progress], {"overrun": overruns}, "overrun (s)", 0.1)


def checkpoint_chart(figures: Sequence[TaskColumns]) -> Chart:
    """Size of the task checkpoints of each batch."""
    sizes = [
        sum(size for size, made in zip(c.checkpoint_bytes, c.checkpoint_batch, strict=True) if made == c.batch) / 1e6
        for c in figures
    ]
    return _lines([c.at for c in figures], {"task checkpoints": sizes}, "size (MB)", 0.001)


def log_chart(progress: Sequence[Progress]) -> Chart:
    """Time for Spark's offset log and commit log."""
    durations = [p.durations for p in progress]
    took = {"offsets": [d.get("walCommit", 0) for d in durations], "commits": [d.get("commitOffsets", 0) for d in durations]}
    return _lines([p.at for p in progress], took, "time (ms)")


def _lines(at: Sequence[float], columns: dict[str, list[Any]], unit: str, least: float = 1.0) -> Chart:
    """Named columns over time, each with a colour and a dash; the axis extends from 0 to at least `least`."""
    names = list(columns)
    rows = [(moment(when), name, value) for name in names for when, value in zip(at, columns[name], strict=True)]
    table = rows_table(rows, at=_MOMENT, what=pa.string(), value=pa.float64())
    what: dict[str, Any] = {"field": "what", "type": "nominal", "title": None, "legend": {"orient": "top"}}
    colours, dashes = ["#0072B2", "#D55E00", "#009E73"], [[1, 0], [6, 3], [2, 2]]
    spec = {
        "height": 260,
        "mark": {"type": "line", "interpolate": "step-after"},
        "encoding": {
            "x": _TIME,
            "y": {"field": "value", "type": "quantitative", "title": unit, "scale": {"domain": {"unionWith": [0, least]}}},
            "color": {**what, "scale": {"domain": names, "range": colours[: len(names)]}},
            "strokeDash": {**what, "scale": {"domain": names, "range": dashes[: len(names)]}},
            "tooltip": [_WHEN, {"field": "what"}, {"field": "value", "format": ",.3~f", "title": unit}],
        },
    }
    return Chart(table, spec)


def _of_axis(title: str) -> dict[str, Any]:
    return {
        "field": "of",
        "type": "quantitative",
        "title": title,
        "scale": {"domain": [0, 1]},
        "axis": {"values": [0, 0.25, 0.5, 0.75, 1], "format": ".2f"},
    }


def _shapes() -> dict[str, Any]:
    return {"domain": list(STATUS_COLOURS), "range": ["circle", "triangle-up", "diamond"]}


def _tooltips() -> list[dict[str, Any]]:
    return [
        {"field": "batch"},
        {"field": "status", "title": "output"},
        {"field": "of", "format": ".4f", "title": "predicted OF"},
        {"field": "accuracy", "format": ".4f", "title": "measured accuracy"},
        {"field": "rows"},
        {"field": "corrected after", "format": ".1f", "title": "corrected after (s)"},
        _WHEN,
    ]


def rows_table(rows: Sequence[tuple[Any, ...]], **columns: Any) -> pa.Table:
    """Rows as a table with columns of these types."""
    values = zip(*rows, strict=True) if rows else ((),) * len(columns)
    return pa.table({name: pa.array(list(c), kind) for (name, kind), c in zip(columns.items(), values, strict=True)})


def times(at: Sequence[float]) -> pa.Array:
    return pa.array([moment(each) for each in at], _MOMENT)


def moment(at: float) -> datetime | None:
    """Seconds since 1970 as a time; None if it is out of range."""
    try:
        return datetime.fromtimestamp(at, UTC)
    except (OverflowError, OSError, ValueError):
        return None
