"""The collector turns the events of a run into records for the writer. It uses no Redis, no Spark and no clock.

`Collector._records` has a case for each type of event. Events of every batch or heartbeat become figures; all others are stored
as events. The collector adds events of its own: tentative, corrected, reconciled.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any, TypeVar, assert_never

import msgspec
import pyarrow as pa

from monitoring.figures import MinuteSums, TaskBoard, sample
from monitoring.incidents import IncidentTracker
from monitoring.inputs import Accuracy, PreviousState, ReadTable
from monitoring.records import (
    PHASES,
    Correction,
    NodeStatus,
    NodeStatuses,
    Output,
    PipelineInfo,
    PlanChange,
    Progress,
    RunStatus,
    Sample,
    TaskPlacement,
    Timing,
    Totals,
)
from monitoring.task_records import InterimColumns, StateChange
from ppa_core.engine import run_events as e
from ppa_core.engine.event_codec import cut
from ppa_core.engine.run_events import RunEvent

_log = logging.getLogger(__name__)

Caused = TypeVar("Caused", bound=RunEvent)

MAX_TABLES = 256 << 20
"""Bytes of tentative outputs that are kept for the comparison with their corrections."""


class Collector:
    """Follows one run: call `begin` once, `handle` for every event in order, and `end` after the last."""

    def __init__(self, info: PipelineInfo, accuracy: Accuracy | None = None, previous: PreviousState | None = None) -> None:
        self.info, self.accuracy, self.previous = info, accuracy, previous
        self.board = TaskBoard(info.load_topology(), info.batch_seconds)
        self.tracker = IncidentTracker(previous.incident if previous else None)
        self.totals = previous.totals if previous else Totals()
        self.minutes = MinuteSums()
        self.nodes = {node.name: NodeStatus(node.name, node.rack, node.role) for node in info.nodes}
        self.plan = PlanChange(info.started, -1, info.plan, info.budget, info.planner, info.metric, info.of, "start")
        self._tables: dict[int, pa.Table] = {}
        self._table_bytes = 0
        self._reported_of: tuple[float, tuple[str, ...]] | None = None
        self._corrected: list[Correction] = []
        """Successive corrections, which are reported as one event."""

    def begin(self, at: float) -> list[Any]:
        """The first records after the driver was started."""
        found: list[Any] = [NodeStatuses(at, tuple(self.nodes.values())), RunStatus(at, "running"), self.plan]
        if self.previous is None:
            return [*found, e.RunStarted(at, -1, cut(self.info.query), len(self.board.tasks), len(self.nodes))]
        return found[:2]  # the plan in force is stored already

    def handle(self, event: RunEvent, table: ReadTable | None = None) -> list[Any]:
        """The records for an event; `table` reads the output of an OutputPublished."""
        if isinstance(event, e.OutputPublished) and event.status == "correction":
            return self._correction(event, table)
        return [*self._corrections(), *self._records(event, table)]

    def end(self) -> list[Any]:
        """The last records, after the last event."""
        return [*self._corrections(), *self.minutes.end()]

    def _records(self, event: RunEvent, table: ReadTable | None) -> list[Any]:
        match event:
            case e.OutputPublished():
                return self._output(event, table)
            case e.BatchFinished():
                return self._batch(event)
            case e.BatchProgress():
                return [_progress(event)]
            case e.Placed(at, batch, homes, replicas, checkpoints):
                self.board.placed(event)
                return [TaskPlacement(at, homes, replicas, checkpoints), *self._states(at, batch)]
            case e.StandingChanged(standing=standing):
                return [standing]
            case e.RatesMeasured(rates=rates):
                return [rates]
            case e.PlanChanged():
                return self._plan_changed(event)
            case e.Heartbeat():
                return self._heartbeat(event)
            case e.NodeLost():
                return self._node_lost(event)
            case e.FailedOver(at, batch, _, lost, missing):
                self.tracker.failed_over(set(lost) - set(missing), missing, at, batch, event.cause)
                return [self.tracker.incident, *self._states(at, batch), self._caused(event)]
            case e.ReplayStarted(at, batch, tasks, first):
                self.board.replaying(tasks, first)
                return [*self._states(at, batch), self._caused(event)]
            case e.ReplayFinished():
                self.board.replayed(event.batch)
                return [self._caused(event)]
            case e.Recovered():
                self.tracker.recovered(event.at)
                return [*self._incident(), self._caused(event)]
            case e.NodeBack(at, _, name):
                if name in self.nodes:
                    self.nodes[name] = replace(self.nodes[name], alive=True, heartbeat=at)
                return [NodeStatuses(at, tuple(self.nodes.values())), self._caused(event)]
            case e.DriverRestarted():
                return self._driver_restarted(event)
            case e.Paused(at):
                return [RunStatus(at, "paused"), self._caused(event)]
            case e.Resumed(at):
                return [RunStatus(at, "running"), self._caused(event)]
            case e.Stopping(at):
                return [RunStatus(at, "stopping"), self._caused(event)]
            case e.Ended(at, batch):
                return [*self._close(at, batch), *self.end(), RunStatus(at, "ended"), self._caused(event)]
            case e.Failed(at, _, reason) | e.RunUnavailable(at, _, reason):
                return [RunStatus(at, "failed", cut(reason)), self._caused(event)]
            case e.CommandNumbers() | e.CommandAnswered():  # between the driver and the process that supervises it
                return []
            case (
                e.SourceSilent() | e.PlanningFailed() | e.CopyLost() | e.JobFailed() | e.StreamRestarted() | e.Starting()
                | e.DriverDied() | e.StandbyReady() | e.DriverTookOver()
                | e.CommandCarriedOut() | e.RunStarted() | e.TentativeBegan() | e.Corrected() | e.Reconciled()
            ):  # fmt: skip
                return [self._caused(event)]
        assert_never(event)

    # ------------------------------------------------------------------------------------------------------------ outputs

    def _output(self, event: e.OutputPublished, table: ReadTable | None) -> list[Any]:
        tentative, at = event.status == "tentative", round(event.at, 3)
        output = Output(
            event.batch, at, event.revision, "tentative" if tentative else "accurate", round(event.of, 6), event.rows,
            event.missing if tentative else (),
        )  # fmt: skip
        seconds = self.info.batch_seconds if tentative and event.revision == 1 else 0.0
        late = max(0.0, event.delay - self.info.deadline_seconds) if event.delay is not None else 0.0
        self.totals = replace(
            self.totals,
            batches=self.totals.batches + (event.revision == 1),
            tentative_batches=self.totals.tentative_batches + (seconds > 0),
            tentative_seconds=round(self.totals.tentative_seconds + seconds, 3),
            late_outputs=self.totals.late_outputs + (late > 0),
            worst_lateness=max(self.totals.worst_lateness, round(late, 3)),
            delay=self.totals.delay if event.delay is None else round(event.delay, 3),
        )
        found: list[Any] = []
        content = table() if table is not None and (event.rows or tentative) else None
        if content is not None and event.rows:  # keep the last one: windows have output in few batches
            found.append(Sample(output.batch, at, output.status, *sample(content)))
        found += [output, *self.minutes.output(output)]
        self.board.head = max(self.board.head, event.batch)
        if tentative:
            self._keep(event.batch, content)
            return [*found, *self._tentative(event.cause, output), self.totals]
        return [*found, self.totals, *self._close(at, output.batch)]

    def _close(self, at: float, batch: int) -> list[Any]:
        """Close the incident, if all its batches are corrected."""
        cause = self.tracker.cause
        if not self.tracker.accurate(at):
            return []
        incident = self.tracker.incident
        assert incident is not None
        self._reported_of, self._table_bytes = None, 0
        self._tables.clear()
        seconds = round((incident.until or at) - incident.since, 3)
        accuracy = None if incident.accuracy is None else round(incident.accuracy, 6)
        return [incident, *self._states(at, batch, cause), e.Reconciled(at, batch, seconds, accuracy, cause=cause)]

    def _tentative(self, cause: str, output: Output) -> list[Any]:
        over = self._close(output.at, output.batch) if self.tracker.ended_by(cause) else []
        began = self.tracker.tentative(output.batch, output.of, output.missing, output.at, cause)
        self.totals = replace(self.totals, incidents=self.totals.incidents + began)
        found: list[Any] = [*over, self.tracker.incident, *self._states(output.at, output.batch)]
        if began or self._reported_of != (output.of, output.missing):
            self._reported_of = (output.of, output.missing)
            found.append(e.TentativeBegan(output.at, output.batch, output.of, output.missing, cause=self.tracker.cause))
        return found

    def _keep(self, batch: int, table: pa.Table | None) -> None:
        if self.accuracy is not None and table is not None and self._table_bytes + table.nbytes <= MAX_TABLES:
            self._tables[batch] = table
            self._table_bytes += table.nbytes

    def _correction(self, event: e.OutputPublished, table: ReadTable | None) -> list[Any]:
        accuracy = self._measured(event, table)
        cause = event.cause or self.tracker.cause
        correction = Correction(event.batch, round(event.at, 3), event.revision, event.rows, accuracy, cause)
        self.totals = replace(self.totals, corrected_batches=self.totals.corrected_batches + 1)
        self.tracker.corrected(event.batch, accuracy, correction.at)
        self._corrected.append(correction)
        return [correction, self.totals, *self.minutes.correction(correction), *self._incident()]

    def _measured(self, event: e.OutputPublished, table: ReadTable | None) -> float | None:
        tentative = self._tables.pop(event.batch, None)
        if tentative is None or table is None or self.accuracy is None:
            return None
        self._table_bytes -= tentative.nbytes
        try:
            share = self.accuracy(tentative, table())
            return None if share is None else round(float(share), 6)
        except Exception:  # noqa: BLE001 - an error in a query's accuracy must not stop the collector
            known = {"batch": event.batch, "cause": self.tracker.cause}
            _log.warning("the query's accuracy function failed", exc_info=True, extra=known)
            return None

    def _corrections(self) -> list[Any]:
        """One event for successive corrections."""
        if not self._corrected:
            return []
        found, self._corrected = self._corrected, []
        measured = [c.accuracy for c in found if c.accuracy is not None]
        accuracy = round(sum(measured) / len(measured), 6) if measured else None
        last = found[-1]
        return [e.Corrected(last.at, last.batch, found[0].batch, last.batch, len(found), accuracy, cause=last.cause)]

    # -------------------------------------------------------------------------------------------------------- other events

    def _batch(self, event: e.BatchFinished) -> list[Any]:
        at = round(event.at, 3)
        timing = Timing(
            event.batch, at, round(event.seconds, 4), event.attempts, event.source_rows, event.rows_in, event.state_bytes
        )
        found = [timing, *self.minutes.timing(timing)]
        if event.stats is None:
            return found
        self.board.ran(event.batch, event.stats, event.checkpointed, event.synced)
        return [*found, self.board.columns(event.batch, at)]

    def _heartbeat(self, event: e.Heartbeat) -> list[Any]:
        for name in event.alive:
            if name in self.nodes:
                used, drained = event.memory.get(name), name in event.drained
                self.nodes[name] = replace(self.nodes[name], alive=True, heartbeat=event.at, memory=used, drained=drained)
        return [NodeStatuses(event.at, tuple(self.nodes.values()))]

    def _node_lost(self, event: e.NodeLost) -> list[Any]:
        over = self._close(event.at, event.batch) if self.tracker.ended_by(event.cause) else []
        if (known := self.nodes.get(event.node)) is not None:
            self.nodes[event.node] = replace(known, alive=False, drained=False)
            event = msgspec.structs.replace(event, rack=event.rack or known.rack)
        began = self.tracker.lost(event.node, event.reason, event.at, event.batch, event.cause)
        self.totals = replace(self.totals, incidents=self.totals.incidents + began)
        nodes = NodeStatuses(event.at, tuple(self.nodes.values()))
        return [*over, nodes, self.totals, self.tracker.incident, self._caused(event)]

    def _plan_changed(self, event: e.PlanChanged) -> list[Any]:
        before, plan = set(self.plan.plan), set(event.plan)
        event = self._caused(event)
        self.plan = PlanChange(
            event.at, event.batch, tuple(sorted(plan)), event.budget, event.planner, event.metric, event.of, event.reason,
            tuple(sorted(plan - before)), tuple(sorted(before - plan)), event.cause,
        )  # fmt: skip
        return [self.plan, event]

    def _driver_restarted(self, event: e.DriverRestarted) -> list[Any]:
        """The driver reports missing tasks and tentative batches; an open incident continues."""
        self.board.head = max(self.board.head, event.batch)
        for name in event.lost:
            if name in self.nodes:
                self.nodes[name] = replace(self.nodes[name], alive=False)
        if event.missing:
            self.tracker.failed_over((), event.missing, event.at, event.batch, event.cause)
        if self.tracker.open:
            self.tracker.outstanding |= set(event.tentative)
        status = RunStatus(event.at, "paused" if event.paused else "running")
        return [status, *self._incident(), *self._states(event.at, event.batch), self._caused(event)]

    # ------------------------------------------------------------------------------------------------------------- inside

    def _caused(self, event: Caused) -> Caused:
        """The event with its cause: the reported one, else the open incident."""
        if event.cause or not self.tracker.cause:
            return event
        return msgspec.structs.replace(event, cause=self.tracker.cause)

    def _incident(self) -> list[Any]:
        return [self.tracker.incident] if self.tracker.open else []

    def _states(self, at: float, batch: int, cause: str = "") -> list[Any]:
        """Records for tasks whose state changed: the change, and the figures of all tasks until the next batch is reported."""
        incident = self.tracker.incident
        taken = incident.taken_over if incident is not None and self.tracker.open else ()
        changed = self.board.changed(self.tracker.missing if self.tracker.open else frozenset(), taken)
        if not changed:
            return []
        change = StateChange(at, batch, cause or self.tracker.cause, changed)
        if self.board.head < 0:
            return [change]
        return [change, InterimColumns(**vars(self.board.columns(self.board.head, round(at, 3))))]


def _progress(event: e.BatchProgress) -> Progress:
    durations = dict(event.durations)
    return Progress(
        event.batch, round(event.at, 3), event.input_rows, round(event.input_rate, 1), round(event.processed_rate, 1),
        tuple(durations.pop(name, 0) for name in PHASES), durations,
    )  # fmt: skip
