"""The topology as a picture: tasks by state, replicated MC-trees, substreams with a width by their rate. Pure.

A picture has a bounded number of traces. It contains nothing that changes from batch to batch while states and plan stay
the same: an unchanged picture is not drawn again. Names are escaped, as texts in plotly may contain HTML.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape, unescape
from threading import Lock
from typing import Any

import numpy as np
import plotly.graph_objects as go

from pages.shared.looks import EXTERNAL, LOOKS, SEVERITY
from pages.shared.placing import ROWS, Floats, Ints, Positions, layout, lines, opened_by_default
from pages.shared.words import counted
from ppa_core.fidelity import Mask, compile_topology
from ppa_core.plots import shortened
from ppa_core.topology import Input, Topology, derive

WIDTHS = (1.0, 1.75, 2.75, 4.0, 6.0)
"""Of lines, in pixels, for rates from 0 to the highest."""
LABELS = 80
"""Up to this number of symbols, each has its name beside it."""
_LINE, _TREE = "#9A9A9A", "#0072B2"
_ROW, _HEIGHTS = 54, (280, 1250)
_LETTER, _ROOM = 7, 45
"""Pixels per letter, and pixels that a label at the side has in any case."""
_FLOW_STEPS = 8.0

Row = tuple[float, float, str, str, str, str]
"""Of a symbol: position, label, hover text, its task or operator, and the side of the label."""


@dataclass(frozen=True)
class Scene:
    """What is to be drawn: the state of each task, the plan, and further details of tasks."""

    topology: Topology
    states: Mapping[str, str]
    plan: frozenset[str] = frozenset()
    progress: Mapping[str, float] = field(default_factory=dict)
    """Of recovering tasks, from 0 to 1."""
    notes: Mapping[str, str] = field(default_factory=dict)
    """Further text for the tooltip of a task."""
    flows: Mapping[str, float] = field(default_factory=dict)
    """Current output rate of tasks, in tuples/s; the rate of the topology for other tasks."""
    selected: str = ""
    opened: frozenset[str] | None = None
    """Operators whose tasks are drawn; None decides by their number."""


def on_trees(topology: Topology, plan: Collection[str]) -> Mask:
    """The tasks of the MC-trees that the plan covers completely."""
    compiled = compile_topology(topology)
    alive = compiled.mask(topology.numbers(task for task in plan if task in topology.index))
    return np.asarray(alive & (compiled.slopes(alive[:, None])[:, 0] > 0))


def topology_figure(scene: Scene, ink: str) -> go.Figure:
    """The picture; `ink` is the text colour of the page. Pictures are cached and shared: do not change them."""
    opened = opened_by_default(scene.topology) if scene.opened is None else scene.opened
    drawn = layout(scene.topology, opened)
    wide = _widths(lines(drawn).rate * _factors(scene, drawn)[lines(drawn).up])
    key = (
        scene.topology, opened, scene.plan, scene.selected, ink, wide.tobytes(),
        *(tuple(known.items()) for known in (scene.states, scene.progress, scene.notes)),
    )  # fmt: skip
    with _lock:
        figure = _drawn.pop(key, None)
    if figure is None:
        figure = _draw(scene, drawn, wide, ink)
    with _lock:
        _drawn[key] = figure  # least recently used first
        while len(_drawn) > _KEPT:
            del _drawn[next(iter(_drawn))]
    return figure


_KEPT = 32
_drawn: dict[Hashable, go.Figure] = {}
_lock = Lock()


def _draw(scene: Scene, drawn: Positions, wide: Ints, ink: str) -> go.Figure:
    marks = [*_replicas(scene, drawn), *_marks(scene, drawn, ink), _heads(drawn, ink), *_ring(scene, drawn, ink)]
    figure = go.Figure([*_lines(scene, drawn, wide), *marks])
    blank = {"visible": False}  # not of a fixed range: plotly would take no clicks then
    side = max([0.4, *(abs(drawn.x - drawn.x.round()) + 0.4)])
    figure.update_layout(
        height=int(np.clip(_ROW * drawn.rows + 90, *_HEIGHTS)),
        margin={"l": _margin(marks, "middle left"), "r": _margin(marks, "middle right"), "t": 10, "b": 0},
        xaxis={**blank, "range": [-side, drawn.layers - 1 + side]},
        yaxis={**blank, "range": [-drawn.rows / 2 - 0.4, drawn.rows / 2 + 0.4]},
        legend={"orientation": "h", "yanchor": "top", "y": -0.02, "x": 0, "itemclick": False, "itemdoubleclick": False},
        showlegend=True,
        hovermode="closest",
        dragmode=False,
        uirevision="kept",
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
    )
    return figure


def _margin(marks: Sequence[go.Scatter], side: str) -> int:
    """Room for the labels that stand outside, on that side of the first or last layer."""
    sided = ((text, at) for mark in marks for text, at in zip(mark.text or (), mark.textposition or (), strict=False))
    longest = max((len(unescape(text.partition("<br>")[0])) for text, at in sided if at == side), default=0)
    return int(np.clip(_LETTER * longest - _ROOM, 0, 160))


def state_of(scene: Scene, task: int) -> str:
    """The state of a task as it is drawn."""
    if task in scene.topology.external_tasks:
        return EXTERNAL
    return scene.states.get(scene.topology.tasks[task], "running")


# ------------------------------------------------------------------------------------------------------------ substreams


def _lines(scene: Scene, drawn: Positions, wide: Ints) -> list[go.Scatter]:
    found = lines(drawn)
    tree = on_trees(scene.topology, scene.plan)
    marked = _any_on_tree(drawn, tree)
    both = marked[found.up] & marked[found.down]
    traces = []
    for on_tree in (False, True):
        for step, width in enumerate(WIDTHS):
            chosen = (wide == step) & (both == on_tree)
            if chosen.any():
                traces.append(_line(drawn, found.up[chosen], found.down[chosen], width, on_tree))
    if tree.any():
        look = {"color": _TREE, "width": WIDTHS[2]}
        traces.append(go.Scatter(x=[None], y=[None], mode="lines", line=look, name="completely replicated MC-trees"))
    look = {"color": _LINE, "width": WIDTHS[2]}
    traces.append(go.Scatter(x=[None], y=[None], mode="lines", line=look, name="substreams (wider means a higher rate)"))
    return traces


def _line(drawn: Positions, up: Any, down: Any, width: float, on_tree: bool) -> go.Scatter:
    gap = np.full(len(up), np.nan)
    x = np.stack([drawn.x[up], drawn.x[down], gap], axis=1).ravel()
    y = np.stack([drawn.y[up], drawn.y[down], gap], axis=1).ravel()
    line = {"color": _TREE if on_tree else _LINE, "width": width + (0.5 if on_tree else 0)}
    return go.Scatter(
        x=x, y=y, mode="lines", line=line, opacity=0.75 if on_tree else 0.45, hoverinfo="skip", showlegend=False
    )  # fmt: skip


def _widths(rate: Floats) -> Ints:
    """The index in WIDTHS for each rate, by the square root of its ratio to the highest."""
    highest = rate.max(initial=0.0)
    if highest <= 0:
        return np.zeros(len(rate), dtype=np.intp)
    return np.asarray(np.round(np.sqrt(rate / highest) * (len(WIDTHS) - 1)), dtype=np.intp)


def _factors(scene: Scene, drawn: Positions) -> Floats:
    """Ratio of each task's current rate to its usual one, in coarse steps, so that noise does not redraw the picture."""
    topology, usual = scene.topology, derive(scene.topology).output
    now = usual.copy()
    for task, rate in scene.flows.items():
        if task in topology.index:
            now[topology.index[task]] = rate
    for name, span in topology.span.items():
        if name not in drawn.opened:  # one line for all tasks: it is drawn from the first
            own = slice(span.start, span.stop)
            total = usual[own].sum()
            now[own] = usual[own] * (now[own].sum() / total if total > 0 else 1.0)
    ratio = np.divide(now, usual, out=np.ones_like(usual), where=usual > 0)
    scale = np.median(ratio[ratio > 0]) if (ratio > 0).any() else 1.0
    return np.asarray(np.round(ratio / scale * _FLOW_STEPS / 2) * 2 / _FLOW_STEPS)


