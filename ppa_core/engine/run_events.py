"""What happens in a run: one frozen type for each thing, and their union. `event_codec.py` turns them into JSON and back.

A driver reports these; they go unchanged to the supervising process, the terminal, the monitor, the pages and the reports.
Readers `match` on the type. As JSON an event is one object whose `kind` names its type; docs/events.md is generated from here.

    driver --line--> supervising process --> terminal, drill, monitor's collector --line--> monitor --> pages, reports

Every event says when it happened (`at`, seconds since 1970), after which batch (-1: before the first), and its `cause`: the id
of the incident or of the operator's command that it belongs to, or nothing. Fields may be added at the end with a default.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

from ppa_core.engine.event_fields import MOST_ITEMS, Count, Counts, Number, Places, Reason, TaskFigures, Text, Texts
from ppa_core.engine.standing import MeasuredRates, Standing


class _Caused(Struct, frozen=True, kw_only=True, tag_field="kind"):
    cause: Text = ""


class _Event(_Caused, frozen=True):
    at: Number
    batch: Count


# -------------------------------------------------------------------------------------------------------------- outputs


class OutputPublished(_Event, frozen=True, tag="output"):
    """A batch's output was published; a later revision replaces an earlier one."""

    revision: Count
    status: Literal["accurate", "tentative", "correction"]
    of: Number
    missing: Texts
    rows: Count
    digest: Text
    delay: Number | None = None
    """Seconds from the end of the batch's interval to this output; only of the first output of a batch."""


class BatchFinished(_Event, frozen=True, tag="batch"):
    """A batch is complete: its duration and figures. `stats` is only set if a monitor is attached."""

    seconds: Number
    attempts: Count
    source_rows: Count
    rows_in: Count
    step_cpu: Number = 0.0
    replica_cpu: Number = 0.0
    checkpoint_cpu: Number = 0.0
    state_bytes: Count = 0
    checkpointed: Texts = ()
    synced: Texts = ()
    refused: Count = 0
    """Rows of live sources that were refused."""
    refusals: Texts = ()
    """The first refused rows, with the reasons."""
    stats: TaskFigures | None = None


class BatchProgress(_Event, frozen=True, tag="progress"):
    """Spark's own progress of one trigger; durations are milliseconds by the name that Spark gives them."""

    input_rows: Count
    processed_rate: Number
    durations: Annotated[dict[Text, Count], Meta(max_length=100)]
    input_rate: Number = 0.0


class SourceSilent(_Event, frozen=True, tag="source silent"):
    """A live source does not answer; the driver tries again."""


# ------------------------------------------------------------------------------------------------ what the machine knows


class Placed(_Event, frozen=True, tag="placed"):
    """The node of every task and copy, by task: at the start and after every change."""

    homes: Places
    replicas: Places
    checkpoints: Places


class StandingChanged(_Event, frozen=True, tag="standing"):
    """Which node holds which version, for predictions."""

    standing: Standing


class RatesMeasured(_Event, frozen=True, tag="rates"):
    """The measured rates; checked every ten batches and reported if they have changed."""

    rates: MeasuredRates


class PlanChanged(_Event, frozen=True, tag="plan changed"):
    """A new plan: from the next batch on, these tasks have a replica."""

    plan: Texts
    budget: Count
    planner: Text
    metric: Text
    of: Number
    of_before: Number
    reason: Text


class PlanningFailed(_Event, frozen=True, tag="planning failed"):
    """Planning for changed rates failed; the current plan is kept."""

    reason: Text


# ------------------------------------------------------------------------------------------------------ nodes and recovery


class Heartbeat(_Event, frozen=True, tag="heartbeat"):
    """The nodes that answer, the bytes that they use, and the nodes that are drained or declared failed."""

    alive: Texts
    memory: Annotated[dict[Text, Count], Meta(max_length=MOST_ITEMS)]
    drained: Texts = ()
    banned: Texts = ()


class NodeLost(_Event, frozen=True, tag="node lost"):
    """A node does not answer, or has lost its data. `suspected`: it may answer again with its data; the run continues without
    it meanwhile."""

    node: Text
    reason: Text
    rack: Text = ""
    suspected: bool = False


class FailedOver(_Event, frozen=True, tag="failover"):
    """The effect of a node's loss: the tasks in `lost` ran there; those in `missing` lost their newest version and must be
    replayed. `of` is the OF without all tasks that are missing now."""

    node: Text
    lost: Texts
    missing: Texts
    of: Number = 1.0


class CopyLost(_Event, frozen=True, tag="copy lost"):
    """A node's copy of a task was damaged; `missing` has the task if no other node holds its newest version."""

    node: Text
    task: Text
    missing: Texts


