"""The reader: the whole story of a run, and nothing in Redis that could make it fall over."""

from __future__ import annotations

import pickle
import zlib
from typing import Any

import pytest

from monitoring import keys
from monitoring.connection import Address, Connection, MonitorDown, UnknownSchema
from monitoring.reader import MonitorReader
from monitoring.recorded import Scenario, record
from monitoring.records import Correction, Output, PipelineInfo, RunKey
from monitoring.server import MonitorServer
from monitoring.signing import Signer
from monitoring.writer import Writer
from ppa_core.engine.event_codec import kind_of
from ppa_core.errors import RequestError
from tests.monitoring.tester import run

BEGIN = Scenario.begin
MARKUP = '<script>alert("x")</script>[bold]\x1b[31m'


@pytest.fixture(scope="module")
def recorded(server: MonitorServer) -> RunKey:
    return record(server.address, Scenario(run="whole"))


def test_the_current_state(reader: MonitorReader, recorded: RunKey) -> None:
    state = reader.state(recorded)
    assert state is not None
    assert state.batch is not None
    assert (state.batch.batch, state.batch.status, state.of) == (119, "accurate", 1.0)
    assert len(state.tasks) == 15
    assert len(state.nodes) == 8
    assert all(node.alive for node in state.nodes)
    assert state.incident is None
    assert (state.totals.batches, state.totals.tentative_batches, state.totals.corrected_batches) == (120, 12, 12)
    assert state.plan is not None
    assert state.plan.budget == 8
    assert state.plan.cause == "c0ffee"
    replicated = {task.task for task in state.tasks if task.replica}
    assert replicated == set(state.plan.plan)
    assert all(task.replica_lag == 0 for task in state.tasks if task.replica)
    assert all(task.checkpoint_age is not None and 0 <= task.checkpoint_age < 15 for task in state.tasks)
    assert state.progress is not None
    assert state.progress.durations["addBatch"] > 0
    assert not reader.bad


def test_batches_say_what_became_of_them(reader: MonitorReader, recorded: RunKey) -> None:
    found = reader.batches(recorded)
    assert [batch.batch for batch in found] == list(range(120))
    tentative = [batch for batch in found if batch.status != "accurate"]
    assert [batch.batch for batch in tentative] == list(range(61, 73))
    for batch in tentative:
        assert batch.status == "corrected"
        assert batch.revision == 2
        assert batch.of < 1
        assert batch.missing
        assert batch.corrected_at is not None
        assert batch.corrected_at > batch.at
        assert batch.accuracy == pytest.approx(batch.of, abs=0.05)
    assert found[61].attempts == 2


def test_the_latest_output_is_corrected_as_soon_as_its_correction_is_there(
    reader: MonitorReader, address: Address, info: PipelineInfo
) -> None:
    for told, status in ((Output(7, 1008.0, 1, "tentative", 0.5), "tentative"), (Correction(7, 1008.5, 2), "corrected")):
        writer = Writer(address, info)
        writer.write(told)
        assert writer.close(10)
        state = reader.state(info.pipeline)
        assert state is not None
        assert state.batch is not None
        assert state.batch.status == status


def test_history_by_time(reader: MonitorReader, recorded: RunKey) -> None:
    some = reader.batches(recorded, BEGIN + 10, BEGIN + 19)
    assert [batch.batch for batch in some] == list(range(9, 19))
    assert all(batch.seconds is not None for batch in some)
    assert [batch.batch for batch in reader.batches(recorded, limit=5)] == [115, 116, 117, 118, 119]
    assert reader.batches(recorded, BEGIN - 100, BEGIN - 1) == ()
    early = reader.batches(recorded, BEGIN + 60, BEGIN + 64)  # its corrections come later
    assert [batch.status for batch in early] == ["accurate", "accurate", "corrected", "corrected", "corrected"]
    assert len(reader.progress(recorded, BEGIN, BEGIN + 50)) == 49
    assert len(reader.task_figures(recorded)) == 120


