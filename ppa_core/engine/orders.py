"""What a worker is told: one `Order` for one batch. Plain data, so that it travels as JSON."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any


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

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> Order:
        return cls(
            document["batch"],
            document["attempt"],
            {task: _run(run) for task, run in document["runs"].items()},
            {task: _version(version) for task, version in document["outputs"].items()},
        )


def _version(document: dict[str, Any]) -> Version:
    return Version(document["batch"], document["attempt"], tuple(document["nodes"]))


def _run(document: dict[str, Any]) -> TaskRun:
    before = _version(document["before"]) if document["before"] else None
    return TaskRun(document["home"], before, document["replica"], document["checkpoint"], document["buffer"])
