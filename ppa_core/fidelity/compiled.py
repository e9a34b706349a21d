"""A topology compiled for one metric, so that evaluating a set of alive tasks takes only a few array operations.

Every task t has a survival y_t in [0, 1], the share of its output that is still produced: y_t = 1 - IL_t of the paper.
With a_t = 1 for an alive task and 0 for a failed one,

    y_t = a_t · f_t        f_t = 1                        for a source
                           f_t = Σ_j m_tj · s_tj          for independent input (eq. 3; m: the streams' shares of the rate)
                           f_t = Π_j s_tj                 for correlated input (eq. 2)

where s_tj, the survival of input stream j of t, is the rate-weighted mean over its substreams (eq. 1). The metric is
Σ_t v_t · y_t. OF (eq. 4) weights the sinks' tasks by their output rate. IC weights every task by its input rate and treats
every input as independent, so it ignores joins.

If all rates of a stream (or all values) are 0, the shares are equal: the limit of equal rates going to 0. A task of
weight 0 under `full` has the same survival of the stream as its neighbours: the limit of its weight going to 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from ppa_core.topology import Input, Partitioning, Topology, derive
from ppa_core.topology.mctrees import shared_by_joins
from ppa_core.topology.rates import Floats, Flow, Ints

Mask = NDArray[np.bool_]


class Metric(StrEnum):
    """The metric that a plan maximises."""

    OF = "of"
    IC = "ic"


@dataclass(frozen=True)
class Patch:
    """The differences of a large `full` edge with measured rates from one row of weights for all.

    Downstream task j has the weights `keep[j]` · weight, and `more[k]` in addition for each k with `down[k]` = j, for `up[k]`.
    """

    keep: Floats
    up: Ints
    down: Ints
    more: Floats


@dataclass(frozen=True)
class InputStream:
    """One input stream of an operator: its upstream tasks and how their survival is combined.

    one-to-one: only `up`. split: `parent[j]` is the upstream task of j. full: `weight` of each upstream task, the same for all
    downstream tasks; (N2, N1) if rates were measured on the edge, or with a `patch` if that were too large. merge: `weight`
    within the group of upstream tasks that starts at `starts[j]` and ends before `starts[j + 1]`; `child[i]` is i's group.
    """

    up: slice
    kind: Partitioning
    weight: Floats | None = None
    parent: Ints | None = None
    starts: Ints | None = None
    child: Ints | None = None
    patch: Patch | None = None

    def row(self, down: int) -> Floats:
        """The weights of the upstream tasks of a `full` edge for one downstream task."""
        assert self.weight is not None
        if self.patch is None:
            return self.weight if self.weight.ndim == 1 else np.asarray(self.weight[down])
        row = self.patch.keep[down] * self.weight
        here = self.patch.down == down
        row[self.patch.up[here]] += self.patch.more[here]
        return np.asarray(np.maximum(row, 0.0))

    def forward(self, y: Floats) -> Floats:
        """Survival of the stream at each downstream task; one row for all of them where it is the same."""
        y_up = y[self.up]
        match self.kind:
            case Partitioning.ONE_TO_ONE:
                return y_up
            case Partitioning.SPLIT:
                return y_up[self.parent]
            case Partitioning.MERGE:
                return np.add.reduceat(y_up * self.weight[:, None], self.starts, axis=0)  # type: ignore[index, arg-type]
            case _:
                mean = np.atleast_2d(self.weight @ y_up)  # type: ignore[operator]
                if self.patch is None:
                    return mean
                each = self.patch.keep[:, None] * mean
                np.add.at(each, self.patch.down, self.patch.more[:, None] * y_up[self.patch.up])
                return np.asarray(np.clip(each, 0.0, 1.0))

    def backward(self, slope: Floats) -> Floats:
        """The slope of the metric in each upstream task's survival, from its slope in `forward`'s rows (the transpose)."""
        match self.kind:
            case Partitioning.ONE_TO_ONE:
                return slope
            case Partitioning.SPLIT:
                return np.add.reduceat(slope, self.starts, axis=0)  # type: ignore[arg-type]
            case Partitioning.MERGE:
                return slope[self.child] * self.weight[:, None]  # type: ignore[index]
            case _:
                if self.weight.ndim == 2:  # type: ignore[union-attr]
                    return self.weight.T @ slope  # type: ignore[union-attr]
                if self.patch is None:
                    return np.asarray(self.weight[:, None] * slope.sum(axis=0))  # type: ignore[index]
                each = np.asarray(self.weight[:, None] * (self.patch.keep @ slope))  # type: ignore[index]
                np.add.at(each, self.patch.up, self.patch.more[:, None] * slope[self.patch.down])
                return each


@dataclass(frozen=True)
class Stage:
    """One operator: its tasks, its input streams, and each stream's share of the input rate (unless it joins them)."""

    name: str
    own: slice
    streams: tuple[InputStream, ...]
    mix: tuple[Floats, ...]
    joins: bool

    def supply(self, y: Floats) -> tuple[Floats, list[Floats]]:
        """f, the survival of each task's input, and the survival of each stream."""
        parts = [stream.forward(y) for stream in self.streams]
        if not parts:
            return np.ones((1, y.shape[1])), parts
        if self.joins:
            f = parts[0]
            for part in parts[1:]:
                f = f * part
            return f, parts
        if len(parts) == 1:
            return parts[0], parts
        return np.sum([m * part for m, part in zip(self.mix, parts, strict=True)], axis=0), parts


