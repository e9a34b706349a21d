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
meet again in a DAG, a shared task is paid for on each path: sets are found dearer than they are, never cheaper, and those
of more than `LARGEST` tasks not at all. What is missed so, `NextTrees` finds: a beam search for the smallest trees that
counts a shared task once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import inf, log
from time import monotonic

import numpy as np

from ppa_core.fidelity import Compiled, Mask
from ppa_core.fidelity.compiled import Stage, Stream
from ppa_core.planners.costs import (
    best_child,
    cheapest_child,
    cheapest_feeder,
    column,
    convolved,
    downstream,
    row_of,
    shifted,
    spread_cost,
    upstream,
)
from ppa_core.topology import Partitioning
from ppa_core.topology.rates import Floats, Ints

ZERO = 1e-15
"""Gains up to this are rounding. The one such limit of all planners."""

LARGEST = 64
"""Extensions of more tasks than this are not found by the dynamic programme."""

HUGE = 20_000
"""In topologies of more tasks, several extensions are taken at once."""

ALIKE = 0.9
"""Extensions are taken at once if their densities are within this ratio of the best."""

_TABLE = 20_000_000
"""Cells of one table; in a topology of more than a few 100,000 tasks it has fewer than `LARGEST` columns."""

_BATCH = 8_000_000
"""Cells that are valued at once."""


class Deadline:
    """When a planner stops looking for more; what it has by then is its plan.

    Plans are the same from run to run as long as no deadline is met.
    """

    def __init__(self, seconds: float = inf) -> None:
        self.at = monotonic() + seconds

    @property
    def passed(self) -> bool:
        return monotonic() > self.at


