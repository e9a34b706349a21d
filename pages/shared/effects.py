"""What would happen if nodes went: which tasks are missing, the OF without them, what is lost, how long it takes. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import mean, median

import numpy as np
from numpy.typing import NDArray

from monitoring.records import Incident, NodeRecord, PipelineInfo
from monitoring.views import BatchRecord, Snapshot, TaskRecord
from pages.shared.words import counted
from ppa_core.errors import PpaError, RequestError
from ppa_core.fidelity import compile_topology
from ppa_core.placement.nodes import Node
from ppa_core.placement.place import Placement, change_plan
from ppa_core.topology import Topology, count, derive

MISSING = ("failed", "recovering")
DETECTION = 2.0
"""Seconds until a loss is noticed: two heartbeats."""
BUSIEST = 0.8
"""The share of the interval that batches are taken to leave no more than: beyond it, catching up has no end to foresee."""
_NOWHERE = "redis://127.0.0.1:1"
COUNTED_TASKS = 5_000
"""MC-trees of a larger topology are not counted while an operator waits."""


@dataclass(frozen=True)
class Effect:
    """What the loss of `nodes` does, beside what is missing already."""

    nodes: tuple[str, ...]
    hit: tuple[str, ...]
    """Tasks that live there."""
    taken_over: tuple[str, ...]
    missing: tuple[str, ...]
    of: float
    of_now: float
    trees: int | None
    trees_left: int | None
    recovery: float | None
    """Seconds, about; None where nothing has to be recovered or nothing is known."""
    from_source: tuple[str, ...]
    """Tasks that would lose their checkpoint as well: they are rebuilt from the source."""
    recovering: tuple[str, ...]
    """Tasks that are missing already and are being recovered there: that would begin anew."""
    copies: int
    """Replicas and checkpoints of other tasks that live there."""

    @property
    def safe(self) -> bool:
        return not self.missing and not self.recovering

    @property
    def trees_lost(self) -> int | None:
        return None if self.trees is None or self.trees_left is None else self.trees - self.trees_left


def effect(topology: Topology, tasks: Sequence[TaskRecord], lost: Collection[str], pace: float | None = None) -> Effect:
    """The loss of these nodes now. `pace` is what a batch takes, in seconds: what a replayed batch is expected to take."""
    gone = set(lost)
    already = {task.task for task in tasks if task.state in MISSING}
    hit = [task for task in tasks if task.node in gone]
    over = [task for task in hit if task.task not in already and fresh(task, gone)]
    kept = {task.task for task in over}
    missing = [task for task in hit if task.task not in kept and task.task not in already]
    dead = already | {task.task for task in missing}
    trees, left = trees_left(topology, already), trees_left(topology, dead)
    copies = sum((task.replica in gone) + (task.checkpoint in gone) for task in tasks)
    return Effect(
        tuple(sorted(gone)),
        tuple(task.task for task in hit),
        tuple(task.task for task in over),
        tuple(task.task for task in missing),
        fidelity(topology, dead),
        fidelity(topology, already),
        trees,
        left,
        recovery_seconds(missing, pace, share_of_work(topology, dead)),
        tuple(task.task for task in missing if task.checkpoint is None or task.checkpoint in gone),
        tuple(task.task for task in hit if task.task in already),
        copies,
    )


def fresh(task: TaskRecord, gone: Collection[str]) -> bool:
    """Whether a task would go on with its replica if these nodes went."""
    return task.replica is not None and task.replica not in gone and task.replica_lag is not None


def fidelity(topology: Topology, missing: Iterable[str]) -> float:
    """The OF without these tasks."""
    return compile_topology(topology).value(_alive(topology, missing))


def share_of_work(topology: Topology, missing: Collection[str]) -> float:
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


def trees_left(topology: Topology, missing: Collection[str]) -> int | None:
    """How many MC-trees are whole without these tasks; None where counting them takes too long."""
    if len(topology.tasks) > COUNTED_TASKS:
        return None
    try:
        return count(topology, [i for i, task in enumerate(topology.tasks) if task not in missing] if missing else None)
    except RequestError:
        return None


def recovery_seconds(missing: Sequence[TaskRecord], pace: float | None, share: float = 1.0) -> float | None:
    """Detection, a batch, and those since the oldest checkpoint of the missing tasks, each with its share of a live one's work.

    An estimate from above: a replay runs many batches in one job. Nothing is said where a task has no checkpoint yet.
    """
    ages = [task.checkpoint_age for task in missing]
    if not ages or pace is None or any(age is None for age in ages):
        return None
    return DETECTION + pace * (1 + share * max(age for age in ages if age is not None))


def pace_of(batches: Sequence[BatchRecord], interval: float) -> float | None:
    """Seconds that a replayed batch takes: what one takes, of the last ones, and its part of those that come meanwhile."""
    known = [batch.seconds for batch in batches[-60:] if batch.seconds is not None]
    if not known:
        return None
    return mean(known) / (1 - min(BUSIEST, mean(known) / interval))


def measured_recovery(incidents: Iterable[Incident]) -> tuple[float, int] | None:
    """The median of the time until all was corrected in earlier incidents with failed tasks, and how many there were."""
    took = [incident.until - incident.since for incident in incidents if incident.until is not None and incident.failed]
    return (median(took), len(took)) if took else None


# ----------------------------------------------------------------------------------------------------- nodes and racks


@dataclass(frozen=True)
class Verdict:
    """Whether a node, or all of a rack, can be taken down, in words and as the OF if it goes."""

    target: str
    """`node:NAME` or `rack:NAME`."""
    alive: bool
    effect: Effect
    word: str
    """yes, no, or lost."""
    why: str


def verdict(target: str, alive: bool, found: Effect) -> Verdict:
    if not alive:
        return Verdict(target, alive, found, "lost", "lost already; bring it back")
    if found.missing:
        return Verdict(target, alive, found, "no", f"{counted(len(found.missing), 'task')} without a fresh replica")
    if found.recovering:
        one = len(found.recovering) == 1
        why = "a task is being recovered here" if one else f"{len(found.recovering)} tasks are being recovered here"
        return Verdict(target, alive, found, "no", why)
    if found.hit:
        one = len(found.hit) == 1
        why = "its task goes on with its replica" if one else f"its {len(found.hit)} tasks go on with their replicas"
        return Verdict(target, alive, found, "yes", why)
    copies = f"no task lives here, only {counted(found.copies, 'copy', 'copies')}"
    return Verdict(target, alive, found, "yes", copies if found.copies else "nothing lives here")


def verdicts(topology: Topology, snapshot: Snapshot, pace: float | None) -> list[Verdict]:
    """Every rack with its nodes after it, in the order of names."""
    found = []
    nodes = known_nodes(snapshot)
    for rack in sorted({node.rack for node in nodes}):
        members = [node for node in nodes if node.rack == rack]
        if len(members) > 1:
            names = [node.name for node in members]
            alive = any(node.alive for node in members)
            found.append(verdict(f"rack:{rack}", alive, effect(topology, snapshot.tasks, names, pace)))
        found += [verdict(f"node:{n.name}", n.alive, effect(topology, snapshot.tasks, [n.name], pace)) for n in members]
    return found


def known_nodes(snapshot: Snapshot) -> list[NodeRecord]:
    """The nodes as they were told of last; as the run was started with them where nothing was told since."""
    told = {node.name: node for node in snapshot.nodes}
    return [told.get(node.name) or NodeRecord(node.name, node.rack, node.role) for node in snapshot.info.nodes]


def nodes_of(snapshot: Snapshot, targets: Iterable[str]) -> tuple[str, ...]:
    """The nodes that `node:NAME` and `rack:NAME` stand for."""
    wanted = set(targets)
    return tuple(n.name for n in known_nodes(snapshot) if f"node:{n.name}" in wanted or f"rack:{n.rack}" in wanted)


# ------------------------------------------------------------------------------------------------------- another plan


def with_plan(
    info: PipelineInfo, tasks: Sequence[TaskRecord], plan: Collection[str], lost: Collection[str]
) -> list[TaskRecord]:
    """The tasks as they would be with another plan: replicas where the runtime would put them, all of them fresh."""
    nodes = tuple(
        Node(node.name, node.rack, "standby" if node.role == "standby" else "primary", _NOWHERE) for node in info.nodes
    )
    names = {node.name for node in nodes}
    homes = {task.task: task.node for task in tasks if task.node in names}
    replicas = {t.task: t.replica for t in tasks if t.replica is not None and t.replica in names and t.task in homes}
    kept = {t.task: t.checkpoint for t in tasks if t.checkpoint is not None and t.checkpoint in names and t.task in homes}
    now = Placement(nodes, frozenset(replicas), homes, replicas, kept)
    try:
        placed = change_plan(now, [task for task in plan if task in homes], lost).replicas
    except PpaError:
        placed = {}
    return [
        replace(
            task,
            replica=placed.get(task.task),
            replica_lag=(task.replica_lag if task.replica_lag is not None else 0) if task.task in placed else None,
        )
        for task in tasks
    ]
