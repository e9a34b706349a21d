"""What if these nodes are lost? Missing tasks, tasks that fail over, OF, MC-trees, recovery time. Pure functions.

Which tasks are missing and which fail over is exactly what the machine does after the loss
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
"""Seconds until a loss is detected: two heartbeats."""
BUSIEST = 0.8
"""Maximum assumed share of the interval that batches take: above it, the end of a recovery cannot be predicted."""
COUNTED_TASKS = 5_000
"""MC-trees of a larger topology are not counted: that would take too long for an operator who waits."""


@dataclass(frozen=True)
class Loss:
    """What the machine does when `nodes` are lost now. Tasks are in the order of the standing."""

    nodes: tuple[str, ...]
    """Without those that are lost already."""
    hit: tuple[str, ...]
    """Tasks that run there."""
    taken_over: tuple[str, ...]
    """Those of them that continue on another node at once."""
    missing: tuple[str, ...]
    """Tasks, on any node, whose newest version is lost with the nodes; without those that are missing already."""
    recovering: tuple[str, ...]
    """Tasks that are missing already and were being recovered there: their recovery starts again."""
    from_source: tuple[str, ...]
    """Missing tasks without any copy left: they are rebuilt from the source."""
    replay: int | None
    """Batches from the oldest copy that a missing task is recovered from to the last batch; None if nothing is missing, or
    if a task can only be rebuilt from the first batch."""
    nothing_left: bool = False
    """Whether no node would be left: the run would stop."""

    @property
    def safe(self) -> bool:
        return not self.missing and not self.recovering and not self.nothing_left


@dataclass(frozen=True)
class Prediction:
    """A loss and its effect on the output."""

    loss: Loss
    of: float
    of_now: float
    trees: int | None
    """MC-trees that are complete now; None if counting them takes too long."""
    trees_left: int | None
    recovery: float | None
    """Approximate seconds; None if nothing has to be recovered, or if it is unknown."""

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
    """How many batches the tasks replay, from the newest of their copies or over their whole lookback."""
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
    """The effect of losing these nodes, with the rates in `topology`; `pace`: seconds per replayed batch."""
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
        complete_trees(topology, already),
        complete_trees(topology, absent),
        seconds,
    )


def replay_pace(took: Sequence[float], interval: float) -> float | None:
    """Seconds per replayed batch: as long as a live batch, plus the time that live batches take meanwhile."""
    return mean(took) / (1 - min(BUSIEST, mean(took) / interval)) if took else None


def with_plan(standing: Standing, placement: Placement, plan: Collection[str]) -> Standing:
    """The standing with another plan: replicas where the machine would place them, each with the newest version.

    `placement` is the current one. A plan that cannot be placed has no replicas.
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


def worst_case_of(topology: Topology, plan: Iterable[str]) -> float:
    """The worst-case OF of a plan: all other tasks have failed."""
    compiled = compile_topology(topology)
    return compiled.value(compiled.mask(topology.numbers(task for task in plan if task in topology.index)))


def complete_trees(topology: Topology, missing: Collection[str]) -> int | None:
    """How many MC-trees are complete without these tasks; None if counting them takes too long."""
    if len(topology.tasks) > COUNTED_TASKS:
        return None
    try:
        return count(topology, [i for i, task in enumerate(topology.tasks) if task not in missing] if missing else None)
    except RequestError:
        return None


def share_of_work(topology: Topology, missing: Iterable[str]) -> float:
    """The share of all input tuples that belongs to these tasks and all downstream of them: the work of a replay."""
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
