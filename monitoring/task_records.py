"""The records of tasks: states and figures. As in `records.py`, the order of fields is part of the schema."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Literal

from ppa_core.topology import Topology

NEVER = -1

TaskState = Literal["running", "replicated", "failed", "taken_over", "recovering", "tentative"]
STATES: tuple[TaskState, ...] = ("running", "replicated", "failed", "taken_over", "recovering", "tentative")
"""running: without replica; replicated: with replica; failed: its node is lost; taken_over: continues where its replica was;
recovering: being replayed; tentative: runs as before, but the output of an upstream task is missing."""


def inner_tasks(topology: Topology) -> tuple[str, ...]:
    """The tasks that can fail, in the topology's order. Columns of per-task figures have the same order."""
    return tuple(task for i, task in enumerate(topology.tasks) if i not in topology.external_tasks)


@dataclass(frozen=True)
class TaskColumns:
    """Figures of all tasks after a batch: a column for each figure, in the order of `inner_tasks`. Rates are tuples/s."""

    batch: int
    at: float
    state: tuple[int, ...]
    """Indexes in STATES."""
    rate_in: tuple[float, ...]
    rate_out: tuple[float, ...]
    seconds: tuple[float, ...]
    state_bytes: tuple[int, ...]
    checkpoint_batch: tuple[int, ...]
    checkpoint_bytes: tuple[int, ...]
    replica_batch: tuple[int, ...]
    """The newest batch that the replica has; NEVER without a replica."""
    progress: tuple[float, ...]
    """Progress of the recovery, from 0 to 1; 1 for a task that is not being recovered."""

    def __post_init__(self) -> None:
        columns = [getattr(self, column.name) for column in fields(self)[2:]]
        if len({len(column) for column in columns}) > 1:
            raise ValueError("columns of different length")
        if self.state and not (min(self.state) >= 0 and max(self.state) < len(STATES)):
            raise ValueError("an unknown state")


class InterimColumns(TaskColumns):
    """The same between two batches, after the state of a task changed. Part of the current state, not of the history."""


@dataclass(frozen=True)
class StateChange:
    """Tasks whose state changed at time `at`, with their new state, and the cause."""

    at: float
    batch: int
    cause: str
    states: dict[str, TaskState]
