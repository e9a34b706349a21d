"""What the monitor keeps. Frozen; written and read by `codec.py`, so the order of the fields is part of the schema.

Times are those of `time.time`. A batch is counted from 0; -1 stands for "never" or "none yet". Fields may be added at the end
of a record with a default; any other change is a new schema version.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any, Literal

from ppa_core.engine.run_events import RunEvent
from ppa_core.topology import Topology, from_dict

NEVER = -1
MOST_TASKS = 20_000  # of a topology that is read from the monitor or uploaded: a few bytes could ask for millions

TaskState = Literal["running", "replicated", "failed", "taken_over", "recovering", "tentative"]
STATES: tuple[TaskState, ...] = ("running", "replicated", "failed", "taken_over", "recovering", "tentative")
"""running: alone; replicated: with an active replica; failed: its node is lost; taken_over: goes on where its replica was;
recovering: being replayed; tentative: runs as before, but an upstream task's output is missing."""

PHASES = ("latestOffset", "queryPlanning", "walCommit", "getBatch", "addBatch", "commitOffsets", "triggerExecution")
"""What Spark's durations are called; others are kept by their name."""


@dataclass(frozen=True, order=True)
class RunKey:
    """Which run of which pipeline. `name` may be shared by many runs; a run is one, over all restarts of its driver."""

    name: str
    run: str

    def __str__(self) -> str:
        return f"{self.name}@{self.run}"


@dataclass(frozen=True)
class NodeInfo:
    """A node as the pipeline was started with it."""

    name: str
    rack: str
    role: str


@dataclass(frozen=True)
class PipelineInfo:
    """What a run was started with. `topology` is the document of a topology file."""

    name: str
    run: str
    query: str
    topology: dict[str, Any]
    nodes: tuple[NodeInfo, ...]
    started: float
    batch_seconds: float
    planner: str = ""
    metric: str = "of"
    budget: int = 0
    plan: tuple[str, ...] = ()
    of: float | None = None
    """What the plan is worth if everything else fails."""

    @property
    def pipeline(self) -> RunKey:
        return RunKey(self.name, self.run)

    def opened(self) -> Topology:
        """The topology; TopologyError if the document is none, or has more than MOST_TASKS tasks."""
        return from_dict(self.topology, MOST_TASKS)


def inner_tasks(topology: Topology) -> tuple[str, ...]:
    """The tasks that can fail, in the topology's order: columns of per-task figures have this order."""
    return tuple(task for i, task in enumerate(topology.tasks) if i not in topology.external_tasks)


@dataclass(frozen=True)
class Homes:
    """Where tasks and their copies live now: node by task."""

    at: float
    homes: dict[str, str]
    replicas: dict[str, str]
    checkpoints: dict[str, str]


@dataclass(frozen=True)
class Sample:
    """The first rows of the latest output, as text: `cells` row by row, as many to a row as there are `columns`."""

    batch: int
    at: float
    status: str
    columns: tuple[str, ...]
    cells: tuple[str, ...]

    @property
    def rows(self) -> list[dict[str, str]]:
        width = len(self.columns)
        if not width:
            return []
        starts = range(0, len(self.cells) - width + 1, width)
        return [dict(zip(self.columns, self.cells[i : i + width], strict=True)) for i in starts]


@dataclass(frozen=True)
class Output:
    """A batch's output as it was published first, or again while still tentative. OF is by the rates measured then."""

    batch: int
    at: float
    revision: int
    status: Literal["accurate", "tentative"]
    of: float
    rows: int = 0
    missing: tuple[str, ...] = ()


@dataclass(frozen=True)
class Correction:
    """The accurate output that replaced a tentative one; `accuracy` is the share of it that the tentative one had."""

    batch: int
    at: float
    revision: int
    rows: int = 0
    accuracy: float | None = None
    cause: str = ""


@dataclass(frozen=True)
class Timing:
    """What a batch took."""

    batch: int
    at: float
    seconds: float
    attempts: int = 1
    source_rows: int = 0
    rows_in: int = 0
    state_bytes: int = 0


@dataclass(frozen=True)
class Progress:
    """Spark's streaming progress of one trigger; `phases` are milliseconds in the order of PHASES."""

    batch: int
    at: float
    input_rows: int
    input_rate: float
    processed_rate: float
    phases: tuple[int, ...] = ()
    others: dict[str, int] = field(default_factory=dict)

    @property
    def durations(self) -> dict[str, int]:
        """Milliseconds by the name that Spark gives them."""
        return {**dict(zip(PHASES, self.phases, strict=False)), **self.others}


