"""Texts of the Live page about a run and about one task. Pure."""

from __future__ import annotations

from functools import lru_cache

from monitoring.records import Incident
from monitoring.views import BatchRecord, Snapshot, TaskRecord
from pages.shared.looks import state_word
from pages.shared.picture import Scene
from pages.shared.words import NOTHING, clock, counted, duration, number, percent, share, size
from ppa_core.errors import RequestError
from ppa_core.topology import Topology, containing, count, derive
from ppa_core.topology.mctrees import effort

MOST_EFFORT = 2_000_000
"""MC-trees are not counted per task if that takes longer than about two seconds."""


def scene(snapshot: Snapshot, topology: Topology, selected: str = "", opened: frozenset[str] | None = None) -> Scene:
    """The current state of a run, ready to be drawn."""
    return Scene(
        topology,
        {task.task: task.state for task in snapshot.tasks},
        plan_of(snapshot),
        {task.task: task.progress for task in snapshot.tasks if task.state == "recovering"},
        {task.task: _where(task) for task in snapshot.tasks},
        {task.task: task.rate_out for task in snapshot.tasks} if snapshot.batch else {},
        selected,
        opened,
    )


def plan_of(snapshot: Snapshot) -> frozenset[str]:
    """The tasks in the current plan."""
    return frozenset(snapshot.plan.plan if snapshot.plan else snapshot.info.plan)


def budget_of(snapshot: Snapshot) -> int:
    return snapshot.plan.budget if snapshot.plan else snapshot.info.budget


def planner_of(snapshot: Snapshot) -> str:
    return snapshot.plan.planner if snapshot.plan else snapshot.info.planner


def task_rows(task: str, snapshot: Snapshot, topology: Topology) -> list[tuple[str, str]]:
    """All details of a task, as pairs of a name and a text."""
    known = next((each for each in snapshot.tasks if each.task == task), None)
    trees = trees_with(topology, task)
    if known is None:
        output = float(derive(topology).output[topology.index[task]])
        return [
            ("state", "external source: its data can be replayed, so it does not fail"),
            ("output rate", _rate(output)),
            ("MC-trees that contain it", trees),
        ]
    doing = f", {percent(known.progress)} done" if known.state == "recovering" else ""
    return [
        ("state", state_word(known.state) + doing),
        ("node", known.node or NOTHING),
        ("rack", known.rack or NOTHING),
        ("input rate", _rate(known.rate_in)),
        ("output rate", _rate(known.rate_out)),
        ("time per batch", f"{1000 * known.seconds:.1f} ms"),
        ("state size", size(known.state_bytes)),
        ("replica", NOTHING if known.replica is None else f"on {known.replica}"),
        ("replica is behind by", _batches(known.replica_lag)),
        ("checkpoint", NOTHING if known.checkpoint is None else f"on {known.checkpoint}, {size(known.checkpoint_bytes)}"),
        ("checkpoint age", _batches(known.checkpoint_age)),
        ("MC-trees lost if it fails", trees),
    ]


def trees_with(topology: Topology, task: str) -> str:
    """The number and share of MC-trees that contain a task."""
    found = _trees(topology)
    if found is None:
        return "too many to count"
    total, each = found
    here = each[topology.index[task]]
    return f"{number(here)} of {number(total)}, {percent(here / total)}"


@lru_cache(maxsize=16)
def _trees(topology: Topology) -> tuple[int, list[int]] | None:
    try:
        total = count(topology)
        return (total, containing(topology)) if effort(topology, total) <= MOST_EFFORT else None
    except RequestError:
        return None


def result_line(batch: BatchRecord | None, tasks: int) -> str:
    """The latest output with its status. If all of so many tasks are missing, nothing was computed by the deadline."""
    if batch is None:
        return "no output yet"
    if batch.status == "tentative" and len(batch.missing) >= tasks:
        return f"batch {batch.batch} was not computed by its deadline: an empty output, published at {clock(batch.at)}"
    label = batch.status if batch.status == "accurate" else f"{batch.status}, OF {share(batch.of)}"
    return f"batch {batch.batch}, {label}, {counted(batch.rows, 'row')}, published at {clock(batch.at)}"


def delay_line(snapshot: Snapshot) -> str:
    """How long the last output took, its deadline, and how many outputs were late."""
    totals, deadline = snapshot.totals, snapshot.info.deadline_seconds
    took = "no output yet" if totals.delay is None else f"last output {totals.delay:.1f} s after its interval"
    late = f"{totals.late_outputs} late, by {totals.worst_lateness:.1f} s at most" if totals.late_outputs else "none late"
    return f"{took}\ndeadline {deadline:g} s: {late}"


def incident_line(incident: Incident, now: float) -> str:
    """An open incident in one sentence, without any name from outside."""
    failed, over = counted(len(incident.failed), "task"), counted(len(incident.taken_over), "task")
    lowest = f" Lowest predicted OF: {share(incident.predicted)}." if incident.predicted is not None else ""
    since = duration(max(0.0, now - incident.since))
    return f"Incident in progress for {since}: {failed} failed, {over} taken over by replicas.{lowest}"


def _where(task: TaskRecord) -> str:
    replica = f", replica on {task.replica}" if task.replica else ""
    return f"on {task.node or NOTHING}{replica}"


def _rate(rate: float) -> str:
    return f"{rate:,.1f} tuples/s".replace(",", " ")


def _batches(count_: int | None) -> str:
    return NOTHING if count_ is None else counted(count_, "batch", "batches")
