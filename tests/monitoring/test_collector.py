"""The collector: events of a run, turned into states, incidents and records under one cause."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import pytest

from monitoring.codec import dumps, loads
from monitoring.collector import Collector
from monitoring.incidents import IncidentTracker, batches_in, with_batch
from monitoring.inputs import PreviousState
from monitoring.recorded import RecordedRun, Scenario, accuracy, table_of
from monitoring.records import (
    Correction,
    Incident,
    Minute,
    NodeStatuses,
    Output,
    PipelineInfo,
    PlanChange,
    RunStatus,
    StoredEvent,
    Timing,
    Totals,
)
from monitoring.task_records import STATES, StateChange, TaskColumns
from ppa_core.engine import run_events as e
from ppa_core.engine.event_codec import kind_of
from ppa_core.engine.event_fields import TaskFigures
from ppa_core.engine.run_events import RunEvent


def of_kind(found: Sequence[Any], kind: Any) -> list[Any]:
    return [record for record in found if isinstance(record, kind)]


def events(found: Sequence[Any]) -> list[str]:
    return [kind_of(event) for event in of_kind(found, RunEvent)]


def feed(collector: Collector, *seen: RunEvent) -> list[Any]:
    return [record for event in seen for record in collector.handle(event, table_of(event))]


def accurate(batch: int, at: float) -> RunEvent:
    return output(batch, at, 1, "accurate", 1.0)


def tentative(batch: int, at: float, of: float = 0.5, missing: tuple[str, ...] = ("O1.1",), cause: str = "") -> RunEvent:
    return output(batch, at, 1, "tentative", of, missing, cause)


def correction(batch: int, at: float, revision: int = 2) -> RunEvent:
    return output(batch, at, revision, "correction", 1.0)


def output(
    batch: int, at: float, revision: int, status: Literal["accurate", "tentative", "correction"], of: float,
    missing: tuple[str, ...] = (), cause: str = "",
) -> RunEvent:  # fmt: skip
    return e.OutputPublished(at, batch, revision, status, of, missing, int(100 * of), "", cause=cause)


def lost(
    node: str, at: float, batch: int = 4, homes: tuple[str, ...] = ("O1.1", "O2.1"), missing: tuple[str, ...] = ("O1.1",),
    cause: str = "",
) -> tuple[RunEvent, RunEvent]:  # fmt: skip
    return (
        e.NodeLost(at, batch, node, "refused", cause=cause),
        e.FailedOver(at + 0.1, batch, node, homes, missing, cause=cause),
    )


@pytest.fixture
def collector(info: PipelineInfo) -> Collector:
    made = Collector(info, accuracy)
    made.begin(0.0)
    feed(made, e.Placed(0.0, -1, {}, {"O2.1": "s1"}, {}))
    return made


def test_a_run_begins_with_its_plan_nodes_and_a_first_event(info: PipelineInfo) -> None:
    found = Collector(info).begin(5.0)
    assert [type(record) for record in found] == [NodeStatuses, RunStatus, PlanChange, e.RunStarted]
    assert found[2].reason == "start"
    assert found[2].plan == ("O2.1",)


def test_everything_of_a_recorded_run_can_be_written_and_read() -> None:
    for record in RecordedRun(Scenario(batches=100)).records():
        if isinstance(record, RunEvent):
            assert loads(StoredEvent, dumps(record)) == StoredEvent(record)
        else:
            assert loads(type(record), dumps(record)) == record


def test_a_lost_node_begins_an_incident_that_ends_with_the_last_correction(collector: Collector) -> None:
    found = feed(
        collector, accurate(4, 5.0), *lost("n1", 5.5),
        e.ReplayStarted(5.7, 4, ("O1.1",), 0),
        tentative(5, 6.0), tentative(6, 7.0, 0.4), e.Recovered(7.4, 4, ("O1.1",)),
        correction(5, 7.5), correction(6, 7.6), accurate(7, 8.0),
    )  # fmt: skip
    wanted = ["node lost", "failover", "replaying", "tentative", "tentative", "recovered", "corrected", "reconciled"]
    assert events(found) == wanted
    assert len({event.cause for event in of_kind(found, RunEvent)}) == 1
    last = of_kind(found, Incident)[-1]
    assert (last.since, last.until, last.nodes, last.failed, last.taken_over) == (5.5, 7.6, ("n1",), ("O1.1",), ("O2.1",))
    assert (last.tentative, last.corrected, last.predicted) == (((5, 6),), ((5, 6),), 0.4)
    assert last.accuracy == pytest.approx(0.45)
    assert (last.first_tentative, last.recovered) == (6.0, 7.4)
    assert {change.cause for change in of_kind(found, StateChange)} == {last.id}


def test_states_follow_failure_recovery_and_reconciliation(collector: Collector) -> None:
    assert dict(zip(collector.board.tasks, collector.board.states, strict=True)) == {
        "O1.1": "running", "O1.2": "running", "O2.1": "replicated",
    }  # fmt: skip
    changes = of_kind(feed(collector, *lost("n1", 5.0, homes=("O1.1",))), StateChange)
    assert changes[-1].states == {"O1.1": "failed", "O2.1": "tentative"}
    changes = of_kind(feed(collector, e.ReplayStarted(5.2, 4, ("O1.1",), 0)), StateChange)
    assert changes[-1].states == {"O1.1": "recovering"}
    changes = of_kind(feed(collector, tentative(5, 6.0), correction(5, 6.5), accurate(6, 7.0)), StateChange)
    assert changes[-1].states == {"O1.1": "running", "O2.1": "replicated"}


def test_a_task_with_a_replica_is_taken_over_and_nothing_is_tentative(collector: Collector) -> None:
    found = feed(collector, *lost("n1", 5.0, homes=("O2.1",), missing=()), accurate(5, 6.0))
    assert events(found) == ["node lost", "failover", "reconciled"]
    assert of_kind(found, StateChange)[0].states == {"O2.1": "taken_over"}
    last = of_kind(found, Incident)[-1]
    assert (last.failed, last.taken_over, last.until, last.tentative) == ((), ("O2.1",), 6.0, ())


def test_a_second_loss_during_recovery_is_the_same_incident(collector: Collector) -> None:
    found = feed(collector, *lost("n1", 5.0), tentative(5, 6.0), *lost("n2", 6.5, 5, ("O1.2",), ("O1.2",)))
    found += feed(collector, tentative(6, 7.0, 0.0, ("O1.1", "O1.2")), correction(5, 8.0), correction(6, 8.1), accurate(7, 9.0))
    assert len({incident.id for incident in of_kind(found, Incident)}) == 1
    assert of_kind(found, Incident)[-1].nodes == ("n1", "n2")
    assert of_kind(found, Totals)[-1] == Totals(3, 2, 2.0, 2, 1)


def test_a_batch_in_flight_during_the_last_correction_is_still_the_same_incident(collector: Collector) -> None:
    found = feed(collector, *lost("n1", 5.0), tentative(5, 6.0), correction(5, 6.5), tentative(6, 6.6), correction(6, 7.0))
    found += feed(collector, accurate(7, 8.0))
    assert events(found).count("reconciled") == 1
    incidents = of_kind(found, Incident)
    assert len({incident.id for incident in incidents}) == 1
    assert incidents[-1].until == 7.0


def test_a_run_that_ends_with_its_last_correction_ends_the_incident(collector: Collector) -> None:
    found = feed(collector, *lost("n1", 5.0), tentative(5, 6.0), correction(5, 6.5), e.Ended(7.0, 5))
    assert events(found)[-3:] == ["corrected", "reconciled", "ended"]
    assert of_kind(found, Incident)[-1].until == 6.5


def test_a_driver_killed_between_correction_and_next_batch_goes_on_with_the_incident(
    info: PipelineInfo, collector: Collector
) -> None:
    before = of_kind(feed(collector, *lost("n1", 5.0), tentative(5, 6.0), correction(5, 6.5)), Incident)[-1]
    again = Collector(info, accuracy, PreviousState(before, Totals()))
    found = feed(again, e.DriverRestarted(8.0, 5, ("O1.1",), (), ()), tentative(6, 9.0), correction(6, 9.5), accurate(7, 10.0))
    assert {incident.id for incident in of_kind(found, Incident)} == {before.id}
    assert of_kind(found, Incident)[-1].until == 9.5


def test_a_failure_after_the_end_is_another_incident(collector: Collector) -> None:
    found = feed(collector, *lost("n1", 5.0), tentative(5, 6.0), correction(5, 6.5), accurate(6, 7.0), *lost("n2", 9.0, 6))
    assert len({incident.id for incident in of_kind(found, Incident)}) == 2


def test_corrections_that_come_together_are_one_event(collector: Collector) -> None:
    feed(collector, *lost("n1", 5.0), *(tentative(batch, 1.0 + batch) for batch in range(5, 105)))
    found = feed(collector, *(correction(batch, 110.0) for batch in range(5, 105)), e.Recovered(111.0, 104, ()))
    assert events(found) == ["corrected", "recovered"]
    assert of_kind(found, e.Corrected) == [e.Corrected(110.0, 104, 5, 104, 100, 0.5, cause=collector.tracker.cause)]
    assert len(of_kind(found, Correction)) == 100


def test_a_restarted_driver_goes_on_with_the_incident(info: PipelineInfo, collector: Collector) -> None:
    before = of_kind(feed(collector, *lost("n1", 5.0), tentative(5, 6.0), tentative(6, 7.0)), Incident)[-1]
    totals = Totals(7, 2, 2.0, 0, 1)
    again = Collector(info, accuracy, PreviousState(before, totals))
    assert events(again.begin(20.0)) == []
    resumed = e.DriverRestarted(20.0, 6, ("O1.1",), (5, 6), ("n1",))
    found = feed(again, resumed, correction(5, 21.0), correction(6, 21.1), accurate(7, 22.0))
    assert events(found) == ["resumed", "corrected", "reconciled"]
    assert {event.cause for event in of_kind(found, RunEvent)} == {before.id}
    last = of_kind(found, Incident)[-1]
    assert (last.id, last.since, last.until, last.corrected) == (before.id, 5.0, 21.1, ((5, 6),))
    assert of_kind(found, Totals)[-1] == Totals(8, 2, 2.0, 2, 1)


def test_late_outputs_are_counted_with_the_worst_and_only_first_outputs_count(collector: Collector) -> None:
    delays = (0.4, 2.0, 2.5, 7.25, 0.5)
    outputs = [e.OutputPublished(1.0 + i, i, 1, "accurate", 1.0, (), 1, "", delay) for i, delay in enumerate(delays)]
    totals = of_kind(feed(collector, *outputs, correction(3, 9.0)), Totals)[-1]
    assert (totals.late_outputs, totals.worst_lateness, totals.delay) == (2, 5.25, 0.5)


def test_a_resumed_driver_that_tells_nothing_more_still_knows_its_incident(info: PipelineInfo, collector: Collector) -> None:
    before = of_kind(feed(collector, *lost("n1", 5.0), tentative(5, 6.0)), Incident)[-1]
    again = Collector(info, accuracy, PreviousState(before, Totals()))
    found = feed(again, e.DriverRestarted(9.0, 5, (), (), ()), correction(5, 9.5), accurate(6, 10.0))
    assert of_kind(found, Incident)[-1].until == 9.5


def test_tasks_have_their_figures(collector: Collector) -> None:
    stats = TaskFigures(("O1.1", "S.1"), (100, 1), (50, 1), (0.01, 0.0), (5_000, 0), (700, 0))
    found = feed(collector, e.BatchFinished(4.0, 3, 0.5, 1, 9, 0, checkpointed=("O1.1",), synced=("O2.1",), stats=stats))
    assert of_kind(found, Timing) == [Timing(3, 4.0, 0.5, 1, 9)]
    (columns,) = of_kind(found, TaskColumns)
    assert columns.rate_in == (100.0, 0.0, 0.0)
    assert columns.checkpoint_batch == (3, -1, -1)
    assert columns.replica_batch == (-1, -1, 3)
    assert [STATES[code] for code in columns.state] == ["running", "running", "replicated"]
    assert columns.progress == (1, 1, 1)


def test_recovery_has_a_progress(collector: Collector) -> None:
    feed(collector, accurate(9, 1.0), *lost("n1", 5.0, 9), e.ReplayStarted(5.2, 9, ("O1.1",), 0))
    feed(collector, tentative(10, 6.0), e.ReplayFinished(6.5, 4, 5, 1.0, 10))
    batch = e.BatchFinished(7.0, 10, 0.5, 1, 9, 0, stats=TaskFigures((), (), (), (), (), ()))
    (columns,) = of_kind(feed(collector, batch), TaskColumns)
    assert columns.progress == (pytest.approx(5 / 11, abs=1e-4), 1, 1)


def test_heartbeats_and_losses_are_seen_in_the_nodes(collector: Collector) -> None:
    (nodes,) = feed(collector, e.Heartbeat(3.0, 1, ("n1",), {"n1": 77}))
    assert [(node.name, node.heartbeat, node.memory) for node in nodes.nodes][:2] == [("n1", 3.0, 77), ("n2", None, None)]
    nodes = of_kind(feed(collector, *lost("n1", 4.0)), NodeStatuses)[-1]
    assert [node.alive for node in nodes.nodes] == [False, True, True]
    nodes = of_kind(feed(collector, e.NodeBack(9.0, 5, "n1")), NodeStatuses)[-1]
    assert all(node.alive for node in nodes.nodes)


def test_a_drained_node_is_known_as_such_until_it_is_used_again(collector: Collector) -> None:
    for drained, seen in ((("n2",), [False, True]), ((), [False, False])):
        (nodes,) = feed(collector, e.Heartbeat(3.0, 1, ("n1", "n2"), {}, drained))
        assert [node.drained for node in nodes.nodes][:2] == seen


def test_a_plan_change_says_what_is_different(collector: Collector) -> None:
    changed = e.PlanChanged(3.0, 1, ("O1.1",), 1, "exact", "of", 0.5, 0.4, "rates changed", cause="abc")
    found = feed(collector, changed)
    (change,) = of_kind(found, PlanChange)
    assert (change.added, change.removed, change.cause) == (("O1.1",), ("O2.1",), "abc")
    assert of_kind(found, RunEvent) == [changed]


def test_minutes_are_summed(collector: Collector) -> None:
    found = feed(collector, *lost("n1", 1.0), tentative(0, 2.0, 0.4), correction(0, 3.0), accurate(1, 59.0), accurate(2, 61.0))
    assert of_kind(found, Minute) == [Minute(0.0, 2, 0.7, 0.4, 0.0, 0.0, 0, 1, 1)]
    assert of_kind(collector.end(), Minute) == [Minute(60.0, 1, 1.0, 1.0, 0.0, 0.0, 0)]


@pytest.mark.parametrize(
    ("event", "doing", "reason"),
    [
        (e.Paused(3.0, 1), "paused", ""), (e.Resumed(3.0, 1), "running", ""), (e.Stopping(3.0, 1), "stopping", ""),
        (e.Ended(3.0, 1), "ended", ""), (e.Failed(3.0, 1, "why"), "failed", "why"),
        (e.RunUnavailable(3.0, 1, "why"), "failed", "why"),
    ],
)  # fmt: skip
def test_the_life_of_a_run_is_reported(collector: Collector, event: RunEvent, doing: Any, reason: str) -> None:
    found = feed(collector, event)
    assert of_kind(found, RunStatus) == [RunStatus(3.0, doing, reason)]
    assert of_kind(found, RunEvent) == [event]


def test_a_paused_run_whose_driver_is_restarted_is_still_paused(collector: Collector) -> None:
    feed(collector, e.Paused(3.0, 1), e.DriverDied(4.0, 1, "killed"))
    found = feed(collector, e.DriverRestarted(5.0, 1, (), (), (), paused=True))
    assert of_kind(found, RunStatus) == [RunStatus(5.0, "paused")]
    assert of_kind(feed(collector, e.DriverRestarted(6.0, 1, (), (), ())), RunStatus) == [RunStatus(6.0, "running")]


def test_the_drivers_cause_is_the_incidents_id(collector: Collector) -> None:
    found = feed(
        collector, *lost("n1", 5.0, cause="i7"), tentative(5, 6.0, cause="i7"), e.JobFailed(6.1, 5, "why"),
        e.Paused(6.2, 5, cause="sender-3"), correction(5, 6.5), accurate(6, 7.0),
    )  # fmt: skip
    assert {incident.id for incident in of_kind(found, Incident)} == {"i7"}
    assert {change.cause for change in of_kind(found, StateChange)} == {"i7"}
    causes = {kind_of(event): event.cause for event in of_kind(found, RunEvent)}
    assert causes.pop("paused") == "sender-3", "a command's events carry the command's id"
    assert set(causes.values()) == {"i7"}


def test_a_driver_that_reports_another_cause_once_all_is_corrected_has_begun_another_incident(collector: Collector) -> None:
    found = feed(collector, *lost("n1", 5.0, cause="i1"), tentative(5, 6.0, cause="i1"), correction(5, 6.5))
    found += feed(collector, *lost("n2", 6.6, 5, ("O1.2",), ("O1.2",), cause="i2"))
    incidents = {incident.id: incident for incident in of_kind(found, Incident)}
    assert [(incident.id, incident.until) for incident in incidents.values()] == [("i1", 6.5), ("i2", None)]
    assert of_kind(found, e.Reconciled)[0].cause == "i1"
    assert of_kind(found, Totals)[-1].incidents == 2


def test_an_incident_that_the_driver_takes_up_again_keeps_its_id_and_its_beginning(info: PipelineInfo) -> None:
    before = Incident("i1", 5.0, 4, 6.5, ("n1",), "refused", ("O1.1",), last_correction=6.5)
    again = Collector(info, accuracy, PreviousState(before, Totals(incidents=1)))
    found = feed(again, e.DriverRestarted(8.0, 5, ("O1.1",), (5,), ("n1",), cause="i1"), correction(5, 9.0), accurate(6, 9.5))
    assert {(incident.id, incident.since) for incident in of_kind(found, Incident)} == {("i1", 5.0)}
    assert of_kind(found, Incident)[-1].until == 9.0
    assert of_kind(found, Totals)[-1].incidents == 1


def test_spans_join_where_they_touch() -> None:
    spans: tuple[tuple[int, int], ...] = ()
    for batch in (5, 6, 9, 7, 3, 8, 9):
        spans = with_batch(spans, batch)
    assert spans == ((3, 3), (5, 9))
    assert batches_in(spans) == {3, 5, 6, 7, 8, 9}


def test_an_accuracy_that_raises_is_no_accuracy(info: PipelineInfo) -> None:
    collector = Collector(info, lambda before, after: 1 / 0)
    found = feed(collector, *lost("n1", 5.0), tentative(5, 6.0), correction(5, 7.0))
    assert of_kind(found, Correction)[0].accuracy is None
    assert of_kind(found, Output)[0].status == "tentative"


def test_a_tracker_without_a_past_is_quiet() -> None:
    tracker = IncidentTracker()
    assert not tracker.accurate(1.0)
    tracker.corrected(3, None, 2.0)
    tracker.recovered(2.0)
    assert tracker.incident is None
    assert tracker.cause == ""
