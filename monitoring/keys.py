"""Every key of the monitor, what bounds it, and what a week of it takes.

    ppa:monitor:schema                      the version of what is kept                             one text
    ppa:monitor:pipelines                   the runs known, by when they last told something        sorted set, RUNS
    ppa:monitor:<name>:<run>:info           what the run was started with                           one value, expires
    ppa:monitor:<name>:<run>:now            the current value of everything that has one            hash, fields of NOW
    ppa:monitor:<name>:<run>:<series>       history: see SERIES                                     streams, each with its cap
    ppa:monitor:<name>:<run>:incidents      incidents by their beginning                            sorted set, INCIDENTS
    ppa:monitor:<name>:<run>:incident:<id>  one incident                                            one value, expires
    ppa:monitor:<name>:<run>:commands       commands to the run, signed                             stream, COMMANDS
    ppa:monitor:<name>:<run>:audit          every command taken, refused, done; signed and chained  stream, AUDIT
    ppa:monitor:<name>:<run>:audit-head     the newest line of it, signed anew every few seconds    one value, expires
    ppa:monitor:<name>:<run>:outcome:<id>   what came of a command, signed                          one value, expires

A word in capitals is the most that there are. All keys of a run expire together, EXPIRE seconds after the run
last told something. Names are quoted, so no name of a pipeline reaches into another's keys. A stream's ids are the records'
times in milliseconds, so a range of time is a range of ids.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, unquote

from monitoring import records
from monitoring.records import RunKey
from ppa_core.engine.standing import MeasuredRates, Standing

SCHEMA = 1

DAY = 86_400
WEEK = 7 * DAY
EXPIRE = 2 * WEEK
"""Seconds that a run's keys stay after its last word."""

RUNS = 32
INCIDENTS = 500
COMMANDS = 1_000
AUDIT = 5_000
OUTCOME_EXPIRE = DAY

WEEK_BOUND = 185_000_000
"""Bytes that a week at one batch a second may take."""

_ROOT = "ppa:monitor"
SCHEMA_KEY = f"{_ROOT}:schema"
PIPELINES_KEY = f"{_ROOT}:pipelines"


@dataclass(frozen=True)
class Series:
    """A stream of records of one kind, with at most `cap` entries (a few more: whole blocks are trimmed).

    `a_week` is how many of them a week at one batch a second gives, `size` what one takes in Redis at most, on average, by
    measurement (`tests/monitoring/test_keys.py`): with 15 tasks on 8 nodes, for per-task figures with 1,000. It holds for
    servers that round up what they allocate (jemalloc, as in Debian's Redis) and those that do not.
    """

    name: str
    record: Any
    cap: int
    a_week: int
    size: int

    @property
    def most(self) -> int:
        """Bytes after a week."""
        return min(self.cap, self.a_week) * self.size


OUTPUTS = Series("outputs", records.Output, WEEK, WEEK, 72)
CORRECTIONS = Series("corrections", records.Correction, 50_000, 20_000, 100)
TIMINGS = Series("timings", records.Timing, WEEK, WEEK, 82)
PROGRESS = Series("progress", records.Progress, WEEK, WEEK, 106)
MINUTES = Series("minutes", records.Minute, 4 * WEEK // 60, WEEK // 60, 120)
TASKS = Series("tasks", records.TaskColumns, 300, WEEK, 21_500)
"""Per-task figures of every batch, for five minutes."""
TASK_MINUTES = Series("task-minutes", records.TaskColumns, 360, WEEK // 60, 21_500)
"""The same, of one batch a minute, for six hours."""
STATES = Series("states", records.StateChange, 10_000, 2_000, 500)
PLANS = Series("plans", records.PlanChange, 1_000, 200, 500)
EVENTS = Series("run-events", records.StoredEvent, 20_000, 10_000, 300)
"""`events` had them in another form; what is left of it expires."""

SERIES = (OUTPUTS, CORRECTIONS, TIMINGS, PROGRESS, MINUTES, TASKS, TASK_MINUTES, STATES, PLANS, EVENTS)

NOW: dict[str, Any] = {
    "output": records.Output,
    "correction": records.Correction,
    "sample": records.Sample,
    "timing": records.Timing,
    "progress": records.Progress,
    "tasks": records.TaskColumns,
    "homes": records.Homes,
    "standing": Standing,
    "rates": MeasuredRates,
    "nodes": records.NodeStatuses,
    "plan": records.PlanChange,
    "incident": records.Incident,
    "totals": records.Totals,
    "health": records.WriterHealth,
    "life": records.Life,
}
"""The fields of the hash of current values."""


def week_bytes() -> int:
    """What a week at one batch a second takes at most, by the measured sizes."""
    return sum(series.most for series in SERIES) + INCIDENTS * 1_000 + AUDIT * 400 + 500_000


def member(pipeline: RunKey) -> str:
    """The pipeline as it stands in keys and in the set of known ones."""
    return f"{quote(pipeline.name, safe='')}:{quote(pipeline.run, safe='')}"


def pipeline_of(text: bytes) -> RunKey | None:
    """The pipeline that `member` wrote; None if it did not write this."""
    try:
        name, colon, run = text.decode("ascii").partition(":")
        found = RunKey(unquote(name, errors="strict"), unquote(run, errors="strict"))
    except UnicodeDecodeError:
        return None
    return found if colon and len(text) < 50_000 and member(found).encode() == text else None


def key(pipeline: RunKey, *rest: str) -> str:
    return ":".join((_ROOT, member(pipeline), *rest))


def info(pipeline: RunKey) -> str:
    return key(pipeline, "info")


def now(pipeline: RunKey) -> str:
    return key(pipeline, "now")


def series(pipeline: RunKey, which: Series) -> str:
    return key(pipeline, which.name)


def incidents(pipeline: RunKey) -> str:
    return key(pipeline, "incidents")


def incident(pipeline: RunKey, id_: str) -> str:
    return key(pipeline, "incident", quote(id_, safe="", errors="backslashreplace"))


def commands(pipeline: RunKey) -> str:
    return key(pipeline, "commands")


def audit(pipeline: RunKey) -> str:
    return key(pipeline, "audit")


def audit_head(pipeline: RunKey) -> str:
    return key(pipeline, "audit-head")


def outcome(pipeline: RunKey, id_: str) -> str:
    return key(pipeline, "outcome", id_)


def lasting(pipeline: RunKey) -> list[str]:
    """The keys of a run whose expiry is renewed while it tells."""
    named = [info(pipeline), now(pipeline), incidents(pipeline), commands(pipeline), audit(pipeline), audit_head(pipeline)]
    return [*named, *(series(pipeline, each) for each in SERIES)]