def test_the_live_of_is_a_series_by_batch_or_by_minute(reader: MonitorReader, recorded: RunKey) -> None:
    fine = reader.of_series(recorded, BEGIN)
    assert len(fine) == 120
    assert sum(point.tentative for point in fine) == 12
    coarse = reader.of_series(recorded, 0.0)
    assert len(coarse) == 3
    assert min(point.of for point in coarse) == min(point.of for point in fine)


def test_an_incident_is_whole_under_one_cause(reader: MonitorReader, recorded: RunKey) -> None:
    (known,) = reader.incidents(recorded)
    report = reader.incident(recorded, known.id)
    assert report is not None
    kinds = [kind_of(stored.event) for stored in report.events]
    assert kinds[0] == "node lost"
    assert kinds[-1] == "reconciled"
    assert {"failover", "replaying", "tentative", "corrected", "recovered"} <= set(kinds)
    incident = report.incident
    assert set(incident.nodes) == {"n1", "n3"}
    assert incident.until is not None
    assert incident.tentative == incident.corrected == ((61, 72),)
    assert incident.predicted is not None
    assert incident.accuracy == pytest.approx(incident.predicted, abs=0.05)
    assert {recovery.task for recovery in report.recoveries} == set(incident.failed)
    assert all(recovery.whole is not None for recovery in report.recoveries)
    during = report.states_at(BEGIN + 65)
    assert {during[task] for task in incident.failed} == {"recovering"}
    assert {during[task] for task in incident.taken_over} == {"taken_over"}
    assert set(report.states_at(BEGIN + 80).values()) <= {"running", "replicated"}


def test_events_follow_each_other_by_id(reader: MonitorReader, recorded: RunKey) -> None:
    every = reader.events(recorded)
    assert kind_of(every[0].event) == "started"
    assert reader.events(recorded, every[3].id) == every[4:]
    assert reader.events(recorded, every[-1].id) == []
    with pytest.raises(RequestError, match="not an event id"):
        reader.events(recorded, "$(rm)")


def test_pipelines_are_found_by_name(reader: MonitorReader, recorded: RunKey) -> None:
    assert recorded in reader.pipelines()
    assert reader.find("tree@whole") == recorded
    with pytest.raises(RequestError, match="unknown pipeline"):
        reader.find("nothing")


def test_what_is_not_known_is_none_or_empty(reader: MonitorReader) -> None:
    nobody = RunKey("nobody", "0")
    assert reader.state(nobody) is None
    assert reader.info(nobody) is None
    assert reader.incident(nobody, "1") is None
    assert reader.batches(nobody) == ()
    for found in (reader.events(nobody), reader.incidents(nobody), reader.plans(nobody)):
        assert not found


def garbage() -> list[Any]:
    bomb = b"z" + zlib.compress(b"[" + b"0," * 3_000_000 + b"0]")
    return [b"", b"\xff\x00", b"[]", b"null", b"{}", b'["' + MARKUP.encode() + b'"]', pickle.dumps(RunKey("a", "b")), bomb,
            b"9" * 100_000, b"[" * 50_000, b"z", b'[1e400,1e400,1e400]', b"[" + b"1," * 40 + b"1]"]  # fmt: skip


def everything(reader: MonitorReader, pipeline: RunKey) -> None:
    reader.pipelines()
    reader.state(pipeline)
    reader.info(pipeline)
    for read in (reader.batches, reader.of_series, reader.minutes, reader.progress, reader.task_figures):
        read(pipeline)
    reader.plans(pipeline)
    reader.events(pipeline)
    reader.events(pipeline, "0-0")
    for incident in reader.incidents(pipeline):
        reader.incident(pipeline, incident.id)
    reader.incident(pipeline, "x")
    reader.audit()
    reader.audit(pipeline)
    reader.chain(pipeline, Signer(b"a key for this test"))


