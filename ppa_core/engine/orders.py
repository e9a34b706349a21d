"""Orders to the workers: one `Order` for one batch. Plain data."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Version:
    """A task's state after a batch, as written by an attempt, and the nodes that hold it (first choice first).

    Attempt 0 is the empty state, whatever the batch: no attempt wrote it, and no node needs to hold it.
    """

    batch: int
    attempt: int
    nodes: tuple[str, ...] = ()


@dataclass(frozen=True)
class TaskRun:
    """One task in one batch: the version that it starts from, and where the new version is written.

    `before` is None if the same job writes that version, in the batch before.
    """

    home: str
    before: Version | None
    replica: str | None = None
    checkpoint: str | None = None
    buffer: str | None = None
    """A node that gets only the output: the output buffer that belongs to the checkpoint there."""

    @property
    def targets(self) -> frozenset[str]:
        """The nodes that are written to."""
        return frozenset(node for node in (self.home, self.replica, self.checkpoint, self.buffer) if node)


@dataclass(frozen=True)
class Order:
    """Run these tasks for one batch. Tasks in neither `runs` nor `outputs` are missing: their output counts as empty."""

    batch: int
    attempt: int
    runs: dict[str, TaskRun]
    outputs: dict[str, Version] = field(default_factory=dict)
    """Tasks that do not run, but whose output of this batch is stored in a node: a replay reads it from there."""

    def uses(self, nodes: Collection[str], lost: Collection[str] = ()) -> bool:
        """Whether the order writes to one of these nodes, or reads something that nobody else holds, the lost ones aside."""
        read = [run.before for run in self.runs.values() if run.before] + list(self.outputs.values())
        gone = {*nodes, *lost}
        alone = any(version.nodes and gone.issuperset(version.nodes) for version in read)
        return alone or any(not run.targets.isdisjoint(nodes) for run in self.runs.values())
