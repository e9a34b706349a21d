"""What a reader returns: records joined by batch, by task and by incident. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from monitoring.records import (
    Correction,
    Incident,
    NodeStatus,
    Output,
    PipelineInfo,
    PlanChange,
    Progress,
    RunStatus,
    Sample,
    StoredEvent,
    TaskPlacement,
    Timing,
    Totals,
    WriterHealth,
)
from monitoring.sentences import counted
from monitoring.task_records import NEVER, STATES, StateChange, TaskColumns, TaskState
from ppa_core.engine.predictions import predict
from ppa_core.engine.standing import MeasuredRates, Standing
from ppa_core.errors import TopologyError
from ppa_core.topology import Topology

_READ_SECONDS = 0.5
"""An output is in the monitor after this time at most."""


@dataclass(frozen=True)
class BatchRecord:
    """A batch: its first output, its correction, and its duration.

    `of` is the predicted OF of the first output, `accuracy` the accuracy measured when it was corrected.
    """

    batch: int
    at: float
    status: Literal["accurate", "tentative", "corrected"]
    of: float
    revision: int = 1
    rows: int = 0
    missing: tuple[str, ...] = ()
    corrected_at: float | None = None
    accuracy: float | None = None
    seconds: float | None = None
    attempts: int | None = None
    source_rows: int | None = None
    rows_in: int | None = None


@dataclass(frozen=True)
class TaskRecord:
    """The current state of a task. Ages and lags are in batches; None if unknown."""

    task: str
    operator: str
    state: TaskState
    node: str = ""
    rack: str = ""
    replica: str | None = None
    checkpoint: str | None = None
    rate_in: float = 0.0
    rate_out: float = 0.0
    seconds: float = 0.0
    state_bytes: int = 0
    checkpoint_batch: int | None = None
    checkpoint_age: int | None = None
    checkpoint_bytes: int = 0
    replica_lag: int | None = None
    progress: float = 1.0


@dataclass(frozen=True)
class Snapshot:
    """The current state of a run. What was not reported yet, or could not be read, is None or empty."""

    info: PipelineInfo
    batch: BatchRecord | None = None
    of: float | None = None
    """OF of the last output."""
    progress: Progress | None = None
    tasks: tuple[TaskRecord, ...] = ()
    nodes: tuple[NodeStatus, ...] = ()
    plan: PlanChange | None = None
    incident: Incident | None = None
    """The open incident."""
    totals: Totals = field(default_factory=Totals)
    health: WriterHealth | None = None
    life: RunStatus | None = None
    sample: Sample | None = None
    standing: Standing | None = None
    """Which nodes hold which copies, as reported by the driver. Predictions are made from it."""
    rates: MeasuredRates | None = None

    def measured_topology(self) -> Topology:
        """The topology with the rates that were measured last; with the declared rates if none were measured."""
        topology = self.info.load_topology()
        try:
            return topology if self.rates is None else replace(topology, measured=self.rates.tuples)
        except TopologyError:
            return topology

    @property
    def heard(self) -> float | None:
        """Time of the last data of the run. A live run writes every few seconds, also while it is paused."""
        return self.health.at if self.health else None


@dataclass(frozen=True)
class Point:
    """The OF of one batch, or the lowest OF of one minute."""

    at: float
    of: float
    tentative: bool


@dataclass(frozen=True)
class Recovery:
    """The recovery of one task in an incident: when it failed, when its recovery began, when it was complete."""

    task: str
    failed: float | None = None
    recovering: float | None = None
    whole: float | None = None


@dataclass(frozen=True)
class IncidentReport:
    """Everything that happened in an incident, in order of time."""

    info: PipelineInfo
    incident: Incident
    events: tuple[StoredEvent, ...]
    batches: tuple[BatchRecord, ...]
    changes: tuple[StateChange, ...]
    recoveries: tuple[Recovery, ...]

    def states_at(self, at: float) -> dict[str, TaskState]:
        """The states of the affected tasks at a time of the incident."""
        found: dict[str, TaskState] = {}
        for change in self.changes:
            if change.at > at:
                break
            found.update(change.states)
        return found


def join_batches(
    outputs: Iterable[Output], corrections: Iterable[Correction], timings: Iterable[Timing]
) -> tuple[BatchRecord, ...]:
    """Batches in order. A batch with several outputs has the status of the last, and OF and time of the first."""
    by_batch: dict[int, Output] = {}
    first: dict[int, Output] = {}
    for output in outputs:
        first.setdefault(output.batch, output)
        by_batch[output.batch] = output
    corrected = {correction.batch: correction for correction in corrections}
    took = {timing.batch: timing for timing in timings}
    return tuple(_batch(first[batch], by_batch[batch], corrected.get(batch), took.get(batch)) for batch in sorted(by_batch))


def _batch(first: Output, last: Output, correction: Correction | None, timing: Timing | None) -> BatchRecord:
    status: Literal["accurate", "tentative", "corrected"] = last.status
    if first.status == "tentative" and (correction is not None or last.status == "accurate"):
        status = "corrected"
    return BatchRecord(
        first.batch,
        first.at,
        status,
        first.of,
        max(last.revision, correction.revision if correction else 0),
        last.rows,
        first.missing,
        correction.at if correction else last.at if status == "corrected" else None,
        correction.accuracy if correction else None,
        timing.seconds if timing else None,
        timing.attempts if timing else None,
        timing.source_rows if timing else None,
        timing.rows_in if timing else None,
    )


def join_tasks(
    tasks: Sequence[str], placement: TaskPlacement | None, columns: TaskColumns | None, racks: dict[str, str]
) -> tuple[TaskRecord, ...]:
    """The current state of each task. Figures are left out if their number differs from the number of tasks."""
    known = columns if columns is not None and len(columns.state) == len(tasks) else None
    found = []
    for i, task in enumerate(tasks):
        node = placement.primaries.get(task, "") if placement else ""
        replica = placement.replicas.get(task) if placement else None
        base = TaskRecord(
            task,
            task.rpartition(".")[0],
            "replicated" if replica else "running",
            node,
            racks.get(node, ""),
            replica,
            placement.checkpoints.get(task) if placement else None,
        )
        found.append(base if known is None else _with_figures(base, known, i))
    return tuple(found)


def _with_figures(task: TaskRecord, columns: TaskColumns, i: int) -> TaskRecord:
    checkpoint, replica = columns.checkpoint_batch[i], columns.replica_batch[i]
    return TaskRecord(
        task.task,
        task.operator,
        STATES[columns.state[i]],
        task.node,
        task.rack,
        task.replica,
        task.checkpoint,
        columns.rate_in[i],
        columns.rate_out[i],
        columns.seconds[i],
        columns.state_bytes[i],
        checkpoint if checkpoint != NEVER else None,
        max(0, columns.batch - checkpoint) if checkpoint != NEVER else None,
        columns.checkpoint_bytes[i],
        max(0, columns.batch - replica) if task.replica is not None and replica != NEVER else None,
        columns.progress[i],
    )


def recoveries(changes: Iterable[StateChange]) -> tuple[Recovery, ...]:
    """When each failed task failed, began to recover and was recovered; `changes` are in order of time."""
    failed: dict[str, float] = {}
    recovering: dict[str, float] = {}
    whole: dict[str, float] = {}
    for change in changes:
        for task, state in change.states.items():
            if state == "failed":
                failed.setdefault(task, change.at)
                whole.pop(task, None)
            elif state == "recovering":
                recovering.setdefault(task, change.at)
                whole.pop(task, None)
            elif task in failed or task in recovering:
                whole.setdefault(task, change.at)
    tasks = sorted({*failed, *recovering})
    return tuple(Recovery(task, failed.get(task), recovering.get(task), whole.get(task)) for task in tasks)


def silence(state: Snapshot, now: float) -> float | None:
    """Seconds since the last output of a run that should have published another one by its deadline; None if it is not late."""
    running = state.life is None or state.life.doing == "running"
    if state.batch is None or not running:
        return None
    since = now - state.batch.at
    return since if since > state.info.batch_seconds + state.info.deadline_seconds + _READ_SECONDS else None


def node_lines(state: Snapshot) -> list[str]:
    """For each node whether it is safe to take down, as predicted by the engine; empty if there is no data to predict from."""
    if state.standing is None:
        return []
    topology, lost = state.measured_topology(), {state.standing.nodes[i] for i in state.standing.lost}
    found = []
    for node in state.info.nodes:
        predicted = predict(state.standing, [node.name], topology)
        loss, verdict = predicted.loss, "safe to take down"
        if node.name in lost:
            verdict = "lost"
        elif loss.nothing_left:
            verdict = "not safe to take down: no other node would be left"
        elif loss.missing:
            missing = counted(len(loss.missing), "task")
            verdict = f"not safe to take down: {missing} would be missing, OF {predicted.of:.4f}"
        elif loss.recovering:
            verdict = f"not safe to take down: {counted(len(loss.recovering), 'task')} being recovered there"
        found.append(f"node {node.name} ({node.rack}): {verdict}")
    return found