@pytest.mark.slow
def test_garbage_in_every_value_is_counted_and_skipped(
    server: MonitorServer, reader: MonitorReader, connection: Connection
) -> None:
    pipeline = record(server.address, Scenario(run="spoiled", batches=70))
    good = len(reader.batches(pipeline))
    for content in garbage():
        streams = [*(keys.series(pipeline, series) for series in keys.SERIES), keys.audit(pipeline)]
        run(
            connection,
            *(("XADD", name, "*", "r", content) for name in streams),
            *(("XADD", name, "*", "other", content) for name in streams),
            ("HSET", keys.now(pipeline), *(part for field in keys.NOW for part in (field, content))),
            ("ZADD", keys.PIPELINES_KEY, 1, content[:1000]),
            ("ZADD", keys.incidents(pipeline), 1, content[:1000]),
            ("SET", keys.incident(pipeline, "x"), content),
            ("SET", keys.audit_head(pipeline), content),
        )
        before = sum(reader.bad.values())
        everything(reader, pipeline)
        assert sum(reader.bad.values()) > before
        run(connection, ("SET", keys.info(pipeline), content))
        assert reader.state(pipeline) is None
        everything(reader, pipeline)
    assert len(reader.batches(pipeline)) == good
    run(connection, ("DEL", keys.PIPELINES_KEY))


def test_huge_values_are_skipped(server: MonitorServer, reader: MonitorReader, connection: Connection) -> None:
    pipeline = record(server.address, Scenario(run="huge", batches=3))
    huge = b"[" + b" " * 20_000_000 + b"]"
    run(connection, ("XADD", keys.series(pipeline, keys.EVENTS), "*", "r", huge), ("HSET", keys.now(pipeline), "tasks", huge))
    assert len(reader.events(pipeline)) == 1
    state = reader.state(pipeline)
    assert state is not None
    assert len(state.tasks) == 15
    assert reader.bad == {"run-events": 1, "now tasks": 1}


@pytest.mark.parametrize("how", [("SET", "text"), ("RPUSH", "a"), ("SADD", "a"), ("HSET", "a", "b"), ("ZADD", 1, "a")])
def test_keys_of_the_wrong_type_are_counted_and_skipped(
    server: MonitorServer, reader: MonitorReader, connection: Connection, how: tuple[Any, ...]
) -> None:
    pipeline = record(server.address, Scenario(run="wrong", batches=3))
    every = run(connection, ("KEYS", keys.key(pipeline, "*")))[0]
    for name in every:
        run(connection, ("DEL", name), (how[0], name, *how[1:]))
    everything(reader, pipeline)
    assert reader.bad
    run(connection, *(("DEL", name) for name in every))


def test_hostile_names_are_only_names(server: MonitorServer, reader: MonitorReader) -> None:
    pipeline = record(server.address, Scenario(name=MARKUP, run="../../*", batches=3))
    assert reader.find(f"{MARKUP}@../../*") == pipeline
    state = reader.state(pipeline)
    assert state is not None
    assert state.info.name == MARKUP


def test_an_info_that_belongs_to_another_run_is_refused(
    reader: MonitorReader, recorded: RunKey, connection: Connection
) -> None:
    other = RunKey("tree", "stolen")
    run(connection, ("SET", keys.info(other), run(connection, ("GET", keys.info(recorded)))[0]))
    assert reader.state(other) is None
    assert reader.bad["info"] == 1


def test_an_unknown_schema_is_refused_in_one_sentence(connection: Connection, address: Address, recorded: RunKey) -> None:
    run(connection, ("SET", keys.SCHEMA_KEY, "2"))
    try:
        with pytest.raises(UnknownSchema, match=r"has schema version '2', this program needs 1: use the version"):
            MonitorReader(address).state(recorded)
    finally:
        run(connection, ("SET", keys.SCHEMA_KEY, str(keys.SCHEMA)))
    assert MonitorReader(address).state(recorded) is not None


def test_a_monitor_that_is_away_is_one_clear_error() -> None:
    with pytest.raises(MonitorDown, match="does not answer"):
        MonitorReader(Address("redis://127.0.0.1:1")).pipelines()
