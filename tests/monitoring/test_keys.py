"""Keys: every one bounded, a week within its bound, and no name reaching into another's keys."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from typing import Any

import pytest

from monitoring import keys
from monitoring.codec import dumps, loads
from monitoring.connection import Address, Connection
from monitoring.keys import Series
from monitoring.reader import MonitorReader
from monitoring.records import Correction, Minute, Output, PipelineInfo, PlanChange, Progress, RunKey, Timing
from monitoring.server import start
from monitoring.task_records import StateChange, TaskColumns
from monitoring.writer import Writer
from ppa_core.engine.run_events import FailedOver
from ppa_core.engine.standing import Standing
from ppa_core.nodes.servers import PROGRAM_VARIABLE
from tests.monitoring.tester import as_tester, run
from tests.security.servers import PROGRAMS

WEEK_LATER = 604_800
TASKS = 1_000
WEEK_BOUND = 185_000_000
"""Bytes that the monitor may need for a week at one batch per second, as docs/monitoring.md says."""
A_WEEK: dict[str, tuple[int, int]] = {
    "outputs": (keys.WEEK, 72),
    "corrections": (20_000, 100),
    "timings": (keys.WEEK, 82),
    "progress": (keys.WEEK, 106),
    "minutes": (keys.WEEK // 60, 120),
    "tasks": (keys.WEEK, 21_500),
    "task-minutes": (keys.WEEK // 60, 21_500),
    "states": (2_000, 500),
    "plans": (200, 500),
    "run-events": (10_000, 300),
}
"""For each series: how many records a week at one batch per second gives, and the most bytes that one needs on average.

