"""The collector: what the host tells, turned into states, incidents and events under one cause."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from monitoring.codec import Malformed, dumps, loads
from monitoring.collector import Collector, told_all
from monitoring.incidents import Tracker, batches_in, with_batch
from monitoring.inputs import Before
from monitoring.recorded import Note, Play, Record, Rows, Script, Stats, accuracy
from monitoring.records import (
    STATES,
    Correction,
    Event,
    Incident,
    Life,
    Minute,
    NodeStatuses,
    Output,
    PipelineInfo,
    PlanChange,
    Progress,
    StateChange,
    TaskColumns,
    Timing,
    Totals,
)


def of_kind(found: Sequence[Any], kind: type) -> list[Any]:
    return [record for record in found if isinstance(record, kind)]


def events(found: Sequence[Any]) -> list[str]:
    return [event.kind for event in of_kind(found, Event)]


def feed(collector: Collector, *seen: Any) -> list[Any]:
    return [record for each in seen for record in collector.handle(each)]


def accurate(batch: int, at: float) -> Record:
    return Record(batch, 1, "accurate", 1.0, (), Rows(100), at)


def tentative(batch: int, at: float, of: float = 0.5, missing: tuple[str, ...] = ("O1.1",)) -> Record:
    return Record(batch, 1, "tentative", of, missing, Rows(int(100 * of)), at)


def correction(batch: int, at: float, revision: int = 2) -> Record:
    return Record(batch, revision, "correction", 1.0, (), Rows(100), at)


def lost(
    node: str, at: float, batch: int = 4, homes: tuple[str, ...] = ("O1.1", "O2.1"), missing: tuple[str, ...] = ("O1.1",)
) -> Any:
    return (
        Note("node lost", at, batch, {"node": node, "reason": "refused"}),
        Note("failover", at + 0.1, batch, {"node": node, "lost": list(homes), "missing": list(missing)}),
    )


@pytest.fixture
def collector(info: PipelineInfo) -> Collector:
    made = Collector(info, accuracy)
    made.begin(0.0)
    feed(made, Note("placed", 0.0, -1, {"homes": {}, "replicas": {"O2.1": "s1"}, "checkpoints": {}}))
    return made


def test_a_run_begins_with_its_plan_nodes_and_a_first_event(info: PipelineInfo) -> None:
    found = Collector(info).begin(5.0)
    assert [type(record) for record in found] == [NodeStatuses, Life, PlanChange, Event]
    assert found[2].reason == "start"
    assert found[2].plan == ("O2.1",)


def test_everything_of_a_recorded_run_can_be_written_and_read() -> None:
    play = Play(Script(batches=100))
    seen = [each for each in play.told() if not isinstance(each, Progress)]
    for record in told_all(Collector(play.info, accuracy), seen, 0.0):
        assert loads(type(record), dumps(record)) == record


def test_a_lost_node_begins_an_incident_that_ends_with_the_last_correction(collector: Collector) -> None:
    found = feed(
        collector, accurate(4, 5.0), *lost("n1", 5.5),
        Note("replaying", 5.7, 4, {"tasks": ["O1.1"], "first": 0, "last": 4}),
        tentative(5, 6.0), tentative(6, 7.0, 0.4), Note("recovered", 7.4, 4, {"tasks": ["O1.1"]}),
        correction(5, 7.5), correction(6, 7.6), accurate(7, 8.0),
    )  # fmt: skip
    wanted = ["node lost", "failover", "recovering", "tentative", "tentative", "recovered", "corrected", "reconciled"]
    assert events(found) == wanted
    assert len({event.cause for event in of_kind(found, Event)}) == 1
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
    changes = of_kind(feed(collector, Note("replaying", 5.2, 4, {"tasks": ["O1.1"], "first": 0})), StateChange)
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
    found = feed(collector, *lost("n1", 5.0), tentative(5, 6.0), correction(5, 6.5), Note("ended", 7.0, 5))
    assert events(found)[-3:] == ["corrected", "reconciled", "ended"]
    assert of_kind(found, Incident)[-1].until == 6.5


def test_a_driver_killed_between_correction_and_next_batch_goes_on_with_the_incident(
    info: PipelineInfo, collector: Collector
) -> None:
    before = of_kind(feed(collector, *lost("n1", 5.0), tentative(5, 6.0), correction(5, 6.5)), Incident)[-1]
    again = Collector(info, accuracy, Before(before, Totals()))
    found = feed(
        again, Note("resumed", 8.0, 5, {"missing": ["O1.1"]}), tentative(6, 9.0), correction(6, 9.5), accurate(7, 10.0)
    )
    assert {incident.id for incident in of_kind(found, Incident)} == {before.id}
    assert of_kind(found, Incident)[-1].until == 9.5


def test_a_failure_after_the_end_is_another_incident(collector: Collector) -> None:
    found = feed(collector, *lost("n1", 5.0), tentative(5, 6.0), correction(5, 6.5), accurate(6, 7.0), *lost("n2", 9.0, 6))
    assert len({incident.id for incident in of_kind(found, Incident)}) == 2


def test_corrections_that_come_together_are_one_event(collector: Collector) -> None:
    feed(collector, *lost("n1", 5.0), *(tentative(batch, 1.0 + batch) for batch in range(5, 105)))
    found = feed(collector, *(correction(batch, 110.0) for batch in range(5, 105)), Note("recovered", 111.0, 104, {}))
    assert events(found) == ["corrected", "recovered"]
    assert of_kind(found, Event)[0].figures == {"first": 5, "last": 104, "batches": 100, "accuracy": 0.5}
    assert len(of_kind(found, Correction)) == 100


def test_a_restarted_driver_goes_on_with_the_incident(info: PipelineInfo, collector: Collector) -> None:
    before = of_kind(feed(collector, *lost("n1", 5.0), tentative(5, 6.0), tentative(6, 7.0)), Incident)[-1]
    totals = Totals(7, 2, 2.0, 0, 1)
    again = Collector(info, accuracy, Before(before, totals))
    assert events(again.begin(20.0)) == []
    resumed = Note("resumed", 20.0, 6, {"missing": ["O1.1"], "lost": ["n1"], "tentative": [5, 6]})
    found = feed(again, resumed, correction(5, 21.0), correction(6, 21.1), accurate(7, 22.0))
    assert events(found) == ["driver resumed", "corrected", "reconciled"]
    assert {event.cause for event in of_kind(found, Event)} == {before.id}
    last = of_kind(found, Incident)[-1]
    assert (last.id, last.since, last.until, last.corrected) == (before.id, 5.0, 21.1, ((5, 6),))
    assert of_kind(found, Totals)[-1] == Totals(8, 2, 2.0, 2, 1)


def test_a_resumed_driver_that_tells_nothing_more_still_knows_its_incident(info: PipelineInfo, collector: Collector) -> None:
    before = of_kind(feed(collector, *lost("n1", 5.0), tentative(5, 6.0)), Incident)[-1]
    again = Collector(info, accuracy, Before(before, Totals()))
    found = feed(again, Note("resumed", 9.0, 5, {}), correction(5, 9.5), accurate(6, 10.0))
    assert of_kind(found, Incident)[-1].until == 9.5


def test_tasks_have_their_figures(collector: Collector) -> None:
    stats = [Stats("O1.1", 3, 100, 50, 0.01, 5_000, 700), Stats("S.1", 3, 1, 1, 0.0, 0, 0)]
    figures = {"seconds": 0.5, "stats": stats, "checkpointed": ["O1.1"], "synced": ["O2.1"], "source_rows": 9}
    found = feed(collector, Note("batch", 4.0, 3, figures))
    assert of_kind(found, Timing) == [Timing(3, 4.0, 0.5, 1, 9)]
    (columns,) = of_kind(found, TaskColumns)
    assert columns.rate_in == (100.0, 0.0, 0.0)
    assert columns.checkpoint_batch == (3, -1, -1)
    assert columns.replica_batch == (-1, -1, 3)
    assert [STATES[code] for code in columns.state] == ["running", "running", "replicated"]
    assert columns.progress == (1, 1, 1)


def test_recovery_has_a_progress(collector: Collector) -> None:
    feed(collector, accurate(9, 1.0), *lost("n1", 5.0, 9), Note("replaying", 5.2, 9, {"tasks": ["O1.1"], "first": 0}))
    feed(collector, tentative(10, 6.0), Note("replayed", 6.5, 4, {}))
    (columns,) = of_kind(feed(collector, Note("tasks", 7.0, 10, {"stats": []})), TaskColumns)
    assert columns.progress == (pytest.approx(5 / 11, abs=1e-4), 1, 1)


def test_heartbeats_and_losses_are_seen_in_the_nodes(collector: Collector) -> None:
    (nodes,) = feed(collector, Note("heartbeat", 3.0, 1, {"alive": ["n1"], "memory": {"n1": 77}}))
    assert [(node.name, node.heartbeat, node.memory) for node in nodes.nodes][:2] == [("n1", 3.0, 77), ("n2", None, None)]
    nodes = of_kind(feed(collector, *lost("n1", 4.0)), NodeStatuses)[-1]
    assert [node.alive for node in nodes.nodes] == [False, True, True]
    nodes = of_kind(feed(collector, Note("node back", 9.0, 5, {"node": "n1"})), NodeStatuses)[-1]
    assert all(node.alive for node in nodes.nodes)


def test_a_drained_node_is_known_as_such_until_it_is_used_again(collector: Collector) -> None:
    for drained, seen in ((["n2"], [False, True]), ([], [False, False])):
        (nodes,) = feed(collector, Note("heartbeat", 3.0, 1, {"alive": ["n1", "n2"], "drained": drained}))
        assert [node.drained for node in nodes.nodes][:2] == seen


def test_a_plan_change_says_what_is_different(collector: Collector) -> None:
    figures = {"plan": ["O1.1"], "budget": 1, "planner": "exact", "of": 0.5, "reason": "rates changed", "cause": "abc"}
    found = feed(collector, Note("plan changed", 3.0, 1, figures))
    (change,) = of_kind(found, PlanChange)
    assert (change.added, change.removed, change.cause) == (("O1.1",), ("O2.1",), "abc")
    assert of_kind(found, Event)[0].figures["reason"] == "rates changed"


def test_minutes_are_summed(collector: Collector) -> None:
    found = feed(collector, *lost("n1", 1.0), tentative(0, 2.0, 0.4), correction(0, 3.0), accurate(1, 59.0), accurate(2, 61.0))
    assert of_kind(found, Minute) == [Minute(0.0, 2, 0.7, 0.4, 0.0, 0.0, 0, 1, 1)]
    assert of_kind(collector.end(), Minute) == [Minute(60.0, 1, 1.0, 1.0, 0.0, 0.0, 0)]


@pytest.mark.parametrize("kind", ["paused", "continued", "stopping", "ended", "failed"])
def test_the_life_of_a_run_is_told(collector: Collector, kind: str) -> None:
    found = feed(collector, Note(kind, 3.0, 1, {"reason": "operator"}))
    (life,) = of_kind(found, Life)
    assert life == Life(3.0, "running" if kind == "continued" else kind, "operator")  # type: ignore[arg-type]
    assert events(found) == [kind]


@pytest.mark.parametrize(
    "figures",
    [
        {}, {"node": None}, {"node": ["n1"]}, {"lost": "O1.1", "missing": 7}, {"stats": "x"}, {"homes": 7}, {"plan": {"a": 1}},
        {"seconds": "long", "attempts": "2"}, {"of": float("nan")}, {"x": object()}, {"memory": [1]}, {"tentative": ["a"]},
        {"node": "<script>" * 1_000}, {"deep": {"a": [[1]]}}, {"rows": 10**30}, {"text": "\ud800"},
    ],
)  # fmt: skip
@pytest.mark.parametrize(
    "kind",
    ["placed", "standing", "rates", "batch", "tasks", "heartbeat", "node lost", "failover", "replaying", "replayed",
     "recovered", "node back", "plan changed", "resumed", "ended", "command", "<b>", "life"],
)  # fmt: skip
def test_strange_figures_give_records_that_can_be_kept(collector: Collector, kind: str, figures: dict[str, object]) -> None:
    for record in feed(collector, Note(kind, 3.0, 1, figures), tentative(3, 4.0), correction(3, 5.0), accurate(4, 6.0)):
        try:
            loads(type(record), dumps(record))
        except (Malformed, ValueError) as error:
            raise AssertionError(record) from error


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
    tracker = Tracker()
    assert not tracker.accurate(1.0)
    tracker.corrected(3, None, 2.0)
    tracker.recovered(2.0)
    assert tracker.incident is None
    assert tracker.cause == ""
