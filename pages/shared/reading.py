"""Reads of the monitor, shared by all viewers of this server: each is made at most once a second.

A failed read also returns an answer: the reason, and the last data. Records are frozen, so they are shared, not copied.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from threading import Lock
from typing import Any, Generic, TypeVar

import streamlit as st

from monitoring.connection import Address
from monitoring.reader import MonitorReader
from monitoring.records import AuditRecord, Incident, PlanChange, Progress, RunKey
from monitoring.signing import Signer
from monitoring.task_records import TaskColumns
from monitoring.views import BatchRecord, IncidentReport, Snapshot
from ppa_core.errors import PpaError
from ppa_core.settings import ProgramSettings, current
from ppa_core.topology import Topology

_log = logging.getLogger(__name__)

T = TypeVar("T")
SECOND, SLOW = 1.0, 10.0
"""How long a read is cached: an ordinary one, and one of many large records."""
_KEPT = 200


@dataclass(frozen=True)
class Answer(Generic[T]):
    """The result of a read. If `trouble` is set, the monitor could not be read, and `value` is the last known one."""

    value: T
    trouble: str = ""


@dataclass(frozen=True)
class Audit:
    """Lines of the audit log, and the result of its verification."""

    lines: tuple[AuditRecord, ...]
    summary: str
    intact: bool


def pipelines() -> Answer[list[RunKey]]:
    return _read("pipelines", [], lambda reader: reader.pipelines())


def state(pipeline: RunKey) -> Answer[Snapshot | None]:
    return _read(f"state {pipeline}", None, lambda reader: reader.state(pipeline))


def topology(pipeline: RunKey) -> Topology | None:
    """The topology that a run was started with; built once, as it does not change."""
    snapshot = state(pipeline).value
    return None if snapshot is None else _opened(str(pipeline), snapshot.info.started, snapshot)


def loaded_topology(pipeline: RunKey) -> Topology | None:
    """The topology with the rates that the driver published last, or with the declared ones."""
    snapshot = state(pipeline).value
    if snapshot is None:
        return None
    return _loaded(str(pipeline), snapshot.info.started, snapshot.rates.batch if snapshot.rates else None, snapshot)


def batches(pipeline: RunKey, seconds: float, limit: int = 600) -> Answer[tuple[BatchRecord, ...]]:
    """The batches of the last `seconds` before the newest data."""
    return _read(f"batches {pipeline} {seconds} {limit}", (), lambda reader: _lately(reader, pipeline, seconds, limit))


def incidents(pipeline: RunKey) -> Answer[list[Incident]]:
    return _read(f"incidents {pipeline}", [], lambda reader: reader.incidents(pipeline))


def incident(pipeline: RunKey, id_: str) -> Answer[IncidentReport | None]:
    return _read(f"incident {pipeline} {id_}", None, lambda reader: reader.incident(pipeline, id_))


def plans(pipeline: RunKey) -> Answer[list[PlanChange]]:
    return _read(f"plans {pipeline}", [], lambda reader: reader.plans(pipeline))


def progress(pipeline: RunKey, seconds: float, limit: int = 1_000) -> Answer[list[Progress]]:
    def read(reader: MonitorReader) -> list[Progress]:
        last = reader.progress(pipeline, limit=1)
        return reader.progress(pipeline, last[-1].at - seconds, None, limit) if last else []

    return _read(f"progress {pipeline} {seconds} {limit}", [], read)


def task_figures(pipeline: RunKey, seconds: float, limit: int = 300) -> Answer[list[TaskColumns]]:
    def read(reader: MonitorReader) -> list[TaskColumns]:
        last = reader.task_figures(pipeline, limit=1)
        return reader.task_figures(pipeline, last[-1].at - seconds, None, limit) if last else []

    return _read(f"figures {pipeline} {seconds} {limit}", [], read, slow=True)


def audit(pipeline: RunKey) -> Answer[Audit]:
    """The last lines of the audit log; only genuine ones if the operator's key is available to verify them."""

    def read(reader: MonitorReader) -> Audit:
        signer = Signer.known(Address.find().directory)
        if signer is None:
            return Audit(
                tuple(reader.audit(pipeline, 300)), "audit log not verified: the operator's key is not available here", True
            )
        chain = reader.chain(pipeline, signer, 300)
        return Audit(chain.lines, str(chain), chain.intact)

    return _read(f"audit {pipeline}", Audit((), "", True), read)


def forget() -> None:
    """Clear the cache, after a command was sent."""
    _answer.clear()


# ------------------------------------------------------------------------------------------------------------------ inside


def _lately(reader: MonitorReader, pipeline: RunKey, seconds: float, limit: int) -> tuple[BatchRecord, ...]:
    last = reader.batches(pipeline, limit=1)
    return reader.batches(pipeline, last[-1].at - seconds, None, limit) if last else ()


def _read(what: str, nothing: Any, read: Callable[[MonitorReader], Any], slow: bool = False) -> Answer[Any]:
    try:
        place, address = _address(current(), str(Path.cwd()))
    except PpaError as error:
        return Answer(nothing, str(error))
    return (_slow_answer if slow else _answer)(place, what, nothing, address, read)


@lru_cache(maxsize=8)
def _address(settings: ProgramSettings, folder: str) -> tuple[str, Address]:
    """The address of the monitor, with a text as cache key; checked once, not at every read."""
    return repr((settings.monitor_url, settings.monitor_read_url, folder)), Address.find(settings=settings)


@st.cache_resource(ttl=SECOND, max_entries=_KEPT, show_spinner=False)
def _answer(place: str, what: str, _nothing: Any, _address: Address, _read: Callable[[MonitorReader], Any]) -> Answer[Any]:
    return _asked(place, what, _nothing, _address, _read)


@st.cache_resource(ttl=SLOW, max_entries=_KEPT, show_spinner=False)
def _slow_answer(place: str, what: str, _nothing: Any, _address: Address, _read: Callable[[MonitorReader], Any]) -> Answer[Any]:
    return _asked(place, what, _nothing, _address, _read)


def _asked(place: str, what: str, nothing: Any, address: Address, read: Callable[[MonitorReader], Any]) -> Answer[Any]:
    kept, lock = _last()
    try:
        value = read(_reader(place, address))
    except PpaError as error:
        _log.info("the monitor could not be read: %s", what, exc_info=True)
        with lock:
            return Answer(kept.get((place, what), nothing), str(error))
    with lock:
        kept.pop((place, what), None)
        kept[place, what] = value
        while len(kept) > _KEPT:
            del kept[next(iter(kept))]
    return Answer(value)


@st.cache_resource(max_entries=4, show_spinner=False)
def _reader(place: str, _address: Address) -> MonitorReader:
    return MonitorReader(_address, timeout=1.5)


@st.cache_resource(show_spinner=False)
def _last() -> tuple[dict[tuple[str, str], Any], Lock]:
    """The last values read, for when the monitor does not respond."""
    return {}, Lock()


@st.cache_resource(max_entries=20, show_spinner=False)
def _loaded(pipeline: str, started: float, rates: int | None, _snapshot: Snapshot) -> Topology:
    return _snapshot.measured_topology()


@st.cache_resource(max_entries=20, show_spinner=False)
def _opened(pipeline: str, started: float, _snapshot: Snapshot) -> Topology:
    return _snapshot.info.load_topology()


def now() -> float:
    return time.time()