Sizes are for 15 tasks on 8 nodes, those of per-task figures for 1,000 tasks, and hold for servers that round up what they
allocate (jemalloc, as in Debian's Redis) and for those that do not.
"""


def columns(batch: int, at: float, tasks: int = TASKS, seed: int = 0) -> TaskColumns:
    """Figures as they are: near each other, and no two the same."""
    r = random.Random(batch + seed)

    def near(value: float, digits: int) -> tuple[float, ...]:
        return tuple(round(value * (1 + 0.1 * r.random()), digits) for _ in range(tasks))

    def whole(value: float) -> tuple[int, ...]:
        return tuple(map(int, near(value, 0)))

    states, rates = tuple(r.choice((0, 0, 1)) for _ in range(tasks)), (near(1000.0, 2), near(500.0, 2), near(0.01, 5))
    checkpoints, replicas = (tuple(batch - r.randrange(k) for _ in range(tasks)) for k in (15, 2))
    ones = (1,) * tasks
    return TaskColumns(batch, at, states, *rates, whole(240_000), checkpoints, whole(20_000), replicas, ones)


def sample(series: Series, n: int) -> Any:
    r, batch = random.Random(n), WEEK_LATER + n
    at = round(1_763_251_200 + n + 0.1 * r.random(), 3)
    tasks = tuple(f"O{i}.{j}" for i in (1, 2) for j in (1, 2, 3))
    phases = tuple(r.randrange(1_000) for _ in range(7))
    made: dict[str, Any] = {
        "outputs": Output(batch, at, 1, "accurate", 1.0, r.randrange(10_000)),
        "corrections": Correction(batch, at, 2, r.randrange(10_000), round(r.random(), 6), "19a89f70f74"),
        "timings": Timing(batch, at, round(r.random(), 4), 1, r.randrange(10**6), r.randrange(10**6), r.randrange(10**9)),
        "progress": Progress(batch, at, r.randrange(10**6), round(r.random() * 1e5, 1), round(r.random() * 1e5, 1), phases),
        "minutes": Minute(at, 60, 1.0, round(r.random(), 6), round(r.random(), 4), round(r.random(), 4), r.randrange(10**8)),
        "states": StateChange(at, batch, "19a89f70f74", dict.fromkeys((f"O1.{i}" for i in range(15)), "recovering")),
        "plans": PlanChange(at, batch, tasks, 8, "structure_aware", "of", r.random(), "rates changed", tasks[:3], tasks[3:]),
        "run-events": FailedOver(at, batch, "n1", tasks, tasks[:3], r.random(), cause="19a89f70f74"),
    }
    return made[series.name]


@pytest.fixture(scope="module", params=PROGRAMS)
def each_server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Address]:
    """Monitors on each server of this machine: they differ in what they allocate."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(PROGRAM_VARIABLE, request.param)
        with start(tmp_path_factory.mktemp("monitor") / "m") as started:
            yield started.address


@pytest.mark.parametrize("series", keys.SERIES, ids=lambda series: series.name)
def test_a_record_takes_no_more_than_its_series_says(series: Series, each_server: Address, info: PipelineInfo) -> None:
    writer, connection = Writer(each_server, info), as_tester(each_server)
    for n in range(40 if series.record is TaskColumns else 1_000):
        writer.write(columns(WEEK_LATER + n, 1_763_251_200.0 + 60 * n) if series.record is TaskColumns else sample(series, n))
    assert writer.close(20)
    name = keys.series(info.pipeline, series)
    count, used = run(connection, ("XLEN", name), ("MEMORY", "USAGE", name, "SAMPLES", 0))
    connection.close()
    assert count >= 40
    assert used / count <= A_WEEK[series.name][1]


def test_a_week_at_one_batch_a_second_fits() -> None:
    used = sum(min(series.cap, A_WEEK[series.name][0]) * A_WEEK[series.name][1] for series in keys.SERIES)
    assert used + keys.INCIDENTS * 1_000 + keys.AUDIT * 400 + 500_000 <= WEEK_BOUND
    assert all(series.cap > 0 for series in keys.SERIES)


def test_the_standing_of_a_thousand_tasks_takes_little() -> None:
    """It is a current value, written in every batch, and no part of the history."""
    r, nodes = random.Random(7), tuple(f"n{i}" for i in range(20))
    homes = tuple(r.randrange(10) for _ in range(TASKS))
    others = [10 + r.randrange(10) for _ in range(TASKS)]
    copies = tuple((home, 604_800, other, 604_800 - r.randrange(15)) for home, other in zip(homes, others, strict=True))
    tasks = tuple(f"O{i % 9}.{i}" for i in range(TASKS))
    standing = Standing(604_800, nodes, tasks, homes, tuple(zip(homes, others, strict=True)), copies, (30,) * TASKS)
    content = dumps(standing)
    assert len(content) < 20_000
    assert loads(Standing, content) == standing


def test_streams_are_trimmed(address: Address, connection: Connection, info: PipelineInfo) -> None:
    writer = Writer(address, info)
    for batch in range(keys.PLANS.cap + 1_000):
        writer.write(PlanChange(1000.0 + batch, batch, (), 0, "greedy"))
    assert writer.close(20)
    (count,) = run(connection, ("XLEN", keys.series(info.pipeline, keys.PLANS)))
    assert keys.PLANS.cap <= count < keys.PLANS.cap + 200


def test_every_key_of_a_run_expires(address: Address, connection: Connection, info: PipelineInfo) -> None:
    writer = Writer(address, info)
    for series in (keys.OUTPUTS, keys.EVENTS, keys.TIMINGS):
        writer.write(sample(series, 1))
        while writer.waiting:  # one at a time, so that some come to be after the first round trip
            time.sleep(0.01)
    assert writer.close(20)
    (found,) = run(connection, ("KEYS", keys.key(info.pipeline, "*")))
    assert len(found) >= 5
    assert all(0 < left <= keys.EXPIRE for left in run(connection, *(("TTL", name) for name in found)))


def test_only_so_many_runs_are_kept(
    address: Address, connection: Connection, info: PipelineInfo, reader: MonitorReader
) -> None:
    for number in range(keys.RUNS + 3):
        writer = Writer(address, PipelineInfo("many", str(number), "tree", info.topology, info.nodes, 1.0, 1.0))
        writer.write(sample(keys.OUTPUTS, number))
        writer.close(5)
    known = reader.pipelines()
    assert len(known) == keys.RUNS
    assert RunKey("many", "0") not in known
    assert run(connection, ("KEYS", keys.key(RunKey("many", "0"), "*"))) == [[]]


def test_a_set_of_runs_that_someone_filled_keeps_no_writer_out(
    address: Address, connection: Connection, info: PipelineInfo, reader: MonitorReader
) -> None:
    junk = [part for number in range(20_000) for part in (number, f"junk:{number}")]
    run(connection, ("ZADD", keys.PIPELINES_KEY, *junk))
    writer = Writer(address, info)
    writer.write(sample(keys.OUTPUTS, 1))
    assert writer.close(20)
    assert reader.pipelines()[0] == info.pipeline
    run(connection, ("ZREMRANGEBYSCORE", keys.PIPELINES_KEY, 0, 20_000))


@pytest.mark.parametrize("name", ["a:b", "a", "", "*", "ä/ö%41", "a\nb", "<script>", "ä" * 2_000])
def test_names_never_meet_in_a_key(name: str) -> None:
    pipeline = RunKey(name, "b:c")
    assert keys.pipeline_of(keys.member(pipeline).encode()) == pipeline
    assert keys.member(pipeline) != keys.member(RunKey(f"{name}:b", "c"))
    assert keys.member(pipeline).count(":") == 1


@pytest.mark.parametrize("text", [b"", b"a", b"a:b:c", b"\xff:a", b"%zz:a", b"a b:c", b"x" * 60_000])
def test_what_is_no_member_is_none(text: bytes) -> None:
    assert keys.pipeline_of(text) is None
