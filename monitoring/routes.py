"""Where a record is stored: in a series, in the current state, or both. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from monitoring import keys, records, task_records
from monitoring.keys import Series
from ppa_core.engine.run_events import RunEvent


@dataclass(frozen=True)
class Route:
    """Where a record is stored: in a series, in a field of the current state, or as an incident."""

    at: float = 0.0
    series: Series | None = None
    field: str | None = None
    incident: tuple[str, float] | None = None
    """Its id, and when it began."""


_SERIES: dict[type, Series] = {series.record: series for series in keys.SERIES if series not in (keys.TASKS, keys.TASK_MINUTES)}
_FIELDS: dict[type, str] = {record: field for field, record in keys.NOW.items()}


def routes(record: Any) -> tuple[Route, ...]:
    """Where to store a record; empty if it is not a record. TASK_MINUTES takes only the first one of each minute."""
    if isinstance(record, records.Incident):
        return Route(field="incident"), Route(incident=(record.id, record.since))
    if isinstance(record, task_records.InterimColumns):
        return (Route(record.at, field="tasks"),)
    if isinstance(record, RunEvent):
        return (Route(record.at, keys.EVENTS),)
    at = getattr(record, "at", 0.0)
    found = []
    if type(record) in _FIELDS:
        found.append(Route(at, field=_FIELDS[type(record)]))
    if type(record) in _SERIES:
        found.append(Route(at, _SERIES[type(record)]))
    if isinstance(record, task_records.TaskColumns):
        found += [Route(at, keys.TASKS), Route(at, keys.TASK_MINUTES)]
    return tuple(found)
