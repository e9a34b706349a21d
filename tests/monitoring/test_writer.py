"""The writer: never in the way, nothing twice, and an honest count when something had to be dropped."""

from __future__ import annotations

import shutil
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from redis import Redis

from monitoring import keys
from monitoring.connection import Address, Connection
from monitoring.reader import MonitorReader
from monitoring.records import Output, PipelineInfo, RunStatus, Timing
from monitoring.server import MonitorServer, start
from monitoring.writer import Writer
from ppa_core.engine.run_events import Paused
from tests.monitoring.test_keys import columns
from tests.monitoring.tester import TESTER, as_tester, run

BEGIN = 1_763_251_200.0


@pytest.fixture
def own(folder: Path) -> Iterator[MonitorServer]:
    """A server that a test may kill."""
    with start(folder) as started:
        yield started


def until(true: Callable[[], bool], seconds: float = 10.0) -> bool:
    end = time.monotonic() + seconds
    while not true() and time.monotonic() < end:
        time.sleep(0.01)
    return true()


def output(batch: int) -> Output:
    return Output(batch, BEGIN + batch, 1, "accurate", 1.0)


def batches(address: Address, info: PipelineInfo) -> list[int]:
    return [batch.batch for batch in MonitorReader(address).batches(info.pipeline, limit=100_000)]


def test_what_is_told_is_there(address: Address, info: PipelineInfo) -> None:
    writer = Writer(address, info)
    for batch in range(2_000):
        writer.write(output(batch))
    assert writer.close(10)
    assert batches(address, info) == list(range(2_000))
    assert (writer.received, writer.written, writer.dropped, writer.refused) == (2_000, 2_000, 0, 0)


def test_monitor_killed_and_back_under_load_loses_nothing_and_doubles_nothing(own: MonitorServer, info: PipelineInfo) -> None:
    writer, stop, told = Writer(own.address, info), threading.Event(), [0]

    def load() -> None:
        while not stop.is_set():
            for _ in range(20):
                writer.write(output(told[0]))
                told[0] += 1
            time.sleep(0.002)

    teller = threading.Thread(target=load)
    teller.start()
    for _ in range(3):
        time.sleep(0.15)
        own.kill()
        assert until(lambda: writer.trouble != "")
        time.sleep(0.1)
        own.restart()
        assert until(lambda: writer.trouble == "" and writer.waiting < 500)
    stop.set()
    teller.join()
    assert writer.close(10)
    assert batches(own.address, info) == list(range(told[0]))
    assert writer.dropped == 0
    assert told[0] > 1_000


def test_what_a_killed_monitor_had_acknowledged_and_lost_is_written_again(own: MonitorServer, info: PipelineInfo) -> None:
    writer = Writer(own.address, info)
    for batch in range(100):
        writer.write(output(batch))
    assert until(lambda: writer.written == 100)
    with Redis.from_url(
        own.address.current(TESTER)
    ) as client:  # as a server whose disk was too slow: the last half never got there
        name = keys.series(info.pipeline, keys.OUTPUTS)
        for entry, _ in client.xrevrange(name, count=50):
            client.xdel(name, entry)
        kept = client.xrange(name)
        client.delete(name)
        for entry, fields in kept:
            client.xadd(name, fields, entry)
    own.kill()
    writer.write(output(100))
    assert until(lambda: writer.trouble != "")
    own.restart()
    writer.write(output(101))
    assert writer.close(10)
    assert batches(own.address, info) == list(range(102))
    assert (writer.received, writer.written, writer.dropped, writer.refused) == (102, 102, 0, 0)


def test_monitor_away_too_long_drops_the_oldest_and_counts_them(own: MonitorServer, info: PipelineInfo) -> None:
    writer = Writer(own.address, info, max_records=1_000)
    writer.write(output(0))
    assert until(lambda: writer.written == 1)
    own.kill()
    for batch in range(1, 5_001):
        writer.write(output(batch))
    assert writer.waiting <= 1_500  # what is in flight comes on top
    own.restart()
    assert writer.close(10)
    found = batches(own.address, info)
    assert found[-1] == 5_000
    assert found[-900:] == list(range(4_101, 5_001))
    assert len(found) + writer.dropped == 5_001
    state = MonitorReader(own.address).state(info.pipeline)
    assert state is not None
    assert state.health is not None
    assert state.health.dropped == writer.dropped > 3_000


def test_the_queue_is_bounded_in_bytes_too(info: PipelineInfo, tmp_path: Path) -> None:
    writer = Writer(Address(directory=tmp_path / "none"), info, max_bytes=100_000)
    for batch in range(100):
        writer.write(columns(batch, BEGIN + batch, 1_000))
    assert writer.dropped > 80
    assert not writer.close(0.1)
    assert "no monitor has been started" in writer.trouble
    assert writer.dropped >= 100


@pytest.mark.slow
def test_telling_never_waits_for_a_monitor_that_hangs(info: PipelineInfo) -> None:
    with socket.socket() as deaf:  # takes connections and says nothing
        deaf.bind(("127.0.0.1", 0))
        deaf.listen()
        writer = Writer(Address(f"redis://:x@127.0.0.1:{deaf.getsockname()[1]}"), info)
        began = time.monotonic()
        for batch in range(1_000):
            writer.write(output(batch))
        assert time.monotonic() - began < 0.5
        began = time.monotonic()
        assert not writer.close(0.2)
        assert time.monotonic() - began < 6
        assert writer.dropped == 1_000