@dataclass(frozen=True)
class TaskColumns:
    """All tasks' figures after a batch, one column a figure, in the order of `inner_tasks`. Rates are tuples/s."""

    batch: int
    at: float
    state: tuple[int, ...]
    """Places in STATES."""
    rate_in: tuple[float, ...]
    rate_out: tuple[float, ...]
    seconds: tuple[float, ...]
    state_bytes: tuple[int, ...]
    checkpoint_batch: tuple[int, ...]
    checkpoint_bytes: tuple[int, ...]
    replica_batch: tuple[int, ...]
    """The newest batch that the replica has; NEVER without a replica."""
    progress: tuple[float, ...]
    """Of the recovery, from 0 to 1; 1 for a task that is not being recovered."""

    def __post_init__(self) -> None:
        columns = [getattr(self, column.name) for column in fields(self)[2:]]
        if len({len(column) for column in columns}) > 1:
            raise ValueError("columns of different length")
        if self.state and not (min(self.state) >= 0 and max(self.state) < len(STATES)):
            raise ValueError("a state that is none")


class Interim(TaskColumns):
    """The same between two batches, when tasks are in another state: it is current, and no part of the history."""


@dataclass(frozen=True)
class StateChange:
    """Tasks that are in another state from `at` on, and the cause."""

    at: float
    batch: int
    cause: str
    states: dict[str, TaskState]


@dataclass(frozen=True)
class NodeStatus:
    """A node's last sign of life, and the memory that it uses (None if it was not asked)."""

    name: str
    rack: str
    role: str
    alive: bool = True
    heartbeat: float | None = None
    memory: int | None = None
    drained: bool = False
    """Whether it was left gracefully: it answers, and nothing is kept there."""


@dataclass(frozen=True)
class NodeStatuses:
    """All nodes at one time."""

    at: float
    nodes: tuple[NodeStatus, ...]


@dataclass(frozen=True)
class PlanChange:
    """A plan from `batch` on: who chose it, why, and what is different from the one before."""

    at: float
    batch: int
    plan: tuple[str, ...]
    budget: int
    planner: str
    metric: str = "of"
    of: float | None = None
    reason: str = ""
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    cause: str = ""


@dataclass(frozen=True)
class StoredEvent:
    """Something that happened, as it was reported; `id` is given by the store, in order."""

    event: RunEvent
    id: str = ""


@dataclass(frozen=True)
class Incident:
    """From the first failure to the last correction; `until` is None while it goes on.

    Batches are spans (first, last). `predicted` is the lowest OF that was told with a tentative output, `accuracy` the mean of
    what was measured when these were corrected.
    """

    id: str
    since: float
    batch: int
    until: float | None = None
    nodes: tuple[str, ...] = ()
    reason: str = ""
    failed: tuple[str, ...] = ()
    taken_over: tuple[str, ...] = ()
    tentative: tuple[tuple[int, int], ...] = ()
    corrected: tuple[tuple[int, int], ...] = ()
    predicted: float | None = None
    accuracy: float | None = None
    measured: int = 0
    """Batches that `accuracy` is the mean of."""
    first_tentative: float | None = None
    recovered: float | None = None
    """When the failed tasks were back at the batch they failed after, as the paper measures recovery."""
    last_correction: float | None = None


@dataclass(frozen=True)
class Minute:
    """A minute of batches: what a long time is drawn from."""

    at: float
    batches: int
    of_mean: float
    of_min: float
    seconds_mean: float
    seconds_max: float
    source_rows: int
    tentative: int = 0
    corrected: int = 0


@dataclass(frozen=True)
class Totals:
    """Counts since the run began, over restarts of its driver."""

    batches: int = 0
    tentative_batches: int = 0
    tentative_seconds: float = 0.0
    corrected_batches: int = 0
    incidents: int = 0


@dataclass(frozen=True)
class WriterHealth:
    """How the telling itself goes: records told, written, dropped because the monitor was away, refused by it."""

    at: float
    told: int = 0
    written: int = 0
    dropped: int = 0
    refused: int = 0


@dataclass(frozen=True)
class Life:
    """What the pipeline is doing: running, paused, stopping, ended or failed, and why."""

    at: float
    doing: Literal["running", "paused", "stopping", "ended", "failed"]
    reason: str = ""


@dataclass(frozen=True)
class AuditRecord:
    """A line of the audit log. `who` is empty where no signature vouches for it. missing: it was sent and never arrived."""

    at: float
    pipeline: str
    command: str
    """The command's id."""
    who: str
    what: str
    outcome: Literal["accepted", "refused", "done", "failed", "unknown", "missing"]
    text: str = ""


@dataclass(frozen=True)
class CommandOutcome:
    """What came of a command."""

    at: float
    command: str
    outcome: Literal["done", "failed", "refused", "unknown"]
    text: str = ""