@dataclass(frozen=True, eq=False)
class Compiled:
    """A topology compiled for one metric by `compile_topology`; see the module's docstring."""

    topology: Topology
    metric: Metric
    stages: tuple[Stage, ...]
    values: Floats
    external: Mask
    entangled: Ints
    """Tasks in which the metric is not linear: two streams of one join depend on them."""

    @property
    def tasks(self) -> int:
        return len(self.values)

    def survival(self, alive: NDArray[np.generic]) -> Floats:
        """y of every task (n, B) for B alive-sets given as columns (n, B)."""
        y = np.array(alive, dtype=np.float64)
        y[self.external] = 1.0
        for stage in self.stages:
            if stage.streams:
                y[stage.own] *= stage.supply(y)[0]
        return y

    def value(self, alive: NDArray[np.generic]) -> float:
        """The metric with exactly these tasks alive (a mask over all tasks; external ones count as alive)."""
        return float(self.batch(np.asarray(alive)[:, None])[0])

    def batch(self, alive: NDArray[np.generic]) -> Floats:
        """The metric of many alive-sets at once, one a column of `alive` (n, B)."""
        worth = self.values @ self.survival(alive)
        worth[np.abs(worth - 1.0) < 1e-12] = 1.0
        return np.asarray(worth)

    def slopes(self, alive: NDArray[np.generic]) -> Floats:
        """∂ metric / ∂ a_t of every task (n, B) at B alive-sets, in one pass forwards and one backwards."""
        y = np.array(alive, dtype=np.float64)
        y[self.external] = 1.0
        a = y.copy()
        f = np.ones_like(y)
        parts_of: list[list[Floats]] = []
        for stage in self.stages:
            supply, parts = stage.supply(y)
            parts_of.append(parts)
            f[stage.own] = supply
            y[stage.own] *= f[stage.own]
        slope = np.repeat(self.values[:, None], y.shape[1], axis=1)
        for stage, parts in zip(reversed(self.stages), reversed(parts_of), strict=True):
            into = slope[stage.own] * a[stage.own]
            for j, stream in enumerate(stage.streams):
                if stage.joins:
                    part = into
                    for k, other in enumerate(parts):
                        if k != j:
                            part = part * other
                else:
                    part = into * stage.mix[j] if len(parts) > 1 else into
                slope[stream.up] += stream.backward(part)
        return slope * f

    def gains(self, alive: NDArray[np.generic]) -> Floats:
        """The contribution of each single task: metric(alive ∪ {t}) − metric(alive ∖ {t}), for every t.

        The metric is linear in all tasks except the entangled ones, so one slope pass gives these exactly; the entangled ones
        are evaluated one by one in batches.
        """
        alive = np.asarray(alive, dtype=bool)
        gain = self.slopes(alive[:, None])[:, 0]
        for chunk in _chunks(self.entangled, self.tasks):
            both = np.repeat(alive[:, None], 2 * len(chunk), axis=1)
            columns = np.arange(len(chunk))
            both[chunk, columns] = True
            both[chunk, columns + len(chunk)] = False
            worth = self.values @ self.survival(both)
            gain[chunk] = worth[: len(chunk)] - worth[len(chunk) :]
        gain[self.external] = 0.0
        gain[np.abs(gain) < 1e-15] = 0.0
        return gain

    @cached_property
    def losses(self) -> Floats:
        """The loss if each task fails alone. The array is shared and read-only."""
        found = self.gains(np.ones(self.tasks, dtype=bool))
        found.flags.writeable = False
        return found

    def mask(self, tasks: frozenset[int] | set[int] | tuple[int, ...]) -> Mask:
        """The alive-mask of a set of task numbers, external tasks included."""
        alive = self.external.copy()
        alive[list(tasks)] = True
        return alive


