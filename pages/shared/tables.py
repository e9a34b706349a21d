"""Rows of the tables and lines of the texts of Failover, What-if and Incidents. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from monitoring.records import AuditRecord, NodeStatus, StoredEvent
from monitoring.sentences import sentence
from monitoring.views import Snapshot
from pages.shared.budgets import PlanDifference
from pages.shared.effects import Verdict, known_nodes
from pages.shared.words import NOTHING, clock, counted, duration, named, number, percent, share, size
from ppa_core.engine.event_codec import kind_of
from ppa_core.engine.predictions import Prediction


def node_rows(snapshot: Snapshot, verdicts: Sequence[Verdict], now: float) -> list[dict[str, object]]:
    """Every rack and node with its tasks and copies, and the verdict."""
    nodes = {f"node:{node.name}": node for node in known_nodes(snapshot)}
    homes = Counter(task.node for task in snapshot.tasks)
    replicas = Counter(task.replica for task in snapshot.tasks)
    checkpoints = Counter(task.checkpoint for task in snapshot.tasks)
    rows: list[dict[str, object]] = []
    for verdict in verdicts:
        node = nodes.get(verdict.target)
        members = [node] if node else [each for each in nodes.values() if f"rack:{each.rack}" == verdict.target]
        names = [each.name for each in members]
        beat = node.heartbeat if node else None
        rows.append(
            {
                "rack": members[0].rack if members else verdict.target.removeprefix("rack:"),
                "node": node.name if node else f"all {len(members)}",
                "role": node.role if node else "",
                "safe?": verdict.word,
                "OF if lost": share(verdict.prediction.of) if verdict.alive else NOTHING,
                "why": verdict.why,
                "tasks": sum(homes[name] for name in names),
                "replicas": sum(replicas[name] for name in names),
                "checkpoints": sum(checkpoints[name] for name in names),
                "state": _condition(verdict.alive, [each.drained for each in members]),
                "heartbeat": NOTHING if beat is None else f"{duration(max(0.0, now - beat))} ago",
                "memory": size(node.memory) if node else "",
            }
        )
    return rows


def _condition(alive: bool, drained: Sequence[bool]) -> str:
    return "lost" if not alive else "drained" if drained and all(drained) else "up"


def contents_lines(snapshot: Snapshot, nodes: Sequence[str]) -> list[str]:
    """The tasks and copies on these nodes, as lines of text."""
    here = set(nodes)
    homes = [task.task for task in snapshot.tasks if task.node in here]
    replicas = [task.task for task in snapshot.tasks if task.replica in here]
    checkpoints = [task.task for task in snapshot.tasks if task.checkpoint in here]
    return [
        f"Tasks here: {some(homes)}",
        f"Replicas here: {some(replicas)}",
        f"Checkpoints here: {some(checkpoints)}",
    ]


def effect_lines(action: str, nodes: Sequence[str], prediction: Prediction, known: Sequence[NodeStatus]) -> list[str]:
    """The effect of an action on nodes, as lines of text; `known` are all nodes as they are now."""
    lost, drained = {node.name for node in known if not node.alive}, {node.name for node in known if node.drained}
    where, down = named(list(nodes)), set(nodes) <= lost
    if action == "undrain" and not set(nodes) & drained:
        return [f"{where} is not drained: nothing to do."]
    if action == "restore" and not set(nodes) & (lost | drained):
        return [f"{where} is in use: nothing to do."]
    if action in ("undrain", "restore"):
        used = [node for node in nodes if node in drained or (node in lost and action == "restore")]
        return [f"Used again for tasks and copies: {named(used)}"]
    if down:
        return [f"{where} is already lost: nothing to do."]
    if action == "drain" and set(nodes) <= drained:
        return [f"{where} is already drained: nothing to do."]
    out_of_use = {"drain": lost | drained, "fail": lost}
    if action in out_of_use and out_of_use[action].union(nodes) >= {node.name for node in known}:
        return ["It would be refused: no other node would be left. Restore another one first."]
    if action == "drain":
        missing = counted(len(prediction.loss.missing), "task")
        return [
            f"Moved to other nodes: {some(prediction.loss.hit)}",
            "No output becomes tentative; the OF does not change.",
            f"If it failed without warning instead: OF {share(prediction.of)}, {missing} missing.",
        ]
    return failure_lines(prediction)


def failure_lines(prediction: Prediction) -> list[str]:
    """The effect of a failure, as lines of text."""
    lines = [
        f"OF: {share(prediction.of_now)} now, {share(prediction.of)} until recovery is complete.",
        f"Taken over by other nodes: {some(prediction.loss.taken_over)}",
        f"Missing until they are recovered: {some(prediction.loss.missing)}",
        f"MC-trees lost: {trees_text(prediction)}",
        f"Expected recovery time: {recovery_text(prediction)}",
    ]
    if prediction.loss.recovering:
        lines.append(f"Recovering there now; their recovery starts again: {some(prediction.loss.recovering)}")
    if prediction.loss.from_source:
        lines.append(f"Their checkpoints are lost too; rebuilt from the source: {named(prediction.loss.from_source)}")
    return lines


def some(tasks: Sequence[str]) -> str:
    """The number of tasks, and their names."""
    return f"{number(len(tasks))} ({named(list(tasks))})" if tasks else "none"


def trees_text(prediction: Prediction) -> str:
    if prediction.trees is None or prediction.trees_lost is None:
        return "too many to count"
    part = f", {percent(prediction.trees_lost / prediction.trees)}" if prediction.trees else ""
    return f"{number(prediction.trees_lost)} of {number(prediction.trees)}{part}"


def recovery_text(prediction: Prediction) -> str:
    if not prediction.loss.missing:
        return "none, nothing has to be recovered"
    return "unknown" if prediction.recovery is None else f"up to about {duration(prediction.recovery)}"


def change_lines(budget: int, before: float | None, after: float, difference: PlanDifference) -> list[str]:
    """The effect of another budget, as lines of text."""
    return [
        f"Budget {budget}: worst-case OF changes from {share(before)} to {share(after)}.",
        f"Replicas added: {some(difference.added)}",
        f"Replicas removed: {some(difference.removed)}",
        f"Replicas kept: {len(difference.kept)}",
        "Both are computed with the latest measured rates.",
    ]


def audit_rows(lines: Sequence[AuditRecord]) -> list[dict[str, str]]:
    """The audit log, newest line first."""
    return [
        {
            "time": clock(line.at),
            "who": line.who or "unknown",
            "command": line.what,
            "outcome": line.outcome,
            "text": line.text,
            "id": line.command[:8],
        }
        for line in reversed(lines)
    ]


def event_rows(events: Sequence[StoredEvent]) -> list[dict[str, object]]:
    """The events of an incident, in order of time."""
    return [
        {"time": clock(event.at), "event": kind_of(event), "batch": event.batch, "what happened": sentence(event)}
        for event in (stored.event for stored in events)
    ]
