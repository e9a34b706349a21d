"""The report of an incident as one self-contained HTML page. Pure.

Its template is `templates/report.html`. Everything that was read from the monitor is escaped: by Jinja2 in the page, and by
`_label` in the plots.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from html import escape
from typing import Any, NamedTuple

import plotly.graph_objects as go
from jinja2 import Environment, PackageLoader, StrictUndefined

from monitoring.incidents import count
from monitoring.records import StoredEvent
from monitoring.sentences import listed, sentence
from monitoring.views import IncidentReport
from ppa_core.engine.event_codec import kind_of
from ppa_core.plots import shortened

# The palette of Okabe and Ito for colour-blind readers, as in all figures of this project.
COLOURS = {
    "running": "#009E73", "replicated": "#0072B2", "failed": "#D55E00", "taken_over": "#56B4E9",
    "recovering": "#E69F00", "tentative": "#CC79A7",
}  # fmt: skip
_FONT = "Source Sans, Open Sans, Helvetica, Arial, sans-serif"
MAX_ROWS = 500
MAX_TASKS = 60

_TEMPLATES = Environment(
    loader=PackageLoader("monitoring"), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
)


class _Table(NamedTuple):
    """The first rows of a table, and the total number of rows."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    of: int


def html(report: IncidentReport) -> str:
    """The report as a page. It contains plotly's script, so it needs no network."""
    figures = {
        "Output fidelity over time": of_figure(report),
        "Predicted and measured fidelity of tentative batches": accuracy_figure(report),
        "Recovery of each task": recovery_figure(report),
        "Time until correction": correction_figure(report),
    }
    return _TEMPLATES.get_template("report.html").render(
        title=f"{shortened(report.info.name, 60)}: incident {report.incident.id}",
        font=_FONT,
        summary=_summary(report),
        figures=[(heading, _div(figure, i)) for i, (heading, figure) in enumerate(figures.items())],
        tables=[("Events", _events(report.events)), ("Recovery", _recoveries(report)), ("Batches", _batches(report))],
    )


def _div(figure: go.Figure, number: int) -> str:
    """A figure as HTML; the first one includes plotly's script. Texts in it were escaped by `_label`."""
    return str(figure.to_html(full_html=False, include_plotlyjs=number == 0, div_id=f"figure{number}"))


def of_figure(report: IncidentReport) -> go.Figure:
    """OF over time, the time range of the incident, and its events."""
    figure = go.Figure()
    batches = report.batches
    for status, name in (("accurate", "accurate"), ("tentative", "tentative"), ("corrected", "tentative, corrected later")):
        chosen = [batch for batch in batches if batch.status == status]
        colour = {"accurate": COLOURS["running"], "tentative": COLOURS["failed"], "corrected": COLOURS["tentative"]}[status]
        figure.add_scatter(
            x=[_when(batch.at) for batch in chosen], y=[batch.of for batch in chosen], name=name, mode="markers",
            marker={"color": colour, "size": 7}, customdata=[batch.batch for batch in chosen],
            hovertemplate="batch %{customdata}: OF %{y:.4f}<extra></extra>",
        )  # fmt: skip
    events = [stored.event for stored in report.events[:MAX_ROWS]]
    figure.add_scatter(
        x=[_when(event.at) for event in events], y=[1.06] * len(events), name="events", mode="markers",
        marker={"symbol": "triangle-down", "size": 10, "color": "#000000"}, text=[_label(kind_of(event)) for event in events],
        hovertemplate="%{text}<extra></extra>",
    )  # fmt: skip
    end = report.incident.until or (batches[-1].at if batches else report.incident.since)
    figure.add_vrect(x0=_when(report.incident.since), x1=_when(end), fillcolor="#E69F00", opacity=0.12, line_width=0)
    return _laid_out(figure, "time (UTC)", "output fidelity (OF)", {"range": [-0.03, 1.12]})


def accuracy_figure(report: IncidentReport) -> go.Figure:
    """For every tentative batch: its predicted OF, and the share of the accurate output that it had."""
    chosen = [batch for batch in report.batches if batch.status != "accurate"]
    measured = [batch for batch in chosen if batch.accuracy is not None]
    figure = go.Figure()
    figure.add_scatter(
        x=[batch.batch for batch in chosen], y=[batch.of for batch in chosen], name="predicted (OF)",
        mode="lines+markers", line={"color": COLOURS["replicated"], "shape": "hv"}, marker={"symbol": "diamond", "size": 7},
    )  # fmt: skip
    figure.add_scatter(
        x=[batch.batch for batch in measured], y=[batch.accuracy for batch in measured], name="measured",
        mode="markers", marker={"color": COLOURS["failed"], "symbol": "x", "size": 8},
    )  # fmt: skip
    return _laid_out(figure, "batch", "share of the accurate output", {"range": [-0.03, 1.03]})