def _chunks(items: Ints, rows: int, cells: int = 2_000_000) -> list[Ints]:
    """Pieces of `items` small enough that a batch of 2 columns an item over `rows` rows stays within `cells`."""
    if not len(items):
        return []
    return np.array_split(items, -(-len(items) * rows * 2 // cells))


@lru_cache(maxsize=128)
def compile_topology(topology: Topology, metric: Metric = Metric.OF) -> Compiled:
    """Compile a topology. Cost: linear in tasks and substreams, N1 + N2 for a `full` edge without measured rates."""
    rates = derive(topology)
    stages = []
    for name in topology.order:
        span, edges = topology.span[name], topology.inputs[name]
        flows = [rates.flows[edge.source, name] for edge in edges]
        received = np.array([flow.received(len(span)) for flow in flows]).reshape(len(flows), len(span))
        mix = _shares(received)[:, :, None] if flows else received
        joins = metric is Metric.OF and topology.by_name[name].input is Input.CORRELATED
        stages.append(
            Stage(
                name,
                slice(span.start, span.stop),
                tuple(_stream(topology, flow) for flow in flows),
                tuple(mix),
                joins and len(flows) > 1,
            )
        )
    values = _sink_values(topology, rates.output) if metric is Metric.OF else rates.input
    external = np.zeros(len(topology.tasks), dtype=bool)
    external[list(topology.external_tasks)] = True
    return Compiled(topology, metric, tuple(stages), _shares(values), external, _entangled(topology, stages))


def _stream(topology: Topology, flow: Flow) -> InputStream:
    span = topology.span[flow.edge.source]
    up, kind = slice(span.start, span.stop), flow.edge.partitioning
    match kind:
        case Partitioning.ONE_TO_ONE:
            return InputStream(up, kind)
        case Partitioning.SPLIT:
            assert flow.other is not None
            return InputStream(up, kind, parent=flow.other, starts=_starts(flow.other))
        case Partitioning.MERGE:
            assert flow.other is not None
            starts = _starts(flow.other)
            total = np.add.reduceat(flow.rates, starts)[flow.other]
            size = np.bincount(flow.other)[flow.other]
            weight = np.where(total > 0, flow.rates / np.where(total > 0, total, 1.0), 1.0 / size)
            return InputStream(up, kind, weight=weight, starts=starts, child=flow.other)
        case _:
            if flow.sent is not None:
                return InputStream(up, kind, weight=_shares(flow.rates, _shares(flow.sent)[:, None]).T.copy())
            weight = _shares(flow.rates)
            return InputStream(up, kind, weight=weight, patch=_patch(flow, weight) if flow.seen is not None else None)


def _patch(flow: Flow, weight: Floats) -> Patch:
    assert flow.share is not None and flow.seen is not None
    tasks = len(flow.share)
    up, down, rates = flow.seen
    received, unseen = flow.received(tasks), flow.unseen(tasks)
    some = np.where(received > 0, received, 1.0)
    keep = np.where(received > 0, np.where(unseen > 0, flow.rates.sum() * flow.share / some, 0.0), 1.0)
    more = np.where(received[down] > 0, rates / some[down] - keep[down] * weight[up], 0.0)
    return Patch(keep, up, down, more)


def _starts(groups: Ints) -> Ints:
    """Where each run of equal values begins in a sorted array."""
    return np.flatnonzero(np.diff(groups, prepend=-1))


def _shares(amounts: Floats, otherwise: Floats | None = None) -> Floats:
    """Each amount as a share of its column's sum; where the sum is 0, equal shares or those given."""
    total = amounts.sum(axis=0, keepdims=True)
    equal = np.ones_like(amounts) / max(len(amounts), 1) if otherwise is None else otherwise
    return np.where(total > 0, amounts / np.where(total > 0, total, 1.0), equal)


def _sink_values(topology: Topology, output: Floats) -> Floats:
    values = np.zeros_like(output)
    sinks = [i for name in topology.sinks for i in topology.span[name]]
    values[sinks] = _shares(output[sinks])
    return values


def _entangled(topology: Topology, stages: list[Stage]) -> Ints:
    shared = shared_by_joins(topology) if any(stage.joins for stage in stages) else ()
    tasks = [i for name in shared for i in topology.span[name] if i not in topology.external_tasks]
    return np.array(sorted(tasks), dtype=np.intp)
