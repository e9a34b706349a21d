"""Predictions of the engine for pages: whether nodes and racks are safe to take down, and which actions apply. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from monitoring.records import Incident, NodeStatus
from monitoring.views import BatchRecord, Snapshot
from pages.shared.words import counted
from ppa_core.engine.predictions import Prediction, predict, replay_pace
from ppa_core.engine.standing import Standing
from ppa_core.placement.nodes import Node
from ppa_core.placement.place import Placement
from ppa_core.topology import Topology

_NOWHERE = "redis://127.0.0.1:1"
NOT_PUBLISHED = "The pipeline has not yet published where its tasks and copies are, so nothing can be predicted."


@dataclass(frozen=True)
class Verdict:
    """Whether a node, or a whole rack, is safe to take down, and the prediction if it is lost."""

    target: str
    """`node:NAME` or `rack:NAME`."""
    alive: bool
    prediction: Prediction
    word: str
    """yes, no, or lost."""
    why: str


def verdict(target: str, alive: bool, prediction: Prediction, copies: int = 0) -> Verdict:
    """The verdict in words. `copies` is the number of replicas and checkpoints of other tasks there."""
    loss = prediction.loss
    if not alive:
        return Verdict(target, alive, prediction, "lost", "already lost; restore it")
    if loss.nothing_left:
        return Verdict(target, alive, prediction, "no", "no other node would be left")
    if loss.missing:
        why = f"{counted(len(loss.missing), 'task')} without an up-to-date copy"
        return Verdict(target, alive, prediction, "no", why)
    if loss.recovering:
        one = len(loss.recovering) == 1
        why = "a task is recovering here" if one else f"{len(loss.recovering)} tasks are recovering here"
        return Verdict(target, alive, prediction, "no", why)
    if loss.hit:
        one = len(loss.hit) == 1
        why = "its task continues on another node" if one else f"its {len(loss.hit)} tasks continue on other nodes"
        return Verdict(target, alive, prediction, "yes", why)
    why = f"no tasks here, only {counted(copies, 'copy', 'copies')}" if copies else "no tasks or copies here"
    return Verdict(target, alive, prediction, "yes", why)


def verdicts(topology: Topology, snapshot: Snapshot, standing: Standing, pace: float | None) -> list[Verdict]:
    """Every rack, followed by its nodes, sorted by name."""
    nodes = known_nodes(snapshot)

    def judged(target: str, members: Sequence[NodeStatus]) -> Verdict:
        names = [node.name for node in members]
        copies = sum((task.replica in names) + (task.checkpoint in names) for task in snapshot.tasks)
        alive = any(node.alive for node in members)
        return verdict(target, alive, predict(standing, names, topology, pace), copies)

    results = []
    for rack in sorted({node.rack for node in nodes}):
        members = [node for node in nodes if node.rack == rack]
        if len(members) > 1:
            results.append(judged(f"rack:{rack}", members))
        results += [judged(f"node:{node.name}", [node]) for node in members]
    return results


def pace_of(batches: Sequence[BatchRecord], interval: float) -> float | None:
    """Seconds per replayed batch, estimated from the last batches."""
    return replay_pace([batch.seconds for batch in batches[-60:] if batch.seconds is not None], interval)


def measured_recovery(incidents: Iterable[Incident]) -> tuple[float, int] | None:
    """The median time until everything was corrected in earlier incidents with failed tasks, and the number of incidents."""
    took = [incident.until - incident.since for incident in incidents if incident.until is not None and incident.failed]
    return (median(took), len(took)) if took else None


def known_nodes(snapshot: Snapshot) -> list[NodeStatus]:
    """The nodes as last reported, or as the run was started with them."""
    reported = {node.name: node for node in snapshot.nodes}
    return [reported.get(node.name) or NodeStatus(node.name, node.rack, node.role) for node in snapshot.info.nodes]


def targets(action: str, snapshot: Snapshot) -> list[str]:
    """The nodes and racks, as `node:NAME` and `rack:NAME`, that an action applies to in their present state."""
    match action:
        case "drain":
            fit = [node for node in known_nodes(snapshot) if node.alive and not node.drained]
        case "undrain":
            fit = [node for node in known_nodes(snapshot) if node.alive and node.drained]
        case "restore":
            fit = [node for node in known_nodes(snapshot) if not node.alive or node.drained]
        case "fail" | "kill":
            fit = [node for node in known_nodes(snapshot) if node.alive]
        case _:
            raise ValueError(f"{action!r} is not an action on nodes")
    return [*(f"node:{node.name}" for node in fit), *sorted({f"rack:{node.rack}" for node in fit})]


def nodes_of(snapshot: Snapshot, targets: Iterable[str]) -> tuple[str, ...]:
    """The nodes of these targets, `node:NAME` or `rack:NAME`."""
    wanted = set(targets)
    return tuple(n.name for n in known_nodes(snapshot) if f"node:{n.name}" in wanted or f"rack:{n.rack}" in wanted)


def placement_of(snapshot: Snapshot) -> Placement:
    """Where tasks and copies are; the URLs of nodes are not known here."""
    nodes = tuple(
        Node(node.name, node.rack, "standby" if node.role == "standby" else "primary", _NOWHERE) for node in snapshot.info.nodes
    )
    names = {node.name for node in nodes}
    homes = {task.task: task.node for task in snapshot.tasks if task.node in names}
    replicas = {t.task: t.replica for t in snapshot.tasks if t.replica is not None and t.replica in names and t.task in homes}
    kept = {
        t.task: t.checkpoint for t in snapshot.tasks if t.checkpoint is not None and t.checkpoint in names and t.task in homes
    }
    return Placement(nodes, frozenset(replicas), homes, replicas, kept)