def gains_of_sets(compiled: Compiled, alive: Mask, sets: Sequence[Collection[int]]) -> Floats:
    """What each of these sets of tasks adds to the alive ones."""
    gain = np.zeros(len(sets))
    base = compiled.value(alive) if len(sets) else 0.0
    step = max(1, _BATCH // compiled.tasks)
    for start in range(0, len(sets), step):
        chunk = sets[start : start + step]
        columns = np.repeat(alive[:, None], len(chunk), axis=1)
        for k, tasks in enumerate(chunk):
            columns[list(tasks), k] = True
        gain[start : start + step] = compiled.batch(columns) - base
    return gain


def gains_of_tasks(compiled: Compiled, alive: Mask) -> Floats:
    """What each task adds that is not alive (0 for those that are); kept while the parts of one plan ask for it."""
    return _gains_of_tasks(compiled, alive.tobytes()).copy()


@lru_cache(maxsize=1)
def _gains_of_tasks(compiled: Compiled, alive: bytes) -> Floats:
    mask = np.frombuffer(alive, dtype=bool)
    gain = compiled.gains(mask)
    gain[mask] = 0.0
    return gain


def together(found: Sequence[Extension], most: int) -> frozenset[int]:
    """The union of the extensions, best first, that are about as dense as the first and fit into `most` tasks with it."""
    union = found[0].tasks
    bar = ALIKE * found[0].expected / len(found[0].tasks)
    for extension in found[1:]:
        wider = union | extension.tasks
        if len(wider) <= most and extension.expected >= bar * len(extension.tasks):
            union = wider
    return union


@dataclass(frozen=True)
class Extension:
    """New tasks that complete each other, and the gain the dynamic programme expects of them."""

    tasks: frozenset[int]
    expected: float


def largest_tree(compiled: Compiled) -> int:
    """The tasks of the largest MC-tree (shared ones counted on each path), at most `LARGEST`."""
    size: dict[int, int] = {}
    for stage in compiled.stages:
        parts = [size[stream.up.start] for stream in stage.streams]
        size[stage.own.start] = min(1 + (sum(parts) if stage.joins else max(parts, default=0)), LARGEST)
    return max(size.values())


def completion(compiled: Compiled, alive: Mask, most: int) -> Completion:
    """The completion of a set of alive tasks; asked again for the same one, as parts of one plan do, it is not made anew."""
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

    def _stream(self, stream: Stream) -> Floats:
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
        return _graph(self.compiled)[0]

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

    def _feeder(self, stream: Stream, row: int, cost: int) -> int:
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
        return _graph(self.compiled)[1]

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


def stage_of(compiled: Compiled) -> Ints:
    """The number of each task's stage."""
    number = np.empty(compiled.tasks, dtype=np.intp)
    for k, stage in enumerate(compiled.stages):
        number[stage.own] = k
    return number


def consumers(compiled: Compiled) -> list[list[tuple[int, int]]]:
    """For each stage, the stages and streams that it feeds."""
    number = stage_of(compiled)
    found: list[list[tuple[int, int]]] = [[] for _ in compiled.stages]
    for k, stage in enumerate(compiled.stages):
        for j, stream in enumerate(stage.streams):
            found[int(number[stream.up.start])].append((k, j))
    return found


# ------------------------------------------------------------------------- smallest trees

BEAM = 24
"""Partial trees that are kept from operator to operator."""

BRANCHES = 6
"""Tasks that are tried where a task may be fed by any of several."""

ROOTS = 8
"""Tasks that a next tree is looked for through."""


@dataclass(frozen=True, eq=False)
class _Need:
    """One of these tasks of a stage must be in the tree."""

    stage: int
    members: Collection[int]
    tried: tuple[int, ...]
    """Those to choose from: the cheapest, and among equals the most valuable."""
    least: float
    """No fewer new tasks meet the need."""


@dataclass(frozen=True)
class _Part:
    """A tree that grows from the sinks to the sources: what it still needs, what it costs, and the last task it took."""

    needs: frozenset[_Need]
    cost: int
    score: float
    """The higher, the more valuable its tasks are among those of their operators."""
    took: tuple[int, object] | None

    @cached_property
    def rank(self) -> tuple[float, float]:
        return self.cost + max((need.least for need in self.needs), default=0.0), -self.score


class NextTrees:
    """The smallest sets of new tasks that complete a tree, each shared task counted once.

    Heuristic. A beam search from the sinks upwards, operator by operator: a partial tree is the needs its tasks have
    upstream, "one of these tasks", met when the operator's turn has come, by as few tasks as possible. Partial trees with
    the same needs are one, the cheapest. A task that yields output already meets a need for nothing. Where something does,
    the next tree is looked for through each of the `ROOTS` most promising tasks, with the cheapest way down from it.
    Cost: two linear passes, then for each root N · `BEAM` · `BRANCHES` partial trees at most.
    """

    def __init__(self, compiled: Compiled, alive: Mask, most: int) -> None:
        self.compiled, self.alive, self.most = compiled, alive | compiled.external, most
        self.living: Mask = compiled.survival(self.alive[:, None])[:, 0] > 0
        self.worth = _worth(compiled)
        self.stage_of, self.consumers = _graph(compiled)
        self.new: Floats = np.where(self.alive, 0.0, 1.0)
        self.least: Floats = np.full(compiled.tasks, inf)
        self.down: Floats = np.full(compiled.tasks, inf)
        self.sides: dict[tuple[int, int], Floats] = {}
        for stage in compiled.stages:
            self._least(stage)
        for number in reversed(range(len(compiled.stages))):
            self._down(number, compiled.stages[number])

    def best(self, count: int) -> list[frozenset[int]]:
        """Up to `count` different sets of new tasks that complete a tree each, for each root the smallest first."""
        found: dict[frozenset[int], None] = {}
        for way, needs in self._roots():
            for tree in self._search(way, needs):
                found.setdefault(tree)
        return sorted(found, key=len)[:count]

    # ------------------------------------------------------------- least costs

    def _least(self, stage: Stage) -> None:
        """A lower bound on the new tasks that each task needs to yield output, itself included."""
        size = stage.own.stop - stage.own.start
        supply: Floats = np.zeros(size)
        if stage.streams:
            parts = np.stack([np.broadcast_to(cheapest_feeder(s, self.least[s.up]), size) for s in stage.streams])
            if stage.joins or len(parts) == 1:
                supply = parts.max(axis=0)
            else:
                supply = np.where(np.stack([m[:, 0] for m in stage.mix]) > 0, parts, inf).min(axis=0)
        least = np.where(self.living[stage.own], 0.0, self.new[stage.own] + supply)
        self.least[stage.own] = np.where(self.worth[stage.own] > 0, least, inf)

    def _down(self, number: int, stage: Stage) -> None:
        """A lower bound on the new tasks downstream of each task that let its output count."""
        own = self.down[stage.own]
        own[self.compiled.values[stage.own] > 0] = 0.0
        for j, stream in enumerate(stage.streams):
            side: Floats = np.where(self.worth[stage.own] > 0, self.new[stage.own] + own, inf)
            if stage.joins:
                others = [np.zeros(1)] + [cheapest_feeder(s, self.least[s.up]) for k, s in enumerate(stage.streams) if k != j]
                side = side + np.max(np.stack([np.broadcast_to(part, len(side)) for part in others]), axis=0)
            elif len(stage.streams) > 1:
                side = np.where(stage.mix[j][:, 0] > 0, side, inf)
            self.sides[number, j] = side
            up = self.down[stream.up]
            np.minimum(up, cheapest_child(stream, side), out=up)

    # -------------------------------------------------------------------- roots

    def _roots(self) -> Iterator[tuple[list[int], frozenset[_Need]]]:
        """Where to begin: tasks that are in the tree for sure, and what these need."""
        if not self.living[self.compiled.values > 0].any():
            ends = np.flatnonzero((self.compiled.values > 0) & (self.least <= self.most))
            for task in ends[np.lexsort((-self.worth[ends], self.least[ends]))][:ROOTS]:
                yield [], frozenset((self._need(int(self.stage_of[task]), frozenset((int(task),))),))
            return
        total = np.where(self.alive, inf, self.least + self.down)
        picked = []
        for stage in self.compiled.stages:
            own = total[stage.own]
            task = stage.own.start + int(np.lexsort((-self.worth[stage.own], own))[0])
            picked.append((total[task], -self.worth[task], task))
        for cost, _, task in sorted(picked)[:ROOTS]:
            if cost <= self.most:
                yield self._way_down(task)

    def _way_down(self, task: int) -> tuple[list[int], frozenset[_Need]]:
        """The tasks of the cheapest way from a task to where output counts, and what they need beside it."""
        way, needs = [task], list[_Need]()
        while self.down[task] > 0 or self.compiled.values[task] <= 0:
            best = (inf, 0.0, 0, 0, 0)
            for number, j in self.consumers[int(self.stage_of[task])]:
                stage = self.compiled.stages[number]
                rows, weight = downstream(stage.streams[j], task - stage.streams[j].up.start)
                cost = np.where(weight > 0, self.sides[number, j][rows], inf)
                first = stage.own.start + rows.start
                row = int(np.lexsort((-self.worth[first : first + len(cost)], cost))[0])
                best = min(best, (float(cost[row]), -float(self.worth[first + row]), number, j, first + row))
            _, _, number, j, task = best
            if self.compiled.stages[number].joins:
                needs += [self._feeders(number, k, task) for k in range(len(self.compiled.stages[number].streams)) if k != j]
            way.append(task)
        return way, frozenset(needs)

    # ------------------------------------------------------------------- search

    def _search(self, way: list[int], needs: frozenset[_Need]) -> Iterator[frozenset[int]]:
        """The smallest trees with these tasks, as sets of new tasks."""
        met = {int(self.stage_of[task]): task for task in way}
        took: tuple[int, object] | None = None
        cost = 0
        for task in way:
            took, cost = (task, took), cost + int(not self.alive[task])
        begin = [needs]
        if way and not self.living[way[0]]:
            begin = [needs | more for more in self._choices(way[0])]
        parts = [_Part(self._open(n, met), cost, 0.0, took) for n in begin]
        for number in reversed(range(len(self.compiled.stages))):
            while any(need.stage == number for part in parts for need in part.needs):
                parts = self._step(parts, number, met)
        for part in parts:
            taken, tasks = part.took, set[int]()
            while taken is not None:
                tasks.add(taken[0])
                taken = taken[1]  # type: ignore[assignment]
            new = frozenset(t for t in tasks if not self.alive[t])
            if new and len(new) <= self.most:
                yield new

    def _step(self, parts: list[_Part], number: int, met: dict[int, int]) -> list[_Part]:
        """Meet one need at this stage of each part that has one, in each way that is tried; the best parts that result."""
        found: dict[frozenset[_Need], _Part] = {}
        for part in parts:
            here = [need for need in part.needs if need.stage == number]
            options = self._met(part, here, met) if here else (part,)
            for option in options:
                known = found.get(option.needs)
                if option.rank[0] <= self.most and (known is None or option.rank < known.rank):
                    found[option.needs] = option
        return sorted(found.values(), key=lambda part: part.rank)[:BEAM]

    def _met(self, part: _Part, here: list[_Need], met: dict[int, int]) -> Iterator[_Part]:
        need = min(here, key=lambda n: (len(n.members), n.tried))
        others = [n for n in here if n is not need]
        tried = dict.fromkeys(t for n in others for t in n.tried if t in need.members)  # one task for several needs
        tried.update(dict.fromkeys(need.tried))
        for task in tried:
            left = part.needs - {need, *(n for n in others if task in n.members)}
            cost = part.cost + int(not self.alive[task])
            score = part.score + log(self.worth[task])
            for more in self._choices(task):
                yield _Part(left | self._open(more, met), cost, score, (task, part.took))

    def _open(self, needs: Iterable[_Need], met: dict[int, int]) -> frozenset[_Need]:
        """The needs that no task meets that yields output already, nor one of the way (by stage)."""
        return frozenset(n for n in needs if n.least > 0 and met.get(n.stage, -1) not in n.members)

    def _choices(self, task: int) -> list[frozenset[_Need]]:
        """What a task needs upstream: one way for a join, one for each stream of another operator."""
        number = int(self.stage_of[task])
        stage = self.compiled.stages[number]
        if not stage.streams:
            return [frozenset()]
        row = task - stage.own.start
        streams = [self._feeders(number, j, task) for j in range(len(stage.streams))]
        if stage.joins or len(streams) == 1:
            ways = [frozenset(streams)]
        else:
            ways = [frozenset((n,)) for n, mix in zip(streams, stage.mix, strict=True) if row_of(mix, row)[0] > 0]
        return [way for way in ways if all(need.least <= self.most for need in way)]

    def _feeders(self, number: int, j: int, task: int) -> _Need:
        stage = self.compiled.stages[number]
        stream = stage.streams[j]
        row = task - stage.own.start
        feeders, weight = upstream(stream, row)
        members: range | frozenset[int] = range(feeders.start, feeders.stop)
        if (weight <= 0).any():
            members = frozenset(feeders.start + int(k) for k in np.flatnonzero(weight > 0))
        return self._need(int(self.stage_of[feeders.start]), members)

    @cached_property
    def _needs(self) -> dict[tuple[int, Collection[int]], _Need]:
        return {}

    def _need(self, stage: int, members: range | frozenset[int]) -> _Need:
        if (stage, members) in self._needs:
            return self._needs[stage, members]
        tasks = np.sort(np.fromiter(members, dtype=np.intp, count=len(members)))
        order = np.lexsort((-self.worth[tasks], self.least[tasks]))[:BRANCHES]
        tried = tuple(int(t) for t in tasks[order] if self.least[t] < inf)
        need = self._needs[stage, members] = _Need(stage, members, tried, float(self.least[tasks].min()))
        return need


@lru_cache(maxsize=4)
def _worth(compiled: Compiled) -> Floats:
    """What each task adds to first order while all live: its rank within its operator."""
    return np.asarray(compiled.slopes(np.ones((compiled.tasks, 1)))[:, 0])


@lru_cache(maxsize=4)
def _graph(compiled: Compiled) -> tuple[Ints, list[list[tuple[int, int]]]]:
    return stage_of(compiled), consumers(compiled)
