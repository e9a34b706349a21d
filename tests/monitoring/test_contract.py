"""Driver, collector and recorded run are held to the types of events: nobody reports, stores or shows anything else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, get_args

import pytest

from monitoring.codec import dumps, loads
from monitoring.collector import Collector
from monitoring.recorded import RecordedRun, Scenario, table_of
from monitoring.records import PipelineInfo, StoredEvent
from monitoring.sentences import line_of, sentence
from ppa_core.driver.config import Config
from ppa_core.driver.records import Settings
from ppa_core.engine import run_events as e
from ppa_core.engine.event_codec import as_document, decode, encode, kind_of
from ppa_core.engine.event_fields import TaskFigures
from ppa_core.engine.run_events import RunEvent
from ppa_core.engine.standing import MeasuredRates, Standing
from ppa_core.nodes.embedded import launch
from ppa_core.process import driver
from ppa_core.process.driver import Driver

STATS = TaskFigures(("O1.1",), (1,), (2,), (0.1,), (3,), (0,))
STANDING = Standing(3, ("n1",), ("O1.1",), (0,), ((0,),), ((0, 3),), (-1,))
FIGURES: list[RunEvent] = [
    e.OutputPublished(1.5, 3, 1, "accurate", 1.0, (), 10, "ab"),
    e.BatchFinished(1.5, 3, 0.5, 1, 10, 20, stats=STATS),
    e.BatchProgress(1.5, 3, 10, 20.0, {"addBatch": 5}, 20.0),
    e.Placed(1.5, 3, {"O1.1": "n1"}, {}, {"O1.1": "n2"}),
    e.StandingChanged(1.5, 3, STANDING),
    e.RatesMeasured(1.5, 3, MeasuredRates(3, {"S.1>O1.1": 2.5})),
    e.Heartbeat(1.5, 3, ("n1",), {"n1": 7}),
]
"""These come with every batch or heartbeat: the monitor keeps what follows from them."""
BETWEEN: list[RunEvent] = [
    e.CommandNumbers(1.5, 3, {"abcdefgh": (4, 1.5)}),
    e.CommandAnswered(1.5, 3, "abcdefgh-4", "done", "as you wish"),
]
"""These are between the driver and the process that supervises it; `CommandCarriedOut` follows from them."""
KEPT: list[RunEvent] = [
    e.SourceSilent(1.5, 3),
    e.PlanChanged(1.5, 3, ("O1.1",), 1, "greedy", "of", 0.5, 0.25, "rates changed"),
    e.PlanningFailed(1.5, 3, "no time"),
    e.NodeLost(1.5, 3, "n1", "connection refused", "r1"),
    e.FailedOver(1.5, 3, "n1", ("O1.1", "O2.1"), ("O1.1",), 0.5),
    e.CopyLost(1.5, 3, "n1", "O1.1", ()),
    e.ReplayStarted(1.5, 3, ("O1.1",), 0),
    e.ReplayFinished(1.5, 3, 4, 0.5, 100),
    e.Recovered(1.5, 3, ("O1.1",)),
    e.NodeBack(1.5, 3, "n1"),
    e.JobFailed(1.5, 3, "an executor was lost"),
    e.StreamRestarted(1.5, 3, "no reason given"),
    e.StandbyReady(1.5, 3),
    e.DriverTookOver(1.5, 3, 2),
    e.Starting(1.5, -1, "Spark's session"),
    e.DriverRestarted(1.5, 3, ("O1.1",), (2, 3), ("n1",), True),
    e.DriverDied(1.5, 3, "killed"),
    e.Paused(1.5, 3),
    e.Resumed(1.5, 3),
    e.Stopping(1.5, 3),
    e.Ended(1.5, 3),
    e.Failed(1.5, 3, "reason", ("place", "reason")),
    e.RunUnavailable(1.5, 3, "no Java"),
    e.CommandCarriedOut(1.5, 3, "ada", "set-budget 4", "done", "OF 0.5", cause="abcdefgh-4"),
    e.RunStarted(1.5, -1, "tree", 15, 8),
    e.TentativeBegan(1.5, 3, 0.5, ("O1.1",)),
    e.Corrected(1.5, 3, 1, 3, 3, 0.5),
    e.Reconciled(1.5, 3, 2.5),
]
"""These are kept as they were reported."""
EVERY = [*FIGURES, *BETWEEN, *KEPT]

REPORTED = {
    "starting", "placed", "standing", "rates", "batch", "output", "progress", "heartbeat", "node lost", "failover", "replaying",
    "replayed", "recovered", "carried out", "answer", "paused", "continued", "ended",
}  # fmt: skip
"""What a driver reports of a run in which a node is killed, and that is paused and resumed."""


def test_every_type_is_declared_once() -> None:
    assert len(EVERY) == len(get_args(RunEvent))
    assert {type(event) for event in EVERY} == set(get_args(RunEvent))


@pytest.mark.parametrize("event", EVERY, ids=kind_of)
def test_the_collector_keeps_what_is_declared_as_kept_and_handles_the_rest(info: PipelineInfo, event: RunEvent) -> None:
    found = Collector(info).handle(event, table_of(event))
    stored = [record for record in found if isinstance(record, type(event))]
    if event in KEPT:
        assert [as_document(one) | {"cause": ""} for one in stored] == [as_document(event) | {"cause": ""}]
    else:
        assert stored == []
        assert bool(found) == (event in FIGURES)
    for record in found:
        kind: Any = StoredEvent if isinstance(record, RunEvent) else type(record)
        assert loads(kind, dumps(record)) == (StoredEvent(record) if kind is StoredEvent else record)


@pytest.mark.parametrize("event", EVERY, ids=kind_of)
def test_every_event_has_a_line_of_text(event: RunEvent) -> None:
    assert sentence(event)
    assert kind_of(event) in line_of(event)


def test_sentences_are_plain() -> None:
    said = {kind_of(event): sentence(event) for event in EVERY}
    assert said["node lost"] == "node n1 (rack r1) lost: connection refused"
    assert said["failover"] == "node n1: taken over: O2.1; missing: O1.1; OF 0.5000"
    assert said["command"] == "set-budget 4 by ada: done: OF 0.5"
    assert said["answer"] == "id abcdefgh-4, outcome done, text as you wish"


def test_a_recorded_run_is_made_of_events() -> None:
    events = list(RecordedRun(Scenario(batches=120)).events())
    assert all(decode(encode(event)) == event for event in events)
    assert {kind_of(event) for event in events} == REPORTED - {
        "starting", "carried out", "answer", "paused", "continued", "ended",
    } | {"node back", "plan changed", "command"}  # fmt: skip


@pytest.mark.drill
def test_every_line_of_a_real_driver_is_an_event(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    others: list[bytes] = []
    logged = driver._not_an_event

    def other(line: bytes, reason: str) -> None:
        others.append(line)
        logged(line, reason)

    monkeypatch.setattr(driver, "_not_an_event", other)
    options = {"rate": 50, "window": 2.0, "batch_seconds": 0.5}
    settings = Settings(batches=12, checkpoint_every=4, interval=0.5)
    kinds: set[str] = set()
    with launch(2, 2, 2, 64) as nodes:
        members = tuple(nodes.cluster.nodes)
        config = Config("tree", options, members, (), settings, "contract", tmp_path / "run", detailed=True)
        with Driver(config) as running:
            for event in running.events():
                kinds.add(kind_of(event))
                match event:
                    case e.OutputPublished(batch=3, revision=1):
                        nodes.kill("n1")
                    case e.OutputPublished(batch=7, revision=1):
                        running.send("pause", id_="abcdefgh-1")
                    case e.Paused():
                        running.send("resume", id_="abcdefgh-2")
    assert kinds >= REPORTED
    assert kinds - REPORTED <= {"job failed", "stream restarted"}
    assert {json.loads(line)["kind"] for line in others} <= {"log", "answer"}  # until the driver reports types: no "answer"
