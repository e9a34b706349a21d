"""The machine's input (events) and output (instructions). Plain data, so that every fault scenario is a list of these.

The events that are reported to users and the monitor are in `run_events.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ppa_core.engine.intent import PlanRequest
from ppa_core.engine.orders import Order

# --------------------------------------------------------------------------------------------------------------- events


@dataclass(frozen=True)
class BatchReady:
    """Batch `batch` has arrived and can be run; `patient`: it may wait for a replay that is about to end."""

    batch: int
    patient: bool = True


@dataclass(frozen=True)
class BatchDone:
    """The job of an attempt has run all tasks of its order."""

    attempt: int


@dataclass(frozen=True)
class DeadlinePassed:
    """A batch has no output by its deadline, for whatever reason. `cause` as in `NodesLost`."""

    batch: int
    cause: str = ""


@dataclass(frozen=True)
class ReplayDone:
    """The replay of an attempt is complete."""

    attempt: int


@dataclass(frozen=True)
class AttemptFailed:
    """The job of an attempt, a batch or a replay, did not run all tasks of its order, and no lost node explains it."""

    attempt: int


@dataclass(frozen=True)
class NodesLost:
    """Nodes, or suspects, failed together; the data that they held is lost. `cause` is the id of the incident that this begins,
    unless one is open."""

    nodes: frozenset[str]
    cause: str = ""


@dataclass(frozen=True)
class NodesSuspected:
    """Nodes do not answer in time. The run continues without them at once, as if they were lost, but what they hold may still
    be there: if they answer again, `SuspectAnswered` follows, else `NodesLost`."""

    nodes: frozenset[str]
    cause: str = ""


@dataclass(frozen=True)
class SuspectAnswered:
    """A suspect answers again, and has kept its data."""

    node: str


@dataclass(frozen=True)
class CopiesDamaged:
    """Copies of some tasks (node, task) are damaged; everything else on these nodes is intact."""

    copies: frozenset[tuple[str, str]]
    cause: str = ""


@dataclass(frozen=True)
class NodeReturned:
    """A lost node answers again, empty."""

    node: str


@dataclass(frozen=True)
class Restarted:
    """A new driver continues: jobs in progress are lost, the data in the nodes is not. `epoch` is the driver's number."""

    epoch: int


# What operators want: see `intent.py`.


@dataclass(frozen=True)
class PlanSet:
    """From now on, these tasks have a replica, and no others."""

    plan: frozenset[str]


@dataclass(frozen=True)
class RequestSet:
    """From now on, plans are made with this budget, planner and metric."""

    request: PlanRequest


@dataclass(frozen=True)
class PauseSet:
    """True: no further batch is started. False: batches are started again."""

    paused: bool


@dataclass(frozen=True)
class DrainSet:
    """The drained nodes are now these: nothing is placed on them. Other nodes can be used."""

    nodes: frozenset[str]


@dataclass(frozen=True)
class BanSet:
    """The banned nodes are now these: they are not used even if they answer. Other nodes can be used."""

    nodes: frozenset[str]


@dataclass(frozen=True)
class CommandsTaken:
    """These commands count as executed: the highest number of each sender, and when it was accepted."""

    numbers: Mapping[str, tuple[int, float]]


Event = (
    BatchReady
    | BatchDone
    | DeadlinePassed
    | ReplayDone
    | AttemptFailed
    | NodesLost
    | NodesSuspected
    | SuspectAnswered
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
    """Run one batch without the `missing` tasks."""

    order: Order
    missing: frozenset[str]


@dataclass(frozen=True)
class StartReplay:
    """Run past batches, oldest first, in one job that runs in parallel with the live batches.

    `exact` is the first batch for which a task's output is correct: before it, a task that started from empty state fills its
    window.
    """

    orders: tuple[Order, ...]
    attempt: int
    exact: dict[str, int]


@dataclass(frozen=True)
class AwaitReplay:
    """Wait for the running replay before this batch is announced again: the replay is short and completes the recovery."""

    attempt: int


@dataclass(frozen=True)
class Emit:
    """Publish the sinks' output of a batch, as computed by an attempt: accurate, tentative, or a correction. Attempt 0 has
    computed nothing: the output is empty.

    `cause` is the id of the incident that it belongs to, if one is open.
    """

    batch: int
    attempt: int
    status: str
    missing: frozenset[str] = frozenset()
    cause: str = ""


@dataclass(frozen=True)
class ReportRecovered:
    """Lost tasks have caught up with the batch after which they failed."""

    tasks: frozenset[str]
    cause: str = ""


@dataclass(frozen=True)
class Sweep:
    """Nodes can delete all versions of a task except `keep`, and its outputs of batches before `outputs_from`."""

    task: str
    nodes: frozenset[str]
    keep: frozenset[tuple[int, int]]
    outputs_from: int


Instruction = RunBatch | StartReplay | AwaitReplay | Emit | ReportRecovered | Sweep
