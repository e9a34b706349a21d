"""What the machine is told, and what it answers. Plain data, so that every fault scenario is a list of these.

What the run's watchers are told is in `run_events.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ppa_core.engine.intent import PlanRequest
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
class AttemptFailed:
    """The job of an attempt, a batch or a replay, did not run all it was ordered to, and no lost node explains it."""

    attempt: int


@dataclass(frozen=True)
class NodesLost:
    """Nodes that failed together do not answer any more; what they held is gone. `cause` names the incident that this begins,
    if none is open."""

    nodes: frozenset[str]
    cause: str = ""


@dataclass(frozen=True)
class CopiesDamaged:
    """Nodes answer and have what they held, but for their copies of some tasks (node, task): these were damaged."""

    copies: frozenset[tuple[str, str]]
    cause: str = ""


@dataclass(frozen=True)
class NodeReturned:
    """A lost node answers again, empty."""

    node: str


@dataclass(frozen=True)
class Restarted:
    """The driver died and is back: what was under way is lost, what the nodes hold is not."""


# What operators ask for: see `intent.py`.


@dataclass(frozen=True)
class PlanSet:
    """These tasks, and no others, are to have a replica from now on."""

    plan: frozenset[str]


@dataclass(frozen=True)
class RequestSet:
    """Later plans are made with this budget, planner and metric."""

    request: PlanRequest


@dataclass(frozen=True)
class PauseSet:
    """No further batch is to be started, or batches are to be started again."""

    paused: bool


@dataclass(frozen=True)
class DrainSet:
    """Nothing is to be kept on these nodes from now on; others that were drained before may be used again."""

    nodes: frozenset[str]


@dataclass(frozen=True)
class BanSet:
    """These nodes are not to be used, whatever they answer; others that were banned before may be used again."""

    nodes: frozenset[str]


@dataclass(frozen=True)
class CommandsTaken:
    """These commands count as carried out: the highest number of each sender, and when it was taken."""

    numbers: Mapping[str, tuple[int, float]]


Event = (
    BatchReady
    | BatchDone
    | ReplayDone
    | AttemptFailed
    | NodesLost
    | CopiesDamaged
    | NodeReturned
    | Restarted
    | PlanSet
    | RequestSet
    | PauseSet
    | DrainSet
    | BanSet
    | CommandsTaken
)


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
    """Publish the sinks' output of a batch as an attempt computed it: accurate, tentative, or a correction.

    `cause` is the incident that it belongs to, if one is open.
    """

    batch: int
    attempt: int
    status: str
    missing: frozenset[str] = frozenset()
    cause: str = ""


@dataclass(frozen=True)
class ReportRecovered:
    """Lost tasks are back at the batch they failed after."""

    tasks: frozenset[str]
    cause: str = ""


@dataclass(frozen=True)
class Sweep:
    """Nodes may forget all versions of a task but `keep`, and outputs of batches before `outputs_from`."""

    task: str
    nodes: frozenset[str]
    keep: frozenset[tuple[int, int]]
    outputs_from: int


Instruction = RunBatch | StartReplay | AwaitReplay | Emit | ReportRecovered | Sweep
