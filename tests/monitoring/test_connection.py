"""The connection: one round trip for a pipeline, this project's errors for what goes wrong, an answer for what is refused."""

from __future__ import annotations

import pytest
from redis.exceptions import ResponseError

from monitoring import buffers, keys
from monitoring.buffers import Item, RecentWrites
from monitoring.connection import Address, Connection, MonitorDown
from monitoring.reader import MonitorReader
from monitoring.recorded import Scenario, record
from monitoring.routes import Route
from monitoring.server import MonitorServer
from tests.monitoring.tester import run


def reads(connection: Connection) -> int:
    """How often the server has read from a connection: once for each round trip of small commands, this one among them."""
    with connection.pipeline() as pipe:
        pipe.info("stats")
        (found,) = connection.execute(pipe)
    return int(found["total_reads_processed"])


def test_a_command_that_is_refused_has_its_error_as_its_answer(connection: Connection) -> None:
    with connection.pipeline() as pipe:
        pipe.set("ppa:monitor:text", b"\xff\x00")
        pipe.xrange("ppa:monitor:text")
        pipe.get("ppa:monitor:text")
        done, refused, value = connection.execute(pipe)
    assert done is True
    assert isinstance(refused, ResponseError)
    assert value == b"\xff\x00"  # as it is there, not decoded


def test_a_user_who_may_not_is_answered_so(address: Address, connection: Connection) -> None:
    run(connection, ("SET", "ppa:monitor:x", "1"))
    reader = Connection(address, role="reader")
    with reader.pipeline() as pipe:
        pipe.unlink("ppa:monitor:x")
        pipe.get("ppa:monitor:x")
        refused, value = reader.execute(pipe)
    assert "permission" in str(refused).lower()
    assert value == b"1"
    reader.close()


def test_a_read_is_one_round_trip_with_the_check_of_the_schema(address: Address, connection: Connection) -> None:
    pipeline = record(address, Scenario(run="trips"))
    reader = MonitorReader(address)
    assert reader.state(pipeline) is not None  # and it is connected
    own = -reads(connection) + reads(connection)
    for read in (
        reader.pipelines, lambda: reader.info(pipeline), lambda: reader.state(pipeline), lambda: reader.events(pipeline),
        lambda: reader.plans(pipeline), lambda: reader.audit(pipeline),
    ):  # fmt: skip
        before = reads(connection)
        read()
        assert reads(connection) - before == own + 1
    reader.close()


def test_a_limit_of_nothing_reads_one_and_is_no_error(address: Address) -> None:
    pipeline = record(address, Scenario(run="limit"))
    reader = MonitorReader(address)
    assert len(reader.events(pipeline, limit=0)) == 1
    assert len(reader.events(pipeline, "0-0", limit=0)) == 1
    assert reader.audit(pipeline, limit=0) == []
    reader.close()


def test_what_a_server_that_ends_does_to_a_round_trip_is_monitor_down(server: MonitorServer) -> None:
    connection = Connection(server.address)
    assert run(connection, ("PING",)) == [True]
    server.kill()
    with pytest.raises(MonitorDown, match="does not answer"):
        run(connection, ("PING",))
    server.restart()
    assert run(connection, ("PING",)) == [True]
    connection.close()


# --------------------------------------------------------------------------------------------------------- recent writes


def written(content: bytes, number: int = 1) -> Item:
    return Item(Route(series=keys.EVENTS), content, (number, 0))


def test_what_is_beyond_the_end_of_its_stream_is_lost_and_sent_once_more() -> None:
    kept = RecentWrites()
    items = [written(b"x", number) for number in (1, 2, 3)]
    incident = Item(Route(incident=("i", 1.0)), b"y")
    for item in (*items, incident):
        kept.add(item)
    assert kept.take_lost({"run-events": (2, 0)}) == [items[2], incident]
    assert [item.sent for item in (*items, incident)] == [False, False, True, True]
    assert kept.take_lost({"run-events": (0, 0)}) == []  # nothing twice


def test_recent_writes_are_bounded_in_bytes_and_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(buffers, "MAX_BYTES", 10)
    kept = RecentWrites()
    for number in (1, 2, 3):
        kept.add(written(b"12345", number))
    assert [item.id for item in kept.take_lost({"run-events": (0, 0)})] == [(2, 0), (3, 0)]
    kept.add(written(b"x" * 11))
    assert kept.take_lost({"run-events": (0, 0)}) == []
    kept.add(written(b"1", 1))
    monkeypatch.setattr(buffers, "SECONDS", -1.0)
    kept.add(written(b"2", 2))
    assert kept.take_lost({"run-events": (0, 0)}) == []
