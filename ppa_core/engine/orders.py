"""What a worker is told: one `Order` for one batch. Plain data."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Version:
    """A task's state after a batch, as written by an attempt, and the nodes that hold it (first choice first).

    Attempt 0 is the empty state, whatever the batch: no attempt wrote it, and no node need hold it.
    """

    batch: int
    attempt: int
    nodes: tuple[str, ...] = ()


@dataclass(frozen=True)
class TaskRun:
    """One task in one batch: from which version, and where the new one goes.

    `before` is None if the version before is the one that this same job writes for the batch before.
    """

    home: str
    before: Version | None
    replica: str | None = None
    checkpoint: str | None = None
    buffer: str | None = None
    """A node that gets the output only: with the last checkpoint there, it is the output buffer that the checkpoint needs."""


@dataclass(frozen=True)
class Order:
    """Run these tasks for one batch. Tasks in neither `runs` nor `outputs` are missing: their output is taken for empty."""

    batch: int
    attempt: int
    runs: dict[str, TaskRun]
    outputs: dict[str, Version] = field(default_factory=dict)
    """Tasks that do not run but whose output of this batch is in a node: replay reads it from there."""
