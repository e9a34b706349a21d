"""Every key of the monitor and its bound.

    ppa:monitor:schema                      version of the stored format                           string
    ppa:monitor:pipelines                   runs by the time of their last data                    sorted set, RUNS
    ppa:monitor:<name>:<run>:info           configuration of the run                               string, expires
    ppa:monitor:<name>:<run>:now            current state                                          hash, fields of NOW
    ppa:monitor:<name>:<run>:<series>       history: see SERIES                                    streams, each with a cap
    ppa:monitor:<name>:<run>:incidents      incidents by start time                                sorted set, INCIDENTS
    ppa:monitor:<name>:<run>:incident:<id>  one incident                                           string, expires
    ppa:monitor:<name>:<run>:commands       commands to the run, signed                            stream, COMMANDS
    ppa:monitor:<name>:<run>:audit          commands and their outcomes, signed and chained        stream, AUDIT
    ppa:monitor:<name>:<run>:audit-head     number of the newest line, signed every few seconds    string, expires
    ppa:monitor:<name>:<run>:outcome:<id>   outcome of a command, signed                           string, expires

A word in capitals is the maximum number of entries. All keys of a run expire EXPIRE seconds after its last data. Names are
percent-encoded, so that keys of different pipelines never overlap. A stream's ids are the records' times in milliseconds, so a
range of time is a range of ids.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, unquote

from monitoring import records, task_records
from monitoring.records import RunKey
from ppa_core.engine.standing import MeasuredRates, Standing

SCHEMA = 1

DAY = 86_400
WEEK = 7 * DAY
EXPIRE = 2 * WEEK
"""Seconds that a run's keys are kept after its last data."""

RUNS = 32
INCIDENTS = 500
COMMANDS = 1_000
AUDIT = 5_000
OUTCOME_EXPIRE = DAY

_ROOT = "ppa:monitor"
SCHEMA_KEY = f"{_ROOT}:schema"
PIPELINES_KEY = f"{_ROOT}:pipelines"


@dataclass(frozen=True)
class Series:
    """A stream of records of one type with about `cap` entries (a few more, because Redis trims whole blocks).

    Caps are for one batch per second. `tests/monitoring/test_keys.py` checks the memory that a week of records needs.
    """

    name: str
    record: Any
    cap: int


OUTPUTS = Series("outputs", records.Output, WEEK)
CORRECTIONS = Series("corrections", records.Correction, 50_000)
TIMINGS = Series("timings", records.Timing, WEEK)
PROGRESS = Series("progress", records.Progress, WEEK)
MINUTES = Series("minutes", records.Minute, 4 * WEEK // 60)
TASKS = Series("tasks", task_records.TaskColumns, 300)
"""Per-task figures of every batch, for five minutes."""
TASK_MINUTES = Series("task-minutes", task_records.TaskColumns, 360)
"""Per-task figures of one batch per minute, for six hours."""
STATES = Series("states", task_records.StateChange, 10_000)
PLANS = Series("plans", records.PlanChange, 1_000)
EVENTS = Series("run-events", records.StoredEvent, 20_000)
"""Older versions wrote `events` in another form; what is left of it expires."""

SERIES = (OUTPUTS, CORRECTIONS, TIMINGS, PROGRESS, MINUTES, TASKS, TASK_MINUTES, STATES, PLANS, EVENTS)

NOW: dict[str, Any] = {
    "output": records.Output,
    "correction": records.Correction,
    "sample": records.Sample,
    "timing": records.Timing,
    "progress": records.Progress,
    "tasks": task_records.TaskColumns,
    "homes": records.TaskPlacement,
    "standing": Standing,
    "rates": MeasuredRates,
    "nodes": records.NodeStatuses,
    "plan": records.PlanChange,
    "incident": records.Incident,
    "totals": records.Totals,
    "health": records.WriterHealth,
    "life": records.RunStatus,
}
"""The fields of the current state."""


def member(pipeline: RunKey) -> str:
    """The run as it is written in keys and in the set of runs."""
    return f"{quote(pipeline.name, safe='')}:{quote(pipeline.run, safe='')}"


def pipeline_of(text: bytes) -> RunKey | None:
    """The run that `member` returned this text for; None if there is none."""
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


def renewed_keys(pipeline: RunKey) -> list[str]:
    """The keys of a run whose expiry is renewed while it runs."""
    named = [info(pipeline), now(pipeline), incidents(pipeline), commands(pipeline), audit(pipeline), audit_head(pipeline)]
    return [*named, *(series(pipeline, each) for each in SERIES)]
