"""The records that the monitor stores. They are written and read by `codec.py`: the order of fields is part of the schema.

Times are in seconds since the epoch. Batches are counted from 0; -1 means "never" or "none yet". Fields with a default may be
added at the end of a record; any other change needs a new schema version.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from ppa_core.engine.run_events import RunEvent
from ppa_core.topology import Topology, from_dict

MAX_TASKS = 20_000  # of a topology from the monitor or an upload, where a few bytes could ask for millions

PHASES = ("latestOffset", "queryPlanning", "walCommit", "getBatch", "addBatch", "commitOffsets", "triggerExecution")
"""Spark's names for the durations of a trigger; other durations are stored with their name."""


@dataclass(frozen=True, order=True)
class RunKey:
    """Identifies a run of a pipeline. Many runs can share a `name`. A restart of the driver continues the same run."""

    name: str
    run: str

    def __str__(self) -> str:
        return f"{self.name}@{self.run}"


@dataclass(frozen=True)
class NodeInfo:
    """A node of the run's configuration."""

    name: str
    rack: str
    role: str


@dataclass(frozen=True)
class PipelineInfo:
    """The configuration that a run was started with. `topology` is the content of a topology file."""

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
    """The plan's worst-case OF."""
    deadline: float | None = None
    """Seconds after the end of its interval by which a batch has an output; None: two intervals."""

    @property
    def deadline_seconds(self) -> float:
        return 2 * self.batch_seconds if self.deadline is None else self.deadline

    @property
    def pipeline(self) -> RunKey:
        return RunKey(self.name, self.run)

    def load_topology(self) -> Topology:
        """The topology; TopologyError if it is not valid or has more than MAX_TASKS tasks."""
        return from_dict(self.topology, MAX_TASKS)


@dataclass(frozen=True)
class TaskPlacement:
    """The node of each task, of its replica and of its checkpoint."""

    at: float
    primaries: dict[str, str]
    replicas: dict[str, str]
    checkpoints: dict[str, str]


@dataclass(frozen=True)
class Sample:
    """The first rows of the latest output that has rows, as text. `cells` are row by row, one for each of `columns`."""

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
    """An output of a batch: the first, or a later one that is still tentative. OF is predicted with the rates measured then."""

    batch: int
    at: float
    revision: int
    status: Literal["accurate", "tentative"]
    of: float
    rows: int = 0
    missing: tuple[str, ...] = ()


@dataclass(frozen=True)
class Correction:
    """The accurate output that replaced a tentative one; `accuracy` is the share of it that the tentative output had."""

    batch: int
    at: float
    revision: int
    rows: int = 0
    accuracy: float | None = None
    cause: str = ""


@dataclass(frozen=True)
class Timing:
    """The duration, attempts and sizes of a batch."""

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
        """Milliseconds by Spark's names."""
        return {**dict(zip(PHASES, self.phases, strict=False)), **self.others}


@dataclass(frozen=True)
class NodeStatus:
    """Whether a node is alive, its last heartbeat, and the memory that it uses (None if unknown)."""

    name: str
    rack: str
    role: str
    alive: bool = True
    heartbeat: float | None = None
    memory: int | None = None
    drained: bool = False
    """Whether it was drained: it answers, but holds no tasks and no copies."""


@dataclass(frozen=True)
class NodeStatuses:
    """The status of all nodes."""

    at: float
    nodes: tuple[NodeStatus, ...]


@dataclass(frozen=True)
class PlanChange:
    """The plan in force from `batch` on: its planner, the reason, and the difference from the previous plan."""

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
    """An event as it was reported, with its `id` in the stream of events. Later events have larger ids."""

    event: RunEvent
    id: str = ""


@dataclass(frozen=True)
class Incident:
    """Everything from the first failure to the last correction; `until` is None while the incident is open.

    Batches are ranges (first, last). `predicted` is the lowest predicted OF of a tentative output, `accuracy` the mean accuracy
    measured when tentative outputs were corrected.
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
    """When the failed tasks had reached the batch at which they failed; the paper measures recovery this way."""
    last_correction: float | None = None


@dataclass(frozen=True)
class Minute:
    """The batches of one minute: for charts of a long time."""

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
    """Counts since the run was started, also before restarts of its driver."""

    batches: int = 0
    tentative_batches: int = 0
    tentative_seconds: float = 0.0
    corrected_batches: int = 0
    incidents: int = 0
    late_outputs: int = 0
    """Batches whose first output came after their deadline."""
    worst_lateness: float = 0.0
    """Seconds by which the latest of these was late."""
    delay: float | None = None
    """Seconds from the end of its interval to the first output of the last batch."""


@dataclass(frozen=True)
class WriterHealth:
    """The writer's counts: records received (`told`), written, dropped while the monitor was unavailable, refused."""

    at: float
    told: int = 0
    written: int = 0
    dropped: int = 0
    refused: int = 0


@dataclass(frozen=True)
class RunStatus:
    """The status of the run, and the reason if it failed."""

    at: float
    doing: Literal["running", "paused", "stopping", "ended", "failed"]
    reason: str = ""


@dataclass(frozen=True)
class AuditRecord:
    """A line of the audit log. `who` is empty if the signature is not valid. missing: the command did not arrive."""

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
    """The outcome of a command."""

    at: float
    command: str
    outcome: Literal["done", "failed", "refused", "unknown"]
    text: str = ""
