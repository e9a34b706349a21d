"""The collector: what the host tells goes in, records for the writer come out. No Redis, no Spark, no clock.

It is told what `Host.watch` is told: every published output, and notes. These kinds of notes mean something here; `figures` are
named in the table of `docs/monitoring.md`. Any other kind is kept as an event.

    placed, plan changed                     where tasks and copies are; which tasks have a replica, and why
    standing, rates                          what the machine and the meter know; kept as they are
    batch, tasks                             what a batch took, and each of its tasks
    heartbeat, node lost, node back          the nodes
    failover, replaying, replayed, recovered the way of lost tasks
    resumed, stream restarted                the driver is back; the stream is back
    paused, continued, stopping, ended, failed, command
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from monitoring.codec import cut
from monitoring.figures import Board, Minutes, clean, names, number, sample, text, whole
from monitoring.incidents import Tracker
from monitoring.inputs import Accuracy, Before, Noted, Published
from monitoring.records import (
    Correction,
    Event,
    Homes,
    Interim,
    Life,
    NodeStatus,
    NodeStatuses,
    Output,
    PipelineInfo,
    PlanChange,
    Sample,
    StateChange,
    Timing,
    Totals,
)
from ppa_core.engine.standing import MeasuredRates, Standing

_log = logging.getLogger(__name__)

MOST_TABLES = 256 << 20
"""Bytes of tentative outputs that are kept until they can be measured against their corrections."""

_LIFE: dict[str, Any] = {
    "paused": "paused", "continued": "running", "resumed": "running",
    "stopping": "stopping", "ended": "ended", "failed": "failed",
}  # fmt: skip


class Collector:
    """Follows one run. `begin` once, then `handle` for everything that is seen, in its order."""

    def __init__(self, info: PipelineInfo, accuracy: Accuracy | None = None, before: Before | None = None) -> None:
        self.info, self.accuracy, self.before = info, accuracy, before
        self.board = Board(info.opened(), info.batch_seconds)
        self.tracker = Tracker(before.incident if before else None)
        self.totals = before.totals if before else Totals()
        self.minutes = Minutes()
        self.nodes = {node.name: NodeStatus(node.name, node.rack, node.role) for node in info.nodes}
        self.plan = PlanChange(info.started, -1, info.plan, info.budget, info.planner, info.metric, info.of, "start")
        self._tables: dict[int, Any] = {}
        self._table_bytes = 0
        self._told_of: tuple[float, tuple[str, ...]] | None = None
        self._corrected: list[Correction] = []
        """Corrections that came one after the other, and are told as one event."""

    def begin(self, at: float) -> list[Any]:
        """The first records of a driver."""
        found: list[Any] = [NodeStatuses(at, tuple(self.nodes.values())), Life(at, "running"), self.plan]
        if self.before is None:
            figures = clean({"query": self.info.query, "tasks": len(self.board.tasks), "nodes": len(self.nodes)})
            return [*found, Event(at, "started", -1, "", figures)]
        return found[:2]  # the plan in force is known from before

    def handle(self, seen: Published | Noted) -> list[Any]:
        """The records that follow from what was seen."""
        kind = getattr(seen, "kind", None)
        if kind is None:
            return self._output(seen)  # type: ignore[arg-type]
        note: Noted = seen  # type: ignore[assignment]
        told = self._told_corrections()
        handler = getattr(self, "_on_" + kind.replace(" ", "_")) if kind in _HANDLED else None
        return [*told, *(handler(note) if handler else [self._event(note, kind)])]

    def end(self) -> list[Any]:
        """What is left to say when nothing more will be seen."""
        return [*self._told_corrections(), *self.minutes.end()]

    # ------------------------------------------------------------------------------------------------------------ outputs

    def _output(self, record: Published) -> list[Any]:
        if record.status == "correction":
            return self._correction(record)
        found = self._told_corrections()
        rows, tentative = _rows(record.table), record.status == "tentative"
        missing = tuple(map(cut, record.missing)) if tentative else ()
        output = Output(
            record.batch, _round(record.at, 3), record.revision, "tentative" if tentative else "accurate",
            _round(record.of, 6), rows, missing,
        )  # fmt: skip
        seconds = self.info.batch_seconds if tentative and record.revision == 1 else 0.0
        self.totals = replace(
            self.totals,
            batches=self.totals.batches + (record.revision == 1),
            tentative_batches=self.totals.tentative_batches + (seconds > 0),
            tentative_seconds=round(self.totals.tentative_seconds + seconds, 3),
        )
        if rows:  # the last result that there was to see: windows that slide have none in most batches
            found.append(Sample(output.batch, output.at, output.status, *sample(record.table)))
        found += [output, *self.minutes.output(output)]
        self.board.head = max(self.board.head, record.batch)
        if tentative:
            return [*found, *self._tentative(record, output), self.totals]
        found.append(self.totals)
        return [*found, *self._close(output.at, output.batch)]

    def _close(self, at: float, batch: int) -> list[Any]:
        """The end of the incident, if this is it."""
        cause = self.tracker.cause
        if not self.tracker.accurate(at):
            return []
        incident = self.tracker.incident
        assert incident is not None
        self._told_of, self._table_bytes = None, 0
        self._tables.clear()
        figures = {"seconds": _round((incident.until or at) - incident.since, 3), "accuracy": incident.accuracy}
        return [incident, *self._states(at, batch, cause), Event(at, "reconciled", batch, cause, clean(figures))]

    def _tentative(self, record: Published, output: Output) -> list[Any]:
        begins = not self.tracker.open
        self.totals = replace(self.totals, incidents=self.totals.incidents + begins)
        self.tracker.tentative(output.batch, output.of, output.missing, output.at)
        self._keep(record)
        found: list[Any] = [self.tracker.incident, *self._states(output.at, output.batch, self.tracker.cause)]
        if begins or self._told_of != (output.of, output.missing):
            self._told_of = (output.of, output.missing)
            figures = clean({"of": output.of, "missing": list(output.missing)})
            found.append(Event(output.at, "tentative", output.batch, self.tracker.cause, figures))
        return found

    def _keep(self, record: Published) -> None:
        if self.accuracy is None:
            return
        size = int(getattr(record.table, "nbytes", 0))
        if self._table_bytes + size <= MOST_TABLES:
            self._tables[record.batch] = record.table
            self._table_bytes += size

    def _correction(self, record: Published) -> list[Any]:
        accuracy = self._measured(record)
        correction = Correction(
            record.batch, _round(record.at, 3), record.revision, _rows(record.table), accuracy, self.tracker.cause
        )
        self.totals = replace(self.totals, corrected_batches=self.totals.corrected_batches + 1)
        self.tracker.corrected(record.batch, accuracy, correction.at)
        self._corrected.append(correction)
        incident = [self.tracker.incident] if self.tracker.open else []
        return [correction, self.totals, *self.minutes.correction(correction), *incident]

    def _measured(self, record: Published) -> float | None:
        table = self._tables.pop(record.batch, None)
        if table is None or self.accuracy is None:
            return None
        self._table_bytes -= int(getattr(table, "nbytes", 0))
        try:
            share = self.accuracy(table, record.table)
            return None if share is None else _round(share, 6)
        except Exception:  # noqa: BLE001 - a query's own measure must not end the telling
            known = {"batch": record.batch, "cause": self.tracker.cause}
            _log.warning("the query's accuracy failed", exc_info=True, extra=known)
            return None

    def _told_corrections(self) -> list[Any]:
        """One event for corrections that came together."""
        if not self._corrected:
            return []
        told, self._corrected = self._corrected, []
        measured = [c.accuracy for c in told if c.accuracy is not None]
        figures = {
            "first": told[0].batch, "last": told[-1].batch, "batches": len(told),
            "accuracy": _round(sum(measured) / len(measured), 6) if measured else None,
        }  # fmt: skip
        return [Event(told[-1].at, "corrected", told[-1].batch, told[-1].cause, clean(figures))]

    # -------------------------------------------------------------------------------------------------------------- notes

    def _on_placed(self, note: Noted) -> list[Any]:
        homes, replicas, checkpoints = (_places(note.figures.get(name)) for name in ("homes", "replicas", "checkpoints"))
        self.board.placed(homes, replicas, checkpoints)
        return [Homes(note.at, homes, replicas, checkpoints), *self._states(note.at, note.batch, self.tracker.cause)]

    def _on_known(self, note: Noted) -> list[Any]:
        return [known for known in note.figures.values() if isinstance(known, Standing | MeasuredRates)]

    _on_standing = _on_rates = _on_known

    def _on_batch(self, note: Noted) -> list[Any]:
        figures = note.figures
        timing = Timing(
            note.batch, _round(note.at, 3), _round(number(figures.get("seconds")) or 0.0, 4),
            whole(figures.get("attempts"), 1), whole(figures.get("source_rows")), whole(figures.get("rows_in")),
            whole(figures.get("state_bytes")),
        )  # fmt: skip
        tasks = self._on_tasks(note) if "stats" in figures else []
        return [timing, *self.minutes.timing(timing), *tasks]

    def _on_tasks(self, note: Noted) -> list[Any]:
        figures = note.figures
        stats = figures.get("stats")
        self.board.ran(
            note.batch, stats if isinstance(stats, list | tuple) else (), names(figures.get("checkpointed")),
            names(figures.get("synced")),
        )  # fmt: skip
        return [self.board.columns(note.batch, _round(note.at, 3))]

    def _on_heartbeat(self, note: Noted) -> list[Any]:
        memory = note.figures.get("memory")
        known = memory if isinstance(memory, Mapping) else {}
        alive, drained = (set(names(note.figures.get(name))) for name in ("alive", "drained"))
        for name, node in self.nodes.items():
            used = known.get(name)
            if name in alive:
                memory_used = used if isinstance(used, int) else None
                self.nodes[name] = replace(node, alive=True, heartbeat=note.at, memory=memory_used, drained=name in drained)
        return [NodeStatuses(note.at, tuple(self.nodes.values()))]

    def _on_node_lost(self, note: Noted) -> list[Any]:
        node = text(note.figures.get("node"))
        if node in self.nodes:
            self.nodes[node] = replace(self.nodes[node], alive=False, drained=False)
        began = self.tracker.lost(node, text(note.figures.get("reason")), note.at, note.batch)
        if began:
            self.totals = replace(self.totals, incidents=self.totals.incidents + 1)
        rack = self.nodes[node].rack if node in self.nodes else ""
        told = self._event(note, "node lost", rack=rack)
        return [NodeStatuses(note.at, tuple(self.nodes.values())), self.totals, self.tracker.incident, told]

    def _on_failover(self, note: Noted) -> list[Any]:
        lost, missing = names(note.figures.get("lost")), names(note.figures.get("missing"))
        self.tracker.failed_over(set(lost) - set(missing), missing, note.at, note.batch)
        told = self._event(note, "failover", moved=sorted(set(lost) - set(missing)))
        return [self.tracker.incident, *self._states(note.at, note.batch, self.tracker.cause), told]

    def _on_replaying(self, note: Noted) -> list[Any]:
        self.board.replaying(names(note.figures.get("tasks")), whole(note.figures.get("first"), note.batch))
        return [*self._states(note.at, note.batch, self.tracker.cause), self._event(note, "recovering")]

    def _on_replayed(self, note: Noted) -> list[Any]:
        self.board.replayed(note.batch)
        return [self._event(note, "replayed")]

    def _on_recovered(self, note: Noted) -> list[Any]:
        self.tracker.recovered(note.at)
        incident = [self.tracker.incident] if self.tracker.open else []
        return [*incident, self._event(note, "recovered")]

    def _on_node_back(self, note: Noted) -> list[Any]:
        node = text(note.figures.get("node"))
        if node in self.nodes:
            self.nodes[node] = replace(self.nodes[node], alive=True, heartbeat=note.at)
        return [NodeStatuses(note.at, tuple(self.nodes.values())), self._event(note, "node back")]

    def _on_plan_changed(self, note: Noted) -> list[Any]:
        figures, before = note.figures, self.plan
        plan = tuple(sorted(names(figures.get("plan"))))
        self.plan = PlanChange(
            note.at, note.batch, plan, whole(figures.get("budget"), before.budget),
            text(figures.get("planner")) or before.planner, text(figures.get("metric")) or before.metric,
            number(figures.get("of")), text(figures.get("reason")),
            tuple(sorted(set(plan) - set(before.plan))), tuple(sorted(set(before.plan) - set(plan))),
            text(figures.get("cause")) or self.tracker.cause,
        )  # fmt: skip
        told = clean({"budget": self.plan.budget, "planner": self.plan.planner, "of": self.plan.of, "reason": self.plan.reason,
                      "added": list(self.plan.added), "removed": list(self.plan.removed)})  # fmt: skip
        return [self.plan, Event(note.at, "plan changed", note.batch, self.plan.cause, told)]

    def _on_resumed(self, note: Noted) -> list[Any]:
        """The driver is back. It says what it found missing; what the monitor knows of the incident goes on."""
        self.board.head = max(self.board.head, note.batch)
        for node in names(note.figures.get("lost")):
            if node in self.nodes:
                self.nodes[node] = replace(self.nodes[node], alive=False)
        missing = names(note.figures.get("missing"))
        if missing:
            self.tracker.failed_over((), missing, note.at, note.batch)
        tentative = note.figures.get("tentative")
        if isinstance(tentative, list | tuple) and self.tracker.open:
            self.tracker.outstanding |= {batch for batch in tentative if isinstance(batch, int)}
        incident = [self.tracker.incident] if self.tracker.open else []
        states = self._states(note.at, note.batch, self.tracker.cause)
        return [Life(note.at, "running"), *incident, *states, self._event(note, "driver resumed")]

    def _on_life(self, note: Noted) -> list[Any]:
        left = [*self._close(note.at, note.batch), *self.end()] if note.kind == "ended" else []
        life = Life(note.at, _LIFE[note.kind], text(note.figures.get("reason")))
        return [*left, life, self._event(note, note.kind)]

    _on_paused = _on_continued = _on_stopping = _on_ended = _on_failed = _on_life

    # ------------------------------------------------------------------------------------------------------------- inside

    def _event(self, note: Noted, kind: str, **more: object) -> Event:
        """A note as an event: its cause is the one it names, else the incident that goes on."""
        figures = dict(note.figures)
        cause = text(figures.pop("cause", "")) or self.tracker.cause
        return Event(note.at, cut(kind), note.batch, cause, clean({**figures, **more}))

    def _states(self, at: float, batch: int, cause: str) -> list[Any]:
        """Tasks that are in another state now: the change, and all of them as they are, before the next batch tells."""
        incident = self.tracker.incident
        taken = incident.taken_over if incident is not None and self.tracker.open else ()
        changed = self.board.changed(self.tracker.missing if self.tracker.open else frozenset(), taken)
        if not changed:
            return []
        if self.board.head < 0:
            return [StateChange(at, batch, cause, changed)]
        return [StateChange(at, batch, cause, changed), Interim(**vars(self.board.columns(self.board.head, _round(at, 3))))]


_HANDLED = frozenset(
    {"placed", "standing", "rates", "batch", "tasks", "heartbeat", "node lost", "failover", "replaying", "replayed",
     "recovered", "node back", "plan changed", "resumed", "paused", "continued", "stopping", "ended", "failed"}
)  # fmt: skip


def _rows(table: Any) -> int:
    return whole(getattr(table, "num_rows", 0))


def _round(value: float, digits: int) -> float:
    return round(float(value), digits)


def _places(value: object) -> dict[str, str]:
    return {cut(task): cut(node) for task, node in value.items()} if isinstance(value, Mapping) else {}


def told_all(collector: Collector, seen: Iterable[Published | Noted], at: float) -> list[Any]:
    """All records of a run from its beginning; for tests and recorded runs."""
    return [*collector.begin(at), *(record for each in seen for record in collector.handle(each)), *collector.end()]
