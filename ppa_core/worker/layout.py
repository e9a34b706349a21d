"""The layout: which Spark partition runs a task, and which operators share a Spark stage."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from ppa_core.errors import BadInput
from ppa_core.pipeline.definition import Pipeline
from ppa_core.pipeline.streams import Stream


@dataclass(frozen=True)
class Layout:
    """Assigns tasks to `partitions` Spark partitions, and operators to stages; there is an exchange between two stages.

    An operator shares the stage of its upstreams if its input never crosses partitions; otherwise it is in a later stage.
    So the stage of an operator is the largest number of exchanges on a path to it.
    """

    pipeline: Pipeline
    partitions: int
    stage_of: Mapping[str, int]

    @classmethod
    def of(cls, pipeline: Pipeline, partitions: int) -> Layout:
        if partitions < 1:
            raise BadInput("partitions", f"{partitions} partitions; at least 1 is required")
        stage_of: dict[str, int] = {}
        for operator in pipeline.operators:
            steps = (stage_of[stream.source] + (not _stays(stream, partitions)) for stream in operator.inputs)
            stage_of[operator.name] = max(steps, default=0)
        return cls(pipeline, partitions, stage_of)

    @cached_property
    def stages(self) -> int:
        return max(self.stage_of.values(), default=-1) + 1

    def operators(self, stage: int) -> tuple[str, ...]:
        """The operators of a stage, upstream before downstream."""
        return tuple(operator.name for operator in self.pipeline.operators if self.stage_of[operator.name] == stage)

    def partition(self, operator: str, task: int) -> int:
        """The partition that runs task `task` (counted from 0) of `operator`."""
        return task * self.partitions // self.pipeline.by_name[operator].tasks

    def tasks(self, operator: str, partition: int) -> range:
        """The tasks of `operator` that a partition runs: a contiguous range."""
        n, p = self.pipeline.by_name[operator].tasks, self.partitions
        return range(-(-partition * n // p), -(-(partition + 1) * n // p))

    def crosses(self, stream: Stream) -> bool:
        """Whether a stream goes through an exchange: its ends are in different stages."""
        return self.stage_of[stream.source] != self.stage_of[stream.target]


def _stays(stream: Stream, partitions: int) -> bool:
    """Whether every substream stays within its partition."""
    n1, n2, p = stream.up_tasks, stream.down_tasks, partitions
    return all(up * p // n1 == down * p // n2 for up in range(n1) for down in _ends(stream.downstream(up)))


def _ends(tasks: range) -> tuple[int, ...]:
    """First and last task: partitions are monotone in the task number, so checking both ends is enough."""
    return (tasks[0], tasks[-1]) if tasks else ()