def _any_on_tree(drawn: Positions, tree: Mask) -> Mask:
    """Whether the symbol of a task includes a task on a covered tree."""
    found = tree.copy()
    for name, span in drawn.topology.span.items():
        if name not in drawn.opened:
            found[span.start : span.stop] = tree[span.start : span.stop].any()
    return found


# ----------------------------------------------------------------------------------------------------------------- marks


def _marks(scene: Scene, drawn: Positions, ink: str) -> list[go.Scatter]:
    """One trace per state, the worst last and so on top."""
    topology = scene.topology
    states = [state_of(scene, task) for task in range(len(topology.tasks))]
    totals = Counter(states)
    shown: dict[str, list[Row]] = {}
    marks = sum(len(topology.span[name]) if name in drawn.opened else 1 for name in topology.span)
    letters = _letters(drawn)
    for name, span in topology.span.items():
        if name in drawn.opened:
            for task in span:
                row = _task_mark(scene, task, states[task], letters if marks <= LABELS and len(span) <= ROWS else 0)
                side = (
                    "middle left"
                    if not topology.inputs[name]
                    else "middle right"
                    if not topology.outputs[name]
                    else "top center"
                )
                shown.setdefault(states[task], []).append((drawn.x[task], drawn.y[task], *row, side))
        else:
            worst = min((states[task] for task in span), key=SEVERITY.__getitem__)
            row = _operator_mark(scene, name, Counter(states[task] for task in span))
            shown.setdefault(worst, []).append((drawn.x[span.start], drawn.y[span.start], *row, "bottom center"))
    size = 14 if marks > LABELS else 18
    return [_state_trace(state, totals[state], shown.get(state, []), size, ink) for state in reversed(LOOKS) if state in totals]


