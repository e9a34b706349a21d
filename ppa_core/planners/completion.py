"""Cheapest completing sets: what to add to a plan, and through which task, so that the metric rises most per task.

A task that is added alone is often worth nothing, because the rest of its MC-tree is missing. The enumeration of MC-trees
blows up, so a dynamic programme over tasks and costs takes its place. For every task t and every number c of new tasks,

    up[t, c]    the best output of t that at most c new tasks (t and what feeds it) can buy,
    down[t, c]  the best slope of the metric in that output that at most c new tasks downstream (with the side inputs that
                joins need) can buy,

each counting everything that is alive already and the improvement of one substream per input stream. A join splits c over
its streams, another operator improves one of them. The best extension through t with c tasks is then worth about
max over c1 + c2 = c of up[t, c1] · down[t, c2] - up[t, 0] · down[t, 0]; the caller values the sets exactly.

Cost: O((tasks + links) · C), joins · C², with C the size of the largest tree; a `full` edge counts N1 + N2. Where paths
meet again in a DAG, a shared task is counted on each path: costs are overestimated, never underestimated. Sets
of more than `LARGEST` tasks are not found. `next_trees` finds what is missed here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property, lru_cache

import numpy as np

from ppa_core.fidelity import Compiled, Mask
from ppa_core.fidelity.compiled import InputStream, Stage
from ppa_core.planners.costs import (
    best_child,
    column,
    convolved,
    downstream,
    row_of,
    shifted,
    spread_cost,
    upstream,
)
from ppa_core.planners.extensions import ZERO, Extension, graph
from ppa_core.topology import Partitioning
from ppa_core.topology.rates import Floats, Ints

LARGEST = 64
"""Extensions of more tasks than this are not found by the dynamic programme."""

_TABLE = 20_000_000
"""Cells of one table; in a topology of more than a few 100,000 tasks it has fewer than `LARGEST` columns."""


def largest_tree(compiled: Compiled) -> int:
    """The tasks of the largest MC-tree (shared ones counted on each path), at most `LARGEST`."""
    size: dict[int, int] = {}
    for stage in compiled.stages:
        parts = [size[stream.up.start] for stream in stage.streams]
        size[stage.own.start] = min(1 + (sum(parts) if stage.joins else max(parts, default=0)), LARGEST)
    return max(size.values())


def completion(compiled: Compiled, alive: Mask, most: int) -> Completion:
    """The completion of a set of alive tasks; cached, because the parts of one plan use the same one."""
    return _completion(compiled, alive.tobytes(), most)


@lru_cache(maxsize=1)
def _completion(compiled: Compiled, alive: bytes, most: int) -> Completion:
    return Completion(compiled, np.frombuffer(alive, dtype=bool), most)


class Completion:
    """The tables `up` and `down` for one set of alive tasks, and the extensions they lead to."""

    def __init__(self, compiled: Compiled, alive: Mask, most: int) -> None:
        self.compiled, self.alive = compiled, alive | compiled.external
        n = compiled.tasks
        self.most = max(1, min(most, LARGEST, _TABLE // n))
        self.up: Floats = np.zeros((n, self.most + 1))
        self.down: Floats = np.repeat(compiled.values[:, None], self.most + 1, axis=1)
        self.streams: dict[tuple[int, int], Floats] = {}
        self.slopes: dict[tuple[int, int], Floats] = {}
        for number, stage in enumerate(compiled.stages):
            self._upward(number, stage)
        for number in reversed(range(len(compiled.stages))):
            self._downward(number, compiled.stages[number])

    def best(self, most: int, count: int) -> list[Extension]:
        """Up to `count` different extensions of at most `most` tasks, those of the highest expected density first."""
        most = min(most, self.most)
        if most < 1:
            return []
        found: dict[frozenset[int], Extension] = {}
        seen: set[tuple[int, float]] = set()
        for task, cost, gain in self._ranked(most, 16 * count):
            if len(found) >= count:
                break
            alike = (cost, round(gain, 13))  # the same set through another of its tasks, or one as good
            if alike in seen:
                continue
            seen.add(alike)
            extension = self._backtrack(task, cost, gain)
            if extension.tasks and len(extension.tasks) <= most:
                found.setdefault(extension.tasks, extension)
        return list(found.values())

    def apart(self, most: int, count: int) -> list[Extension]:
        """Up to `count` extensions of at most `most` tasks, each through a task that is in none before it, best first."""
        most = min(most, self.most)
        if most < 1:
            return []
        found: list[Extension] = []
        covered: set[int] = set()
        for task, cost, gain in self._ranked(most, 16 * count):
            if len(found) >= count:
                break
            if task not in covered:
                extension = self._backtrack(task, cost, gain)
                if extension.tasks and len(extension.tasks) <= most:
                    covered |= extension.tasks
                    found.append(extension)
        return found

    def _ranked(self, most: int, count: int) -> Iterator[tuple[int, int, float]]:
        """Task, cost and gain of the extensions through single tasks, those of the highest density first."""
        gain = self._through(most)
        density = (gain[:, 1:] / np.arange(1, most + 1)).ravel()
        spots: Ints = np.arange(len(density))
        if len(density) > 100 * count:  # a sort of all would take longer than the rest
            spots = np.sort(np.argpartition(-density, count)[:count])
        for spot in spots[np.argsort(-density[spots], kind="stable")[:count]]:
            task, cost = int(spot) // most, int(spot) % most + 1
            if gain[task, cost] <= ZERO:
                return
            yield task, cost, float(gain[task, cost])

    def around(self, groups: Sequence[Iterable[int]], most: int, count: int) -> list[Extension]:
        """Extensions of at most `most` tasks that hold a whole group of tasks and complete it, for the `count` best groups."""
        most = min(most, self.most)
        gain = self._through(most)
        density = gain[:, 1:] / np.arange(1, most + 1)
        best = density.max(axis=1)
        through = [max(group, key=lambda task: (best[task], -task)) for group in map(tuple, groups)]
        order = sorted(range(len(groups)), key=lambda k: -best[through[k]])
        found: list[Extension] = []
        for k in order[:count]:
            task = through[k]
            cost = int(density[task].argmax()) + 1
            if gain[task, cost] <= ZERO:
                break
            extension = self._backtrack(task, cost, float(gain[task, cost]))
            tasks = extension.tasks.union(t for t in groups[k] if not self.alive[t])
            if len(tasks) <= most:
                found.append(Extension(tasks, extension.expected))
        return found

    def _through(self, most: int) -> Floats:
        gain = np.zeros((len(self.up), most + 1))
        for c1 in range(most + 1):
            np.maximum(gain[:, c1:], self.up[:, c1, None] * self.down[:, : most + 1 - c1], out=gain[:, c1:])
        gain -= (self.up[:, 0] * self.down[:, 0])[:, None]
        return gain

    # ------------------------------------------------------------------ tables

    def _upward(self, number: int, stage: Stage) -> None:
        own = stage.own
        if not stage.streams:
            supply = np.ones((own.stop - own.start, self.most + 1))
        else:
            parts = [self._stream(stream) for stream in stage.streams]
            self.streams.update({(number, j): part for j, part in enumerate(parts)})
            supply = self._mixed(stage, parts)
        self.up[own] = shifted(supply, self.alive[own])

    def _stream(self, stream: InputStream) -> Floats:
        """The survival of a stream at each downstream task (one row where it is the same for all)."""
        table = self.up[stream.up]
        match stream.kind:
            case Partitioning.ONE_TO_ONE:
                return table
            case Partitioning.SPLIT:
                return table[stream.parent]
        base, more = stream.forward(self.up[:, :1]), table - table[:, :1]
        if stream.kind is Partitioning.MERGE:
            return base + np.maximum.reduceat(more * column(stream), stream.starts, axis=0)  # type: ignore[arg-type]
        if stream.weight.ndim == 1:  # type: ignore[union-attr]
            return np.asarray(base + (more * column(stream)).max(axis=0))
        return base + np.stack([(more * row[:, None]).max(axis=0) for row in stream.weight])  # type: ignore[union-attr]

    def _mixed(self, stage: Stage, parts: list[Floats]) -> Floats:
        if len(parts) == 1:
            return parts[0]
        if stage.joins:
            supply = parts[0]
            for part in parts[1:]:
                supply = convolved(supply, part)
            return supply
        base = sum(m * part[:, :1] for m, part in zip(stage.mix, parts, strict=True))
        more = [m * (part - part[:, :1]) for m, part in zip(stage.mix, parts, strict=True)]
        return base + np.maximum.reduce(np.broadcast_arrays(*more))  # type: ignore[no-any-return]

    def _sides(self, number: int, stage: Stage, j: int) -> Floats | None:
        """What the other streams of a join let through, by cost."""
        side: Floats | None = None
        for k in range(len(stage.streams)):
            if k != j:
                part = self.streams[number, k]
                side = part if side is None else convolved(side, part)
        return side

    def _slope(self, number: int, j: int) -> Floats:
        """The slope of the metric in stream j of each task of an operator, by cost."""
        stage = self.compiled.stages[number]
        slope = shifted(self.down[stage.own], self.alive[stage.own])
        if len(stage.streams) == 1:
            return slope
        if not stage.joins:
            return slope * stage.mix[j]
        side = self._sides(number, stage, j)
        return convolved(slope, side)  # type: ignore[arg-type]

    def _downward(self, number: int, stage: Stage) -> None:
        for j, stream in enumerate(stage.streams):
            slope = self.slopes[number, j] = self._slope(number, j)
            base = stream.backward(slope[:, :1])
            more = best_child(stream, slope - slope[:, :1])
            # one improved substream in all: of this operator, or of those seen before
            table = self.down[stream.up]
            better = np.maximum(table - table[:, :1], more)
            self.down[stream.up] = table[:, :1] + base + better

    # ------------------------------------------------------------- backtracking

    def _backtrack(self, task: int, cost: int, expected: float) -> Extension:
        worth = self.up[task, : cost + 1] * self.down[task, cost::-1]
        c1 = int(worth.argmax())
        tasks: set[int] = set()
        climbs = [(task, c1)]
        self._descend(task, cost - c1, tasks, climbs)
        self._climb(climbs, tasks)
        return Extension(frozenset(tasks), expected)

    @cached_property
    def _stage_of(self) -> Ints:
        return graph(self.compiled)[0]

    def _cheapest(self, row: Floats, cost: int) -> int:
        """The least cost that buys as much as `cost` does."""
        return int(np.searchsorted(row[: cost + 1], row[cost] - ZERO))

    def _climb(self, todo: list[tuple[int, int]], tasks: set[int]) -> None:
        """Add the new tasks behind up[task, cost] for each task and cost of `todo`."""
        while todo:
            task, cost = todo.pop()
            cost = self._cheapest(self.up[task], cost)
            if cost == 0:
                continue
            if not self.alive[task]:
                tasks.add(task)
                cost -= 1
            number = int(self._stage_of[task])
            stage = self.compiled.stages[number]
            if cost == 0 or not stage.streams:
                continue
            row = task - stage.own.start
            parts = [row_of(self.streams[number, j], row) for j in range(len(stage.streams))]
            for j, c in enumerate(self._split_cost(stage, row, parts, cost)):
                if c > 0:
                    todo.append((self._feeder(stage.streams[j], row, c), c))

    def _split_cost(self, stage: Stage, row: int, parts: list[Floats], cost: int) -> list[int]:
        """How the best supply spreads `cost` over the streams."""
        if len(parts) == 1:
            return [cost]
        if stage.joins:
            return spread_cost(parts, cost)
        more = [float(row_of(m, row)[0] * (part[cost] - part[0])) for m, part in zip(stage.mix, parts, strict=True)]
        best = int(np.argmax(more))
        return [cost if j == best else 0 for j in range(len(parts))]

    def _feeder(self, stream: InputStream, row: int, cost: int) -> int:
        """The upstream task whose improvement for `cost` is the best for this downstream one."""
        feeders, weight = upstream(stream, row)
        start: int = feeders.start
        return start + int((weight * (self.up[feeders, cost] - self.up[feeders, 0])).argmax())

    def _descend(self, task: int, cost: int, tasks: set[int], climbs: list[tuple[int, int]]) -> None:
        """Add the new tasks behind down[task, cost], and to `climbs` what joins on the way need of their other streams."""
        while (cost := self._cheapest(self.down[task], cost)) > 0:
            best, where = -1.0, (0, 0, 0)
            for number, j in self._consumers[int(self._stage_of[task])]:
                stream = self.compiled.stages[number].streams[j]
                rows, weight = downstream(stream, task - stream.up.start)
                slope = self.slopes[number, j][rows]
                more = weight * (slope[:, cost] - slope[:, 0])
                row = int(more.argmax())
                if more[row] > best:
                    best, where = float(more[row]), (number, j, rows.start + row)
            task, cost = self._step_down(*where, cost, climbs)
            if not self.alive[task]:
                tasks.add(task)
                cost -= 1

    @cached_property
    def _consumers(self) -> list[list[tuple[int, int]]]:
        return graph(self.compiled)[1]

    def _step_down(self, number: int, j: int, row: int, cost: int, climbs: list[tuple[int, int]]) -> tuple[int, int]:
        """The task that stream j of this row leads to, and what of `cost` is for it and what comes after it."""
        stage = self.compiled.stages[number]
        task = stage.own.start + row
        others = [k for k in range(len(stage.streams)) if k != j] if stage.joins else []
        if not others:
            return task, cost
        own = shifted(self.down[task : task + 1], self.alive[task : task + 1])[0]
        spread = spread_cost([own, *(row_of(self.streams[number, k], row) for k in others)], cost)
        for k, c in zip(others, spread[1:], strict=True):
            if c > 0:
                climbs.append((self._feeder(stage.streams[k], row, c), c))
        return task, spread[0]
