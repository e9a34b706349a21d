"""Next trees: the smallest sets of tasks that complete an MC-tree, where the dynamic programme of `completion` finds none."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import inf, log

import numpy as np

from ppa_core.fidelity import Compiled, Mask
from ppa_core.fidelity.compiled import Stage
from ppa_core.planners.costs import (
    cheapest_child,
    cheapest_feeder,
    downstream,
    row_of,
    upstream,
)
from ppa_core.planners.extensions import graph
from ppa_core.topology.rates import Floats

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
        self.stage_of, self.consumers = graph(compiled)
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
