"""Reads the monitor and returns typed values, for pages and scripts.

Nothing in Redis is trusted. A value that is not a valid record is counted (`MonitorReader.bad`) and skipped. A read raises only
MonitorDown (no answer), BadInput (the password is refused) and UnknownSchema, whatever is stored. Nothing is unpickled.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from typing import Any, TypeVar, cast

from monitoring import keys, records, task_records
from monitoring.audit import SLACK, Chain, Head, check
from monitoring.codec import Malformed, loads
from monitoring.connection import Address, Connection
from monitoring.keys import Series
from monitoring.private import ChannelState
from monitoring.records import Incident, PipelineInfo, RunKey, StoredEvent
from monitoring.signing import Signer
from monitoring.views import BatchRecord, IncidentReport, Point, Snapshot, join_batches, join_tasks, recoveries
from ppa_core.errors import RequestError, TopologyError

MAX_RECORDS = 10_000
"""Default limit of records in one read."""
FINE_SECONDS = 1800.0
"""A longer time is read by the minute."""
MARGIN_SECONDS = 30.0
"""Seconds before and after an incident that its report includes."""

T = TypeVar("T")
_ID = re.compile(r"\d{1,20}-\d{1,20}")


class MonitorReader:
    """Reads all runs. Threads may share it. It connects at the first read."""

    def __init__(self, address: Address | None = None, timeout: float = 2.0) -> None:
        self._connection = Connection(address or Address.find(), timeout, "reader")
        self._infos: dict[RunKey, tuple[bytes, PipelineInfo, tuple[str, ...]]] = {}
        self.bad: Counter[str] = Counter()
        """Number of skipped values, by the kind of key."""

    def __repr__(self) -> str:
        return f"MonitorReader({self._connection.address!r})"

    def close(self) -> None:
        self._connection.close()

    # ---------------------------------------------------------------------------------------------------------- pipelines

    def pipelines(self) -> list[RunKey]:
        """The known runs, the most recently active first."""
        with self._connection.pipeline() as pipe:
            pipe.zrevrange(keys.PIPELINES_KEY, 0, keys.RUNS)
            (found,) = self._connection.read(pipe)
        known = []
        for member in self._list("pipelines", found):
            pipeline = keys.pipeline_of(member) if isinstance(member, bytes) else None
            if pipeline is None:
                self.bad["pipelines"] += 1
            else:
                known.append(pipeline)
        return known

    def find(self, text: str | None = None) -> RunKey:
        """The run NAME@RUN, or the most recently active run of NAME, or without a text of all."""
        known = self.pipelines()
        for pipeline in known:
            if text is None or text in (pipeline.name, str(pipeline)):
                return pipeline
        if text is None:
            raise RequestError("pipeline", "the monitor has no pipeline yet; start one first")
        names = ", ".join(map(str, known[:5])) or "none"
        raise RequestError(f"pipeline {text[:100]!r}", f"unknown pipeline; the monitor has: {names}")

    def info(self, pipeline: RunKey) -> PipelineInfo | None:
        """The configuration of a run; None if the run is unknown."""
        (content,) = self._values(keys.info(pipeline))
        known = self._info_of(pipeline, content)
        return known[0] if known else None

    # ------------------------------------------------------------------------------------------------------------ current

    def state(self, pipeline: RunKey) -> Snapshot | None:
        """The current state of a run, in one round trip; None if the run is unknown."""
        with self._connection.pipeline() as pipe:
            pipe.get(keys.info(pipeline))
            pipe.hgetall(keys.now(pipeline))
            content, fields = self._connection.read(pipe)
        opened = self._info_of(pipeline, content)
        if opened is None:
            return None
        info, tasks = opened
        if not isinstance(fields, dict):
            self.bad["now"] += 1
            fields = {}
        found = {name: self._record(f"now {name}", kind, fields.get(name.encode())) for name, kind in keys.NOW.items()}
        racks = {node.name: node.rack for node in info.nodes}
        output, correction, timing, incident = (found[name] for name in ("output", "correction", "timing", "incident"))
        batches = join_batches(*([one] if one else [] for one in (output, correction, timing)))
        return Snapshot(
            info,
            batches[-1] if batches else None,
            output.of if output else None,
            found["progress"],
            join_tasks(tasks, found["homes"], found["tasks"], racks),
            found["nodes"].nodes if found["nodes"] else (),
            found["plan"],
            incident if incident and incident.until is None else None,
            found["totals"] or records.Totals(),
            found["health"],
            found["life"],
            found["sample"],
            found["standing"],
            found["rates"],
        )

    # ------------------------------------------------------------------------------------------------------------ history

    def batches(
        self, pipeline: RunKey, since: float = 0.0, until: float | None = None, limit: int = MAX_RECORDS
    ) -> tuple[BatchRecord, ...]:
        """The last `limit` batches published between `since` and `until`, oldest first."""
        outputs: list[records.Output] = self._last(pipeline, keys.OUTPUTS, since, until, limit)
        if not outputs:
            return ()
        begin = outputs[0].at
        corrections: list[records.Correction] = []
        if any(output.status == "tentative" for output in outputs):
            corrections = self._last(pipeline, keys.CORRECTIONS, begin, None, keys.CORRECTIONS.cap)
        timings: list[records.Timing] = self._last(
            pipeline, keys.TIMINGS, begin, None if until is None else until + 60.0, limit + 100
        )
        return join_batches(outputs, corrections, timings)

    def of_series(
        self, pipeline: RunKey, since: float = 0.0, until: float | None = None, limit: int = MAX_RECORDS
    ) -> tuple[Point, ...]:
        """OF between `since` and `until`: of each batch, or if that is longer than FINE_SECONDS, the lowest of each minute."""
        newest = until if until is not None else self._newest(pipeline)
        if newest - since <= FINE_SECONDS:
            outputs: list[records.Output] = self._last(pipeline, keys.OUTPUTS, since, until, limit)
            return tuple(Point(o.at, o.of, o.status == "tentative") for o in outputs)
        minutes = self.minutes(pipeline, since, until, limit)
        return tuple(Point(minute.at, minute.of_min, minute.tentative > 0) for minute in minutes)

    def minutes(
        self, pipeline: RunKey, since: float = 0.0, until: float | None = None, limit: int = MAX_RECORDS
    ) -> list[records.Minute]:
        """Totals of each minute between `since` and `until`, oldest first."""
        return self._last(pipeline, keys.MINUTES, since, until, limit)

    def progress(
        self, pipeline: RunKey, since: float = 0.0, until: float | None = None, limit: int = MAX_RECORDS
    ) -> list[records.Progress]:
        """Spark's progress between `since` and `until`, oldest first."""
        return self._last(pipeline, keys.PROGRESS, since, until, limit)

    def plans(self, pipeline: RunKey, limit: int = keys.PLANS.cap) -> list[records.PlanChange]:
        """Changes of the plan, oldest first."""
        return self._last(pipeline, keys.PLANS, 0.0, None, limit)

    def task_figures(
        self, pipeline: RunKey, since: float = 0.0, until: float | None = None, limit: int = keys.TASKS.cap
    ) -> list[task_records.TaskColumns]:
        """Per-task figures between `since` and `until`: of every batch in the last minutes, of one batch per minute before."""
        fine: list[task_records.TaskColumns] = self._last(pipeline, keys.TASKS, since, until, limit)
        begin = fine[0].at if fine else until
        coarse: list[task_records.TaskColumns] = self._last(pipeline, keys.TASK_MINUTES, since, begin, limit)
        return [*(c for c in coarse if begin is None or c.at < begin), *fine][-limit:]

    def events(self, pipeline: RunKey, after: str | None = None, limit: int = MAX_RECORDS) -> list[StoredEvent]:
        """Events after the one with id `after`, oldest first; without an id, the last `limit` events."""
        if after is None:
            return self._last(pipeline, keys.EVENTS, 0.0, None, limit)
        if not _ID.fullmatch(after):
            raise RequestError(
                f"event id {after[:60]!r}",
                "not an event id; give two numbers with a dash, for example 1763251200000-0",
            )
        with self._connection.pipeline() as pipe:
            pipe.xrange(keys.series(pipeline, keys.EVENTS), f"({after}", count=max(1, limit))
            (found,) = self._connection.read(pipe)
        return self._entries(keys.EVENTS, found)

    # ---------------------------------------------------------------------------------------------------------- incidents

    def incidents(self, pipeline: RunKey, limit: int = 100) -> list[Incident]:
        """The last incidents, oldest first."""
        with self._connection.pipeline() as pipe:
            pipe.zrevrange(keys.incidents(pipeline), 0, limit - 1)
            (ids,) = self._connection.read(pipe)
        names = [id_.decode("utf-8", "replace") for id_ in self._list("incidents", ids) if isinstance(id_, bytes)]
        if not names:
            return []
        contents = self._values(*(keys.incident(pipeline, name) for name in reversed(names)))
        found = [self._record("incident", Incident, content) for content in contents]
        return [incident for incident in found if incident is not None]

    def incident(self, pipeline: RunKey, id_: str) -> IncidentReport | None:
        """One incident with its events, batches and state changes; None if it is unknown."""
        content, info = self._values(keys.incident(pipeline, id_), keys.info(pipeline))
        incident, opened = self._record("incident", Incident, content), self._info_of(pipeline, info)
        if incident is None or opened is None:
            return None
        until = None if incident.until is None else incident.until + MARGIN_SECONDS
        begin = incident.since - MARGIN_SECONDS
        events: list[StoredEvent] = self._last(pipeline, keys.EVENTS, begin, until, MAX_RECORDS)
        changes: list[task_records.StateChange] = self._last(pipeline, keys.STATES, incident.since - 1.0, until, MAX_RECORDS)
        own = tuple(change for change in changes if change.cause == incident.id)
        batches = self.batches(pipeline, begin, until)
        seen = tuple(stored for stored in events if stored.event.cause == incident.id)
        return IncidentReport(opened[0], incident, seen, batches, own, recoveries(own))

    def audit(self, pipeline: RunKey | None = None, limit: int = 1_000) -> list[records.AuditRecord]:
        """The last lines of the audit log of one run, or of all, oldest first. They are not verified: see `chain`."""
        found: list[records.AuditRecord] = []
        for one in self.pipelines() if pipeline is None else [pipeline]:
            found += self._entries_of("audit", records.AuditRecord, self._newest_of(keys.audit(one), limit))[::-1]
        return sorted(found, key=lambda line: line.at)[-limit:] if pipeline is None else found

    def chain(self, pipeline: RunKey, signer: Signer, limit: int = keys.AUDIT + 2 * SLACK) -> Chain:
        """The last lines of a run's audit log, verified with the operator's key."""
        known = ChannelState.load(self._connection.address, pipeline)
        with self._connection.pipeline() as pipe:
            pipe.get(keys.audit_head(pipeline))
            pipe.xrevrange(keys.audit(pipeline), count=max(1, limit))
            value, found = self._connection.read(pipe)
        head, entries = Head.verified(signer, pipeline, value), self._list("audit", found)[::-1]
        return check(signer, pipeline, head, known, entries, len(entries) < limit)

    # ------------------------------------------------------------------------------------------------------------- inside

    def _info_of(self, pipeline: RunKey, content: Any) -> tuple[PipelineInfo, tuple[str, ...]] | None:
        """A run's configuration and its tasks. Cached while the content is the same, because pages read it every second."""
        known = self._infos.get(pipeline)
        if known is not None and known[0] == content:
            return known[1:]
        info = self._record("info", PipelineInfo, content)
        if info is None:
            return None
        try:
            tasks = task_records.inner_tasks(info.load_topology())
        except TopologyError:
            self.bad["info"] += 1
            return None
        if info.pipeline != pipeline:
            self.bad["info"] += 1
            return None
        self._infos[pipeline] = (content, info, tasks)
        return info, tasks

    def _newest(self, pipeline: RunKey) -> float:
        found: list[records.Output] = self._last(pipeline, keys.OUTPUTS, 0.0, None, 1)
        return found[0].at if found else 0.0

    def _last(self, pipeline: RunKey, series: Series, since: float, until: float | None, limit: int) -> list[Any]:
        high = "+" if until is None else _milliseconds(until)
        found = self._newest_of(keys.series(pipeline, series), limit, high, _milliseconds(since))
        return self._entries(series, found)[::-1]

    def _newest_of(self, stream: str, limit: int, high: str = "+", low: str = "-") -> Any:
        with self._connection.pipeline() as pipe:
            pipe.xrevrange(stream, high, low, max(1, limit))
            return self._connection.read(pipe)[0]

    def _values(self, *names: str) -> list[Any]:
        with self._connection.pipeline() as pipe:
            for name in names:
                pipe.get(name)
            return self._connection.read(pipe)

    def _entries(self, series: Series, answer: Any) -> list[Any]:
        return self._entries_of(series.name, series.record, answer)

    def _entries_of(self, place: str, kind: type[T], answer: Any) -> list[T]:
        found = []
        for entry in self._list(place, answer):
            fields = entry[1] if isinstance(entry, tuple | list) and len(entry) == 2 else None
            values = (
                fields if isinstance(fields, dict) else dict(zip(fields[::2], fields[1::2], strict=False)) if fields else {}
            )
            record = self._record(place, kind, values.get(b"r", b""))
            if isinstance(record, StoredEvent):
                record = cast(T, replace(record, id=entry[0].decode("ascii", "replace")))
            if record is not None:
                found.append(record)
        return found

    def _list(self, place: str, answer: Any) -> list[Any]:
        if isinstance(answer, list):
            return answer
        self.bad[place] += 1  # a key of another type: Redis answers with an error
        return []

    def _record(self, place: str, kind: type[T], content: Any) -> T | None:
        if content is None:
            return None
        try:
            return loads(kind, content)
        except Malformed:
            self.bad[place] += 1
            return None


def _milliseconds(at: float) -> str:
    return str(max(0, min(int(at * 1000), 1 << 62)))