def recovery_figure(report: IncidentReport) -> go.Figure:
    """The states of each task over time."""
    figure = go.Figure()
    tasks = sorted({task for change in report.changes for task in change.states})[:MAX_TASKS]
    spans: dict[str, list[tuple[str, float, float]]] = {}
    end = 1.0 + max([report.incident.until or report.incident.since, *(change.at for change in report.changes)])
    for task in tasks:
        known = [(change.at, change.states[task]) for change in report.changes if task in change.states]
        ends = [*(at for at, _ in known[1:]), end]
        for (at, state), until in zip(known, ends, strict=True):
            spans.setdefault(state, []).append((task, at, until))
    for kind, rows in spans.items():
        figure.add_bar(
            y=[_label(task) for task, _, _ in rows], x=[1000 * (until - at) for _, at, until in rows],
            base=[_when(at) for _, at, _ in rows], orientation="h", name=kind.replace("_", " "),
            marker={"color": COLOURS[kind]},
            customdata=[until - at for _, at, until in rows], hovertemplate="%{y}: %{customdata:.1f} s",
        )  # fmt: skip
    laid = _laid_out(
        figure,
        "time (UTC)",
        "",
        {"autorange": "reversed", "type": "category", "categoryarray": [_label(task) for task in tasks]},
    )
    laid.update_layout(barmode="overlay", height=max(300, 130 + 24 * len(tasks)))
    laid.update_xaxes(type="date")
    return laid


def correction_figure(report: IncidentReport) -> go.Figure:
    """Seconds until each tentative batch was corrected."""
    chosen = [batch for batch in report.batches if batch.corrected_at is not None]
    figure = go.Figure()
    figure.add_bar(
        x=[batch.batch for batch in chosen], y=[(batch.corrected_at or 0.0) - batch.at for batch in chosen],
        marker={"color": COLOURS["tentative"]}, name="corrected after", hovertemplate="batch %{x}: %{y:.2f} s<extra></extra>",
    )  # fmt: skip
    return _laid_out(figure, "batch", "seconds until corrected", {"rangemode": "tozero"})


def _laid_out(figure: go.Figure, x: str, y: str, axis: dict[str, Any]) -> go.Figure:
    figure.update_layout(
        template="plotly_white", height=380, showlegend=True, hovermode="closest",
        xaxis={"title": {"text": x}}, yaxis={"title": {"text": y}, **axis},
        font={"family": _FONT, "size": 14}, margin={"l": 70, "r": 30, "t": 30, "b": 60},
    )  # fmt: skip
    return figure


def _summary(report: IncidentReport) -> list[tuple[str, str]]:
    incident = report.incident
    waits = [batch.corrected_at - batch.at for batch in report.batches if batch.corrected_at is not None]
    return [
        ("pipeline", f"{report.info.name}, run {report.info.run}"),
        ("began", f"{_clock(incident.since)}, after batch {incident.batch}"),
        ("ended", f"{_clock(incident.until)}, {incident.until - incident.since:.1f} s later" if incident.until else "not yet"),
        ("nodes lost", listed(incident.nodes)),
        ("reason", incident.reason or "unknown"),
        ("tasks failed", listed(incident.failed)),
        ("tasks taken over by their replica", listed(incident.taken_over)),
        ("tentative batches", f"{count(incident.tentative)}: {_spans(incident.tentative)}" if incident.tentative else "none"),
        ("first tentative output", _after(incident.first_tentative, incident.since)),
        ("failed tasks recovered to the batch where they failed", _after(incident.recovered, incident.since)),
        ("lowest OF predicted", _share(incident.predicted)),
        (
            "accuracy measured",
            f"{_share(incident.accuracy)}, mean of {incident.measured} batches" if incident.measured else "-",
        ),
        ("batches corrected", f"{count(incident.corrected)}: {_spans(incident.corrected)}" if incident.corrected else "none"),
        ("longest wait for a correction", f"{max(waits):.1f} s" if waits else "-"),
    ]


def _events(stored: Sequence[StoredEvent]) -> _Table:
    events = [each.event for each in stored[:MAX_ROWS]]
    rows = [(_clock(event.at), kind_of(event), str(event.batch), sentence(event)) for event in events]
    return _Table(("time", "event", "batch", "what happened"), rows, len(stored))


def _recoveries(report: IncidentReport) -> _Table:
    rows = [
        (each.task, _clock(each.failed), _after(each.recovering, each.failed), _after(each.whole, each.failed))
        for each in report.recoveries[:MAX_ROWS]
    ]
    return _Table(("task", "failed", "recovery began", "recovered"), rows, len(report.recoveries))


def _batches(report: IncidentReport) -> _Table:
    chosen = [batch for batch in report.batches if batch.status != "accurate"]
    rows = [
        (
            str(batch.batch), _clock(batch.at), batch.status, _share(batch.of), _share(batch.accuracy),
            _after(batch.corrected_at, batch.at), listed(batch.missing),
        )
        for batch in chosen[:MAX_ROWS]
    ]  # fmt: skip
    return _Table(("batch", "published", "status", "predicted OF", "measured", "corrected", "missing"), rows, len(chosen))


def _label(text: str) -> str:
    """A text for a plot; labels of plots may contain HTML."""
    return escape(shortened(text, 40))


def _when(at: float) -> datetime | None:
    try:
        return datetime.fromtimestamp(at, UTC)
    except (OverflowError, OSError, ValueError):  # out of range
        return None


def _clock(at: float | None) -> str:
    when = _when(at) if at is not None else None
    return when.strftime("%Y-%m-%d %H:%M:%S.%f")[:-3] + " UTC" if when else "-"


def _after(at: float | None, since: float | None) -> str:
    return f"after {at - since:.1f} s" if at is not None and since is not None else "-"


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"


def _spans(spans: Sequence[tuple[int, int]]) -> str:
    return listed([str(first) if first == last else f"{first}–{last}" for first, last in spans])