class ReplayStarted(_Event, frozen=True, tag="replaying"):
    """Lost tasks are replayed from batch `first` to the event's own."""

    tasks: Texts
    first: Count


class ReplayFinished(_Event, frozen=True, tag="replayed"):
    """A replay is complete."""

    batches: Count
    seconds: Number
    rows_in: Count


class Recovered(_Event, frozen=True, tag="recovered"):
    """Lost tasks have caught up with the batch after which they failed."""

    tasks: Texts


class NodeBack(_Event, frozen=True, tag="node back"):
    """A lost node answers again and is used: empty, or with the data that it `kept`."""

    node: Text
    kept: bool = False


class JobFailed(_Event, frozen=True, tag="job failed"):
    """A Spark job failed and is run again."""

    reason: Text


class StreamRestarted(_Event, frozen=True, tag="stream restarted"):
    """Spark's streaming query ended and is started again."""

    reason: Text


# ---------------------------------------------------------------------------------------------------------- life of a run


class Starting(_Event, frozen=True, tag="starting"):
    """A step of the start that can take some time."""

    what: Text


class DriverRestarted(_Event, frozen=True, tag="resumed"):
    """A restarted driver resumed the run: missing tasks, tentative batches, lost nodes, and whether the run is paused."""

    missing: Texts
    tentative: Counts
    lost: Texts
    paused: bool = False


class DriverDied(_Event, frozen=True, tag="driver died"):
    """The driver process ended unexpectedly and is restarted."""

    reason: Reason


class StandbyReady(_Event, frozen=True, tag="standby ready"):
    """A standby driver has started and can take over."""


class DriverTookOver(_Event, frozen=True, tag="took over"):
    """The standby driver runs the run from now on; `epoch` is its number among the drivers of the run."""

    epoch: Count


class Paused(_Event, frozen=True, tag="paused"):
    """No further batch is started."""


class Resumed(_Event, frozen=True, tag="continued"):
    """A paused run was resumed."""


class Stopping(_Event, frozen=True, tag="stopping"):
    """The run stops after the current batch."""


class Ended(_Event, frozen=True, tag="ended"):
    """The run is over."""


class Failed(_Event, frozen=True, tag="failed"):
    """The run ended with an error; `bad_input` has the place and the reason if the user's input is wrong."""

    reason: Reason
    bad_input: tuple[Text, Reason] | None = None


class RunUnavailable(_Event, frozen=True, tag="unavailable"):
    """The run ended because something that it needs is not available."""

    reason: Reason


# ------------------------------------------------------------------------------------------------------------- commands


class CommandNumbers(_Event, frozen=True, tag="carried out"):
    """The commands that earlier drivers of the run executed, from its ledger."""

    numbers: dict[Text, tuple[Count, Number]]


class CommandAnswered(_Event, frozen=True, tag="answer"):
    """The outcome of an operator's command, by its id."""

    id: Text
    outcome: Literal["done", "failed"]
    text: Text


class CommandCarriedOut(_Event, frozen=True, tag="command"):
    """An operator's command completed or failed; `cause` is its id."""

    who: Text
    what: Text
    outcome: Text
    text: Text


# ------------------------------------------------------------------------------------- derived by the monitor's collector


class RunStarted(_Event, frozen=True, tag="started"):
    """The first driver of a run began."""

    query: Text
    tasks: Count
    nodes: Count


class TentativeBegan(_Event, frozen=True, tag="tentative"):
    """Output is tentative from this batch on, or other tasks are missing than before."""

    of: Number
    missing: Texts


class Corrected(_Event, frozen=True, tag="corrected"):
    """Tentative batches from `first` to `last` were corrected."""

    first: Count
    last: Count
    batches: Count
    accuracy: Number | None = None


class Reconciled(_Event, frozen=True, tag="reconciled"):
    """An incident is over: every tentative output is corrected."""

    seconds: Number
    accuracy: Number | None = None


RunEvent = (
    OutputPublished | BatchFinished | BatchProgress | SourceSilent | Placed | StandingChanged | RatesMeasured
    | PlanChanged | PlanningFailed | Heartbeat | NodeLost | FailedOver | CopyLost | ReplayStarted | ReplayFinished
    | Recovered | NodeBack | JobFailed | StreamRestarted | Starting | DriverRestarted | DriverDied | StandbyReady
    | DriverTookOver | Paused | Resumed | Stopping | Ended | Failed | RunUnavailable | CommandNumbers | CommandAnswered
    | CommandCarriedOut | RunStarted | TentativeBegan | Corrected | Reconciled
)  # fmt: skip
