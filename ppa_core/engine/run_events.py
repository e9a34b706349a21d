"""What happens in a run: one frozen type for each thing, and their union. `event_codec.py` turns them into JSON and back.

A driver reports these; they go unchanged to whoever supervises it, to the terminal, the monitor, the pages and the reports.
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


class BatchFinished(_Event, frozen=True, tag="batch"):
    """A batch is complete: what it took. `stats` and the task lists are there where a monitor watches."""

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
    """The first of them, with the reasons."""
    stats: TaskFigures | None = None


class BatchProgress(_Event, frozen=True, tag="progress"):
    """Spark's own progress of one trigger; durations are milliseconds by the name that Spark gives them."""

    input_rows: Count
    processed_rate: Number
    durations: Annotated[dict[Text, Count], Meta(max_length=100)]
    input_rate: Number = 0.0


class SourceSilent(_Event, frozen=True, tag="source silent"):
    """A live source's medium does not answer; it is asked again."""


# ------------------------------------------------------------------------------------------------ what the machine knows


class Placed(_Event, frozen=True, tag="placed"):
    """Where tasks and copies are, node by task: at the start and after every change."""

    homes: Places
    replicas: Places
    checkpoints: Places


class StandingChanged(_Event, frozen=True, tag="standing"):
    """Who holds which version: predictions are made from it."""

    standing: Standing


class RatesMeasured(_Event, frozen=True, tag="rates"):
    """The measured rates, now and then if they have changed."""

    rates: MeasuredRates


class PlanChanged(_Event, frozen=True, tag="plan changed"):
    """Other tasks have a replica from the next batch on."""

    plan: Texts
    budget: Count
    planner: Text
    metric: Text
    of: Number
    of_before: Number
    reason: Text


class PlanningFailed(_Event, frozen=True, tag="planning failed"):
    """Planning for changed rates failed; the plan stays."""

    reason: Text


# ------------------------------------------------------------------------------------------------------ nodes and recovery


class Heartbeat(_Event, frozen=True, tag="heartbeat"):
    """The nodes that answer, bytes that they use, and the nodes that are drained or declared failed."""

    alive: Texts
    memory: Annotated[dict[Text, Count], Meta(max_length=MOST_ITEMS)]
    drained: Texts = ()
    banned: Texts = ()


class NodeLost(_Event, frozen=True, tag="node lost"):
    """A node does not answer, or has lost what it held."""

    node: Text
    reason: Text
    rack: Text = ""


class FailedOver(_Event, frozen=True, tag="failover"):
    """What a node's loss did: `lost` lived there, `missing` had no copy as new and must be replayed; OF of all missing now."""

    node: Text
    lost: Texts
    missing: Texts
    of: Number = 1.0


class CopyLost(_Event, frozen=True, tag="copy lost"):
    """A node's copy of a task was damaged; `missing` has the task if no other copy is as new."""

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
    """Lost tasks are back at the batch they failed after."""

    tasks: Texts


class NodeBack(_Event, frozen=True, tag="node back"):
    """A lost node answers again, empty, and is used."""

    node: Text


class JobFailed(_Event, frozen=True, tag="job failed"):
    """A Spark job failed and is run again."""

    reason: Text


class StreamRestarted(_Event, frozen=True, tag="stream restarted"):
    """Spark's streaming query ended and is started again."""

    reason: Text


# ---------------------------------------------------------------------------------------------------------- life of a run


class Starting(_Event, frozen=True, tag="starting"):
    """A step of the start that takes a while."""

    what: Text


class DriverRestarted(_Event, frozen=True, tag="resumed"):
    """A restarted driver continues the run: what it found missing, tentative batches, lost nodes, and whether it is paused."""

    missing: Texts
    tentative: Counts
    lost: Texts
    paused: bool = False


class DriverDied(_Event, frozen=True, tag="driver died"):
    """The driver process ended unexpectedly and is started again."""

    reason: Reason


class Paused(_Event, frozen=True, tag="paused"):
    """No further batch is started."""


class Resumed(_Event, frozen=True, tag="continued"):
    """A paused run continues."""


class Stopping(_Event, frozen=True, tag="stopping"):
    """The run ends after the batch under way."""


class Ended(_Event, frozen=True, tag="ended"):
    """The run is over."""


class Failed(_Event, frozen=True, tag="failed"):
    """The run ended with an error; `bad_input` has place and reason if it was the user's input."""

    reason: Reason
    bad_input: tuple[Text, Reason] | None = None


class Unavailable(_Event, frozen=True, tag="unavailable"):
    """Something that the run needs is missing on this machine."""

    reason: Reason


# ------------------------------------------------------------------------------------------------------------- commands


class CommandNumbers(_Event, frozen=True, tag="carried out"):
    """Which commands earlier drivers of the run carried out, as its ledger has it."""

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


# ------------------------------------------------------------------------------------------- what the monitor concludes


class RunStarted(_Event, frozen=True, tag="started"):
    """The first driver of a run began."""

    query: Text
    tasks: Count
    nodes: Count


class TentativeBegan(_Event, frozen=True, tag="tentative"):
    """Output is tentative from this batch on, or tentative in another way."""

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
    | Recovered | NodeBack | JobFailed | StreamRestarted | Starting | DriverRestarted | DriverDied | Paused | Resumed
    | Stopping | Ended | Failed | Unavailable | CommandNumbers | CommandAnswered | CommandCarriedOut | RunStarted
    | TentativeBegan | Corrected | Reconciled
)  # fmt: skip
