"""What the machine is told, and what it answers. Plain data, so that every fault scenario is a list of these."""

from __future__ import annotations

from dataclasses import dataclass

from ppa_core.engine.orders import Order

# --------------------------------------------------------------------------------------------------------------- events


@dataclass(frozen=True)
class BatchReady:
    """Batch `batch` has arrived and can be run; `patient`: it can wait for a replay that is about to end."""

    batch: int
    patient: bool = True


@dataclass(frozen=True)
class BatchDone:
    """The job of an attempt ran every task it was ordered to run."""

    attempt: int


@dataclass(frozen=True)
class ReplayDone:
    """The replay of an attempt reached its end."""

    attempt: int


@dataclass(frozen=True)
class JobFailed:
    """The job of an attempt, a batch or a replay, did not run all it was ordered to, and no lost node explains it."""

    attempt: int


@dataclass(frozen=True)
class NodeLost:
    """A node does not answer any more; what it held is gone."""

    node: str


@dataclass(frozen=True)
class CopyLost:
    """A node answers and has what it held, but for its copy of one task: that was damaged."""

    node: str
    task: str


@dataclass(frozen=True)
class NodeBack:
    """A node answers (again), empty."""

    node: str


@dataclass(frozen=True)
class Drain:
    """Nothing is to be kept on these nodes from now on, all that are named before and not here may be used again."""

    nodes: frozenset[str]


@dataclass(frozen=True)
class PlanChanged:
    """Other tasks are to have a replica from now on."""

    plan: frozenset[str]


@dataclass(frozen=True)
class Restarted:
    """The driver died and is back: what was under way is lost, what the nodes hold is not."""


Event = BatchReady | BatchDone | ReplayDone | JobFailed | NodeLost | CopyLost | NodeBack | Drain | PlanChanged | Restarted


# --------------------------------------------------------------------------------------------------------- instructions


@dataclass(frozen=True)
class RunBatch:
    """Run one batch; `missing` tasks are left out."""

    order: Order
    missing: frozenset[str]


@dataclass(frozen=True)
class StartReplay:
    """Run past batches, oldest first, in one job beside the batches that arrive.

    `exact` says from which batch on what a task makes is right: before it, a task that began with nothing fills its window.
    """

    orders: tuple[Order, ...]
    attempt: int
    exact: dict[str, int]


@dataclass(frozen=True)
class AwaitReplay:
    """Let the replay under way end before this batch is made ready again: it is short, and then all is well."""

    attempt: int


@dataclass(frozen=True)
class Emit:
    """Publish the sinks' output of a batch as an attempt computed it: accurate, tentative, or a correction."""

    batch: int
    attempt: int
    status: str
    missing: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Sweep:
    """Nodes may forget all versions of a task but `keep`, and outputs of batches before `outputs_from`."""

    task: str
    nodes: frozenset[str]
    keep: frozenset[tuple[int, int]]
    outputs_from: int


Instruction = RunBatch | StartReplay | AwaitReplay | Emit | Sweep