def _state_trace(state: str, total: int, rows: Sequence[Row], size: int, ink: str) -> go.Scatter:
    look = LOOKS[state]
    texts, hovers, names, sides = ([str(row[k]) for row in rows] for k in range(2, 6))
    sizes = [2 * size if side == "bottom center" else size for side in sides]
    return go.Scatter(
        x=[row[0] for row in rows] if rows else [None], y=[row[1] for row in rows] if rows else [None],
        mode="markers+text", name=f"{look.word}: {total}", text=texts, hovertext=hovers, hoverinfo="text", customdata=names,
        textposition=sides or "top center", textfont={"size": 12, "color": ink},
        marker={"color": look.colour, "symbol": look.symbol, "size": sizes or size, "line": {"color": ink, "width": 1}},
        selected={"marker": {"opacity": 1}}, unselected={"marker": {"opacity": 1}}, cliponaxis=False,
    )  # fmt: skip


def _letters(drawn: Positions) -> int:
    """The number of letters that fit between two layers."""
    return max(7, 84 // drawn.layers)


def _task_mark(scene: Scene, task: int, state: str, letters: int) -> tuple[str, str, str]:
    name = scene.topology.tasks[task]
    operator, _, place = name.rpartition(".")
    progress = f" {100 * scene.progress[name]:.0f} %" if state == "recovering" and name in scene.progress else ""
    brief = f"{shortened(operator, max(3, letters // 3))}.{place}"  # the number distinguishes tasks
    text = f"  {escape(brief)}{progress}  " if letters or state in ("failed", "recovering") else ""
    if text and _framed(scene, name):
        text += '<br><span style="font-size:3px"> </span>'  # keeps clear of the frame
    hover = [f"<b>{escape(shortened(name, 60))}</b>", LOOKS[state].word + progress]
    if name in scene.notes:
        hover.append(escape(shortened(scene.notes[name], 120)))
    return text, "<br>".join(hover), name


def _operator_mark(scene: Scene, name: str, states: Counter[str]) -> tuple[str, str, str]:
    ordered = sorted(states.items(), key=lambda item: SEVERITY[item[0]])
    brief = "<br>".join(f"{count} {_BRIEF[state]}" for state, count in ordered[:3])
    hover = [f"<b>{escape(shortened(name, 60))}</b>", *(f"{count} {LOOKS[state].word}" for state, count in ordered)]
    return brief, "<br>".join(hover), f"operator {name}"


_BRIEF = {
    "failed": "failed", "recovering": "recovering", "tentative": "tentative", "taken_over": "taken over",
    "running": "running", "replicated": "replicated", EXTERNAL: "external",
}  # fmt: skip


def _heads(drawn: Positions, ink: str) -> go.Scatter:
    texts, letters = [], _letters(drawn)
    for name, _, _ in drawn.heads:
        operator = drawn.topology.by_name[name]
        join = ", join" if operator.input is Input.CORRELATED and len(drawn.topology.inputs[name]) > 1 else ""
        texts.append(f"<b>{escape(shortened(name, letters))}</b><br>{counted(operator.tasks, 'task')}{join}")
    return go.Scatter(
        x=[x for _, x, _ in drawn.heads], y=[y for _, _, y in drawn.heads], mode="text", text=texts, hoverinfo="skip",
        showlegend=False, textfont={"size": 13, "color": ink},
    )  # fmt: skip


def _framed(scene: Scene, task: str) -> bool:
    return task in scene.plan and scene.states.get(task, "running") not in ("replicated", "failed", "recovering")


def _replicas(scene: Scene, drawn: Positions) -> list[go.Scatter]:
    """A frame around each task in the plan whose state does not show that."""
    topology = scene.topology
    framed = [
        topology.index[task]
        for task in sorted(scene.plan)
        if task in topology.index and task.rpartition(".")[0] in drawn.opened and _framed(scene, task)
    ]
    if not framed:
        return []
    marker = {"symbol": "square-open", "size": 25, "color": _TREE, "line": {"width": 2}}
    return [
        go.Scatter(x=drawn.x[framed], y=drawn.y[framed], mode="markers", marker=marker, name="in the plan", hoverinfo="skip")
    ]


def _ring(scene: Scene, drawn: Positions, ink: str) -> list[go.Scatter]:
    """A ring around the selected task."""
    if scene.selected not in scene.topology.index:
        return []
    task = scene.topology.index[scene.selected]
    marker = {"symbol": "circle-open", "size": 34, "color": ink, "line": {"width": 3}}
    x, y = [drawn.x[task]], [drawn.y[task]]
    return [go.Scatter(x=x, y=y, mode="markers", marker=marker, name="selected", hoverinfo="skip")]


def clicked(points: Sequence[Mapping[str, Any]]) -> str:
    """The task, or "operator NAME", that was clicked; "" if no symbol was."""
    for point in points:
        known = point.get("customdata")
        if isinstance(known, list) and known:
            known = known[0]
        if isinstance(known, str):
            return known
    return ""