def test_a_restarted_teller_goes_on_after_the_history(address: Address, info: PipelineInfo) -> None:
    for first in (0, 100, 200):
        writer = Writer(address, info)
        for batch in range(first, first + 100):
            writer.write(output(batch))
            writer.write(Paused(BEGIN + batch, batch))
        assert writer.close(5)
    assert batches(address, info) == list(range(300))
    ids = [event.id for event in MonitorReader(address).events(info.pipeline)]
    assert len(set(ids)) == 300


def test_a_clock_that_went_back_loses_nothing(address: Address, info: PipelineInfo) -> None:
    for shift in (0.0, -3_600.0):
        writer = Writer(address, info)
        for batch in range(50):
            writer.write(Paused(BEGIN + shift + batch, batch))
        assert writer.close(5)
    assert len(MonitorReader(address).events(info.pipeline)) == 100


def test_two_tellers_of_one_run_lose_nothing(address: Address, info: PipelineInfo) -> None:
    writers = [Writer(address, info) for _ in range(2)]
    for batch in range(200):
        for writer in writers:
            writer.write(Paused(BEGIN + batch, batch))
        if batch % 20 == 0:
            time.sleep(0.005)
    assert all(writer.close(10) for writer in writers)
    assert len(MonitorReader(address).events(info.pipeline)) == 400


def test_a_flood_is_told_fast_and_bounded(address: Address, info: PipelineInfo) -> None:
    writer = Writer(address, info, max_records=5_000)
    began = time.thread_time()
    for batch in range(30_000):
        writer.write(Timing(batch, BEGIN + batch, 0.5))
    assert time.thread_time() - began < 3
    assert writer.waiting <= 5_500
    assert writer.close(20)
    assert writer.written + writer.dropped == 30_000


def test_current_values_come_back_with_a_monitor_that_forgot_everything(own: MonitorServer, info: PipelineInfo) -> None:
    writer = Writer(own.address, info)
    writer.write(RunStatus(BEGIN, "running"))
    writer.write(output(1))
    assert until(lambda: writer.written == 1)
    own.kill()
    folder = own.address.directory
    (folder / "monitor.aof").unlink(missing_ok=True)  # Redis 6.2 has a file, later ones and Valkey a folder of files
    shutil.rmtree(folder / "appendonlydir", ignore_errors=True)
    own.restart()
    writer.write(output(2))
    assert until(lambda: writer.written == 2)
    assert writer.close(5)
    state = MonitorReader(own.address).state(info.pipeline)
    assert state is not None
    assert state.life == RunStatus(BEGIN, "running")
    assert state.info == info


def test_a_monitor_that_takes_no_writes_for_a_while_is_caught_up_with(own: MonitorServer, info: PipelineInfo) -> None:
    writer, connection = Writer(own.address, info), as_tester(own.address)
    writer.write(output(0))
    assert until(lambda: writer.written == 1)
    run(connection, ("REPLICAOF", "127.0.0.1", "1"))
    for batch in range(1, 100):
        writer.write(output(batch))
    assert until(lambda: "read only" in writer.trouble.lower())
    run(connection, ("REPLICAOF", "NO", "ONE"))
    assert writer.close(10)
    assert batches(own.address, info) == list(range(100))
    assert writer.refused == writer.dropped == 0


def test_a_full_monitor_refuses_and_the_refused_are_counted(own: MonitorServer, info: PipelineInfo) -> None:
    connection = as_tester(own.address)
    run(connection, ("CONFIG", "SET", "maxmemory", "1"))
    writer = Writer(own.address, info)
    for batch in range(10):
        writer.write(output(batch))
    assert until(lambda: writer.refused == 10 or "does not accept writes" in writer.trouble)
    run(connection, ("CONFIG", "SET", "maxmemory", "0"))
    writer.write(output(10))
    assert writer.close(10)
    assert batches(own.address, info)[-1] == 10


def test_an_unknown_schema_is_not_written_to(own: MonitorServer, info: PipelineInfo) -> None:
    connection = as_tester(own.address)
    run(connection, ("SET", keys.SCHEMA_KEY, "99"))
    writer = Writer(own.address, info)
    writer.write(output(1))
    assert until(lambda: "schema version '99'" in writer.trouble)
    assert not writer.close(0.2)
    assert run(connection, ("KEYS", "ppa:monitor:*")) == [[keys.SCHEMA_KEY.encode()]]


def test_what_is_no_record_is_refused_and_counted(address: Address, info: PipelineInfo) -> None:
    writer = Writer(address, info)
    for wrong in (None, "text", object(), Output(1, float("nan"), 1, "accurate", 1.0)):
        writer.write(wrong)
    assert writer.close(5)
    assert writer.refused == 4


def test_a_key_of_the_wrong_type_costs_its_records_and_no_more(
    address: Address, connection: Connection, info: PipelineInfo
) -> None:
    run(connection, ("SET", keys.series(info.pipeline, keys.OUTPUTS), "garbage"))
    writer = Writer(address, info)
    for batch in range(10):
        writer.write(output(batch))
        writer.write(Paused(BEGIN, batch))
    assert writer.close(5)
    assert (writer.refused, writer.written) == (10, 10)
    assert "WRONGTYPE" in writer.complaint
