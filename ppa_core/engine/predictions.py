"""What if these nodes are lost? Missing tasks, tasks taken over, OF, MC-trees, recovery time. Pure.

Which tasks are missing and which are taken over is what the machine does when it is told of the loss, no more and no less
(`tests/engine/test_predictions.py`). The recovery time is an estimate.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from statistics import mean

import numpy as np
from numpy.typing import NDArray

from ppa_core.engine.standing import FORGETS_NOTHING, Standing
from ppa_core.errors import PpaError, RequestError
from ppa_core.fidelity import compile_topology
from ppa_core.placement.place import Placement, change_plan
from ppa_core.topology import Topology, count, derive

DETECTION = 2.0
"""Seconds until a loss is noticed: two heartbeats."""
BUSIEST = 0.8
"""The share of the interval that batches are taken to fill at most: beyond it, catching up has no end to foresee."""
COUNTED_TASKS = 5_000
"""MC-trees of a larger topology are not counted while an operator waits."""


@dataclass(frozen=True)
class Loss:
    """What the machine does when `nodes` are lost now. Tasks are in the order of the standing."""

    nodes: tuple[str, ...]
    """Those that are not lost yet."""
    hit: tuple[str, ...]
    """Tasks that run there."""
    taken_over: tuple[str, ...]
    """Those of them that continue elsewhere at once."""
    missing: tuple[str, ...]
    """Tasks whose newest version is lost with the nodes, wherever they run; beside those that are missing already."""
    recovering: tuple[str, ...]
    """Tasks that are missing already and were to be recovered there: their recovery starts again."""
    from_source: tuple[str, ...]
    """Missing tasks of which no copy is left: they are rebuilt from the source."""
    replay: int | None
    """Batches from the oldest copy that a missing task is recovered from to the last batch; None if nothing is missing, or
    if there is no other way than from the first batch."""
    nothing_left: bool = False
    """Whether no node would be left: the run would stop."""

    @property
    def safe(self) -> bool:
        return not self.missing and not self.recovering and not self.nothing_left


@dataclass(frozen=True)
class Prediction:
    """A loss, and what it means for the output."""

    loss: Loss
    of: float
    of_now: float
    trees: int | None
    """MC-trees that are whole now; None where counting them takes too long."""
    trees_left: int | None
    recovery: float | None
    """Seconds, about; None where nothing has to be recovered, or it is not known."""

    @property
    def trees_lost(self) -> int | None:
        return None if self.trees is None or self.trees_left is None else self.trees - self.trees_left


def lose(standing: Standing, nodes: Collection[str]) -> Loss:
    """What the machine does if these nodes are lost together."""
    names, known = set(nodes), set(standing.lost)
    gone = {i for i, name in enumerate(standing.nodes) if name in names} - known
    already, needless = set(standing.missing), set(standing.stateless)
    everything = range(len(standing.tasks))
    missing = [
        i for i in everything if gone and i not in already and i not in needless and gone.issuperset(standing.holders[i])
    ]
    hit = [i for i in everything if standing.homes[i] in gone]
    absent = already.union(missing)
    left = {i: [batch for node, batch in standing.copies_of(i) if node not in gone and batch >= 0] for i in missing}

    def named(tasks: Iterable[int]) -> tuple[str, ...]:
        return tuple(standing.tasks[i] for i in tasks)

    return Loss(
        tuple(standing.nodes[i] for i in sorted(gone)),
        named(hit),
        named(i for i in hit if i not in absent),
        named(missing),
        named(i for i in hit if i in already),
        named(i for i in missing if not left[i]),
        _replay(standing, left),
        len(gone | known) == len(standing.nodes),
    )


def _replay(standing: Standing, left: dict[int, list[int]]) -> int | None:
    """Batches that the tasks are replayed for, from the newest of their copies or as far back as their state reaches."""
    found = []
    for task, batches in left.items():
        lookback = standing.lookback[task]
        ages = [standing.batch - max(batches)] if batches else []
        ages += [lookback] if lookback != FORGETS_NOTHING else []
        if not ages:
            return None
        found.append(max(0, min(ages)))
    return max(found, default=None)


def predict(standing: Standing, nodes: Collection[str], topology: Topology, pace: float | None = None) -> Prediction:
    """What the loss of these nodes means, by the rates in `topology`; `pace`: seconds that a replayed batch takes."""
    loss = lose(standing, nodes)
    already = {standing.tasks[i] for i in standing.missing}
    absent = already.union(loss.missing)
    seconds = None
    if pace is not None and loss.replay is not None:
        seconds = DETECTION + pace * (1 + share_of_work(topology, absent) * loss.replay)
    return Prediction(
        loss,
        fidelity(topology, absent),
        fidelity(topology, already),
        whole_trees(topology, already),
        whole_trees(topology, absent),
        seconds,
    )


def replay_pace(took: Sequence[float], interval: float) -> float | None:
    """Seconds that a replayed batch takes: as long as a live one, and its share of those that run meanwhile."""
    return mean(took) / (1 - min(BUSIEST, mean(took) / interval)) if took else None


def with_plan(standing: Standing, placement: Placement, plan: Collection[str]) -> Standing:
    """The standing with another plan in force: replicas where the machine would put them, each with the newest version.

    `placement` is the present one. A plan that cannot be placed has no replicas.
    """
    number = {node: i for i, node in enumerate(standing.nodes)}
    unusable = {*standing.lost, *standing.drained}
    if len(unusable) == len(standing.nodes):
        unusable = set(standing.lost)
    names = {standing.nodes[i] for i in unusable}
    placed: dict[str, str] = {}
    if not names.issuperset(node.name for node in placement.nodes):
        with suppress(PpaError):
            placed = change_plan(placement, [task for task in plan if task in placement.primaries], names).replicas
    holders = []
    for i, task in enumerate(standing.tasks):
        old, new = placement.replicas.get(task), placed.get(task)
        held = {node for node in standing.holders[i] if node != number.get(old or "") or node == standing.homes[i]}
        if new in number and i not in standing.missing:
            held.add(number[new])
        holders.append(tuple(sorted(held)))
    return replace(standing, holders=tuple(holders))


def fidelity(topology: Topology, missing: Iterable[str]) -> float:
    """The OF without these tasks."""
    return compile_topology(topology).value(_alive(topology, missing))


def worth(topology: Topology, plan: Iterable[str]) -> float:
    """The worst-case OF of a plan: only its tasks are alive."""
    compiled = compile_topology(topology)
    return compiled.value(compiled.mask(topology.numbers(task for task in plan if task in topology.index)))


def whole_trees(topology: Topology, missing: Collection[str]) -> int | None:
    """How many MC-trees are whole without these tasks; None where counting them takes too long."""
    if len(topology.tasks) > COUNTED_TASKS:
        return None
    try:
        return count(topology, [i for i, task in enumerate(topology.tasks) if task not in missing] if missing else None)
    except RequestError:
        return None


def share_of_work(topology: Topology, missing: Iterable[str]) -> float:
    """The share of all tuples that these tasks, and those that depend on them, take in: what a replay has to work anew."""
    compiled = compile_topology(topology)
    inner = ~compiled.external
    replayed = inner & (compiled.survival(_alive(topology, missing)[:, None])[:, 0] < 1 - 1e-12)
    taken = derive(topology).input
    whole = taken[inner].sum()
    return float(taken[replayed].sum() / whole if whole > 0 else replayed.sum() / max(inner.sum(), 1))


def _alive(topology: Topology, missing: Iterable[str]) -> NDArray[np.bool_]:
    alive = np.ones(len(topology.tasks), dtype=bool)
    alive[[topology.index[task] for task in missing if task in topology.index]] = False
    return alive
