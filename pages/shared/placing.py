"""Positions of a topology's elements: operators in layers, their tasks in columns, or an operator as one symbol.

Pure and without a loop over substreams: a thousand tasks, or a `full` edge of a million links, cost a few array operations.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from ppa_core.topology import Edge, Partitioning, Topology, derive
from ppa_core.topology.rates import Flow

Floats = NDArray[np.float64]
Ints = NDArray[np.intp]

FEW = 60
"""Up to this number of tasks in total, every task is drawn."""
ROWS = 40
"""Tasks of one operator in one column; more go into further columns."""
MOST_LINES = 800
"""The maximum number of substreams drawn for one edge: those with the highest rates."""
CLOSED_ROWS = 3
"""Rows of an operator drawn as one symbol: the symbol, and the number of tasks by state."""
_HEAD, _GAP, _COLUMN, _SPREAD = 1.5, 0.4, 0.16, 3.0


@dataclass(frozen=True, eq=False)
class Positions:
    """Positions. Tasks of an operator drawn as one symbol share a position; `rows` is the height of the tallest layer."""

    topology: Topology
    opened: frozenset[str]
    x: Floats
    y: Floats
    heads: tuple[tuple[str, float, float], ...]
    """The name of each operator and its position."""
    rows: float
    layers: int


def opened_by_default(topology: Topology) -> frozenset[str]:
    """The operators whose tasks are drawn by default: all of a small topology; of a large one, those with one task."""
    if len(topology.tasks) <= FEW:
        return frozenset(topology.by_name)
    return frozenset(operator.name for operator in topology.operators if operator.tasks == 1)


@lru_cache(maxsize=64)
def layout(topology: Topology, opened: frozenset[str]) -> Positions:
    """Every operator one layer to the right of its last input; layers are centred."""
    depth: dict[str, int] = {}
    for name in topology.order:
        depth[name] = 1 + max((depth[edge.source] for edge in topology.inputs[name]), default=-1)
    layers: dict[int, list[str]] = {}
    for operator in topology.operators:
        layers.setdefault(depth[operator.name], []).append(operator.name)
    x, y = np.zeros(len(topology.tasks)), np.zeros(len(topology.tasks))
    heads: list[tuple[str, float, float]] = []
    tallest = max(_height(topology, names, opened) for names in layers.values())
    for layer, names in layers.items():
        total = _height(topology, names, opened)
        tasks = sum(_rows(topology, name, opened) for name in names)
        whole = all(name in opened for name in names)  # a layer of few tasks spreads over the height of the tallest
        pitch = min(_SPREAD, 1 + (tallest - total) / tasks) if whole else 1.0
        top = (total + tasks * (pitch - 1)) / 2
        for name in names:
            span = topology.span[name]
            heads.append((name, float(layer), top - 0.35 * _HEAD))
            place = np.arange(len(span)) if name in opened else np.zeros(len(span))
            columns = -(-len(span) // ROWS) if name in opened else 1
            x[span.start : span.stop] = layer + _COLUMN * (place // ROWS - (columns - 1) / 2)
            y[span.start : span.stop] = top - _HEAD - pitch * (0.5 + place % ROWS)
            top -= _HEAD + pitch * _rows(topology, name, opened) + _GAP
    return Positions(topology, opened, x, y, tuple(heads), tallest, len(layers))


def _rows(topology: Topology, name: str, opened: frozenset[str]) -> int:
    return min(ROWS, topology.by_name[name].tasks) if name in opened else CLOSED_ROWS


def _height(topology: Topology, names: list[str], opened: frozenset[str]) -> float:
    return sum(_HEAD + _rows(topology, name, opened) for name in names) + _GAP * (len(names) - 1)


@dataclass(frozen=True, eq=False)
class Lines:
    """Substreams to draw: from task, to task, and rate. An operator drawn as one symbol is represented by its first task."""

    up: Ints
    down: Ints
    rate: Floats
    left_out: int = 0


@lru_cache(maxsize=64)
def lines(drawn: Positions) -> Lines:
    """All lines of a layout, with the rates of the topology."""
    topology = drawn.topology
    flows = derive(topology).flows
    parts = [_edge_lines(topology, edge, flows[edge.source, edge.target], drawn.opened) for edge in topology.edges]
    if not parts:
        nothing = np.zeros(0, dtype=np.intp)
        return Lines(nothing, nothing, np.zeros(0))
    up, down, rate = (np.concatenate([getattr(part, name) for part in parts]) for name in ("up", "down", "rate"))
    return Lines(up, down, rate, sum(part.left_out for part in parts))


def _edge_lines(topology: Topology, edge: Edge, flow: Flow, opened: Collection[str]) -> Lines:
    up, down = topology.span[edge.source], topology.span[edge.target]
    many_up, many_down = edge.source in opened, edge.target in opened
    first_up, first_down = np.array([up.start]), np.array([down.start])
    if not many_up and not many_down:
        return Lines(first_up, first_down, np.array([flow.received(len(down)).sum()]))
    if not many_up:
        ends = np.arange(down.start, down.stop)
        return Lines(np.repeat(first_up, len(down)), ends, flow.received(len(down)))
    if not many_down:
        return Lines(np.arange(up.start, up.stop), np.repeat(first_down, len(up)), _sent(flow, len(up)))
    if edge.partitioning is Partitioning.FULL:
        return _full_lines(flow, up, down)
    other = np.arange(len(up)) if flow.other is None else flow.other
    split = edge.partitioning is Partitioning.SPLIT
    own = np.arange(len(flow.rates))
    return Lines(up.start + (other if split else own), down.start + (own if split else other), flow.rates)


def _full_lines(flow: Flow, up: range, down: range) -> Lines:
    share = np.full(len(down), 1 / len(down)) if flow.share is None else flow.share
    rows = np.arange(len(up))
    if not flow.dense and len(up) * len(down) > 100 * MOST_LINES:  # the highest rates are among these
        rows = np.argsort(-flow.rates, kind="stable")[:MOST_LINES]
    columns = np.argsort(-share, kind="stable")[: MOST_LINES if len(up) * len(down) > 100 * MOST_LINES else None]
    rates = flow.rates[np.ix_(rows, columns)] if flow.dense else np.outer(flow.rates[rows], share[columns])
    best = np.argsort(-rates.ravel(), kind="stable")[:MOST_LINES]
    i, j = np.divmod(best, len(columns))
    return Lines(up.start + rows[i], down.start + columns[j], rates.ravel()[best], len(up) * len(down) - len(best))


def _sent(flow: Flow, tasks: int) -> Floats:
    """The rate that each upstream task sends on the edge."""
    if flow.dense:
        return np.asarray(flow.rates.sum(axis=1))
    if flow.edge.partitioning is Partitioning.SPLIT:
        assert flow.other is not None
        return np.bincount(flow.other, weights=flow.rates, minlength=tasks).astype(np.float64)
    return flow.rates
