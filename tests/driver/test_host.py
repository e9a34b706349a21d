"""The host with real Spark and real nodes, where nobody can recover from what goes wrong: a clear error, and nothing lost."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from ppa_core.driver.controls import Controls
from ppa_core.driver.host import Host
from ppa_core.driver.records import PublishedOutput, Settings
from ppa_core.driver.session import open_session
from ppa_core.engine.intent import PlanRequest
from ppa_core.engine.run_events import RunEvent
from ppa_core.errors import BadInput, Unavailable
from ppa_core.nodes.embedded import EmbeddedNodes, launch
from ppa_core.pipeline.definition import Context, Pipeline, Result, StepFailed
from ppa_core.placement.nodes import Node

pytestmark = pytest.mark.drill

SCHEMA = pa.schema({"n": pa.int64()})


@dataclass(frozen=True)
class Numbers:
    """Ten numbers a batch; batch `bad` cannot be read."""

    bad: int = -1

    @property
    def schema(self) -> pa.Schema:
        return SCHEMA

    def rate(self, task: int) -> float:
        return 10.0

    def read(self, task: int, batch: int) -> pa.Table:
        if batch == self.bad:
            raise ValueError("line 17 is not a number: 'abc'")
        return pa.table({"n": np.arange(10) + 10 * batch}, schema=SCHEMA)


@dataclass(frozen=True)
class Keep:
    """Keeps everything it gets; task 1 fails in batch `fails`; every batch adds `padding` bytes."""

    fails: int = -1
    padding: int = 0

    def __call__(self, context: Context, state: Mapping[str, pa.Table], inputs: Sequence[pa.Table], /) -> Result:
        if context.batch == self.fails and context.task == 1:
            raise ZeroDivisionError("nothing to divide by")
        noise = np.random.default_rng((context.batch, context.task)).bytes(self.padding)
        return Result(inputs[0], {str(context.batch): pa.table({"x": [noise]})})


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    session = open_session(None, 2)
    yield session
    session.stop()


@pytest.fixture
def nodes() -> Iterator[EmbeddedNodes]:
    with launch(primaries=2, standbys=2, racks=2, memory_mb=32) as running:
        yield running


def run(
    spark: SparkSession, pipeline: Pipeline, nodes: Sequence[Node], folder: Path, name: str, batches: int = 6
) -> list[PublishedOutput]:
    seen: list[PublishedOutput] = []

    def watch(one: PublishedOutput | RunEvent) -> None:
        if isinstance(one, PublishedOutput):
            seen.append(one)

    settings = Settings(batches=batches, interval=0.0, checkpoint_every=2)
    try:
        Host(spark, pipeline, tuple(nodes), frozenset(), settings, watch, name, folder / "offsets").run()
    finally:
        run.seen = seen  # type: ignore[attr-defined]
    return seen


def pipeline(source: Numbers, step: Keep) -> Pipeline:
    return Pipeline("host").source("in", 2, source).operator("keep", 2, {"in": "one-to-one"}, step)


def test_a_step_that_raises_is_named_with_task_and_batch_and_the_run_goes_on_when_it_is_mended(
    spark: SparkSession, nodes: EmbeddedNodes, tmp_path: Path
) -> None:
    with pytest.raises(StepFailed, match=r"operator 'keep', task keep\.2, batch 3: ZeroDivisionError: nothing to divide by"):
        run(spark, pipeline(Numbers(), Keep(fails=3)), nodes.cluster.nodes, tmp_path, "mended")
    assert [record.batch for record in run.seen] == [0, 1, 2]  # type: ignore[attr-defined]
    rest = run(spark, pipeline(Numbers(), Keep()), nodes.cluster.nodes, tmp_path, "mended")
    assert [record.batch for record in rest] == [3, 4, 5]
    assert all(record.status == "accurate" for record in rest)


def test_a_record_that_cannot_be_read_is_named_with_source_and_batch(
    spark: SparkSession, nodes: EmbeddedNodes, tmp_path: Path
) -> None:
    with pytest.raises(StepFailed, match=r"operator 'in', task in\.\d, batch 2: ValueError: line 17 is not a number: 'abc'"):
        run(spark, pipeline(Numbers(bad=2), Keep()), nodes.cluster.nodes, tmp_path, "malformed")
    assert [record.batch for record in run.seen] == [0, 1]  # type: ignore[attr-defined]


def test_a_node_that_is_full_is_named_with_the_remedy(spark: SparkSession, nodes: EmbeddedNodes, tmp_path: Path) -> None:
    with pytest.raises(StepFailed, match=r"operator 'keep', task keep\.\d, batch \d: node \w+ is full: .*more memory"):
        run(spark, pipeline(Numbers(), Keep(padding=6_000_000)), nodes.cluster.nodes, tmp_path, "full", batches=12)


def test_a_wrong_password_is_said_before_anything_runs(spark: SparkSession, nodes: EmbeddedNodes, tmp_path: Path) -> None:
    wrong = [replace(node, url=node.url.replace(str(node.password), "wrong")) for node in nodes.cluster.nodes]
    with pytest.raises(BadInput, match="refuses the user or password") as caught:
        run(spark, pipeline(Numbers(), Keep()), wrong, tmp_path, "password")
    assert "wrong" not in str(caught.value)


def test_an_unreachable_master_is_said_at_once() -> None:
    with pytest.raises(Unavailable, match=r"no Spark master answers .*127\.0\.0\.1:1"):
        open_session("spark://127.0.0.1:1", 2)
    with pytest.raises(BadInput, match="not spark://HOST:PORT"):
        open_session("spark://nowhere", 2)


def test_a_run_that_is_stopped_while_it_is_paused_is_resumed_with_the_very_next_batch(
    spark: SparkSession, nodes: EmbeddedNodes, tmp_path: Path
) -> None:
    """Spark has handed out the batch that waits; it must not count as done."""
    seen: list[int] = []

    def host() -> Host:
        def watch(one: PublishedOutput | RunEvent) -> None:
            if isinstance(one, PublishedOutput):
                seen.append(one.batch)

        settings = Settings(batches=8, interval=0.5, deadline=60.0)
        cluster = tuple(nodes.cluster.nodes)
        made = pipeline(Numbers(), Keep())
        return Host(spark, made, cluster, frozenset(), settings, watch, "paused", tmp_path / "offsets")

    first = host()
    controls = Controls(first, PlanRequest(0))
    running = threading.Thread(target=first.run)
    running.start()
    end = time.monotonic() + 120
    while len(seen) < 2 and time.monotonic() < end:
        time.sleep(0.05)
    controls.pause()
    time.sleep(1.5)  # the next batch is handed out, and waits
    first.stop()
    running.join(60)
    assert not running.is_alive()
    published = len(seen)
    assert seen == list(range(published))
    assert published < 8
    again = host()
    running = threading.Thread(target=again.run)
    running.start()
    assert again.started.wait(60)
    assert again.machine.intent.paused
    Controls(again, PlanRequest(0)).resume()
    running.join(120)
    assert seen == list(range(8))
