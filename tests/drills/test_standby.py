"""A standby driver: it takes over from a driver that is killed or hangs, and a driver that wakes changes nothing."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest

from ppa_core.drills.baseline import without_spark
from ppa_core.drills.drill import Setup, drill
from ppa_core.drills.failures import PlannedFailure
from ppa_core.driver.config import Config
from ppa_core.driver.records import Settings
from ppa_core.engine.run_events import BatchFinished, DriverTookOver, OutputPublished, RunEvent, StandbyReady
from ppa_core.errors import PpaError
from ppa_core.nodes.embedded import EmbeddedNodes, launch, launch_witness
from ppa_core.pipeline.sinks import read_sink
from ppa_core.pipeline.tables import digest, encode
from ppa_core.process.driver import Driver

OPTIONS = {"rate": 100, "window": 4.0, "batch_seconds": 1.0}


@pytest.mark.drill
@pytest.mark.parametrize("how", ["kill", "hang"])
def test_the_standby_driver_takes_over_and_the_output_is_that_of_a_run_without_failure(how: str) -> None:
    settings = Settings(batches=40, checkpoint_every=4, interval=0.5)
    wanted = Setup("tree", OPTIONS, 8, (PlannedFailure("driver", 4, how),), settings, standby_driver=True)
    events: list[Any] = []
    report = drill(wanted, events.append, without_spark(wanted))
    assert report["failed"] == ["driver"]
    assert report["different_batches"] == []
    assert report["batches"]["tentative"] == report["batches"]["corrected"]
    assert [event.epoch for event in events if isinstance(event, DriverTookOver)] == [2]


@pytest.fixture
def nodes() -> Iterator[EmbeddedNodes]:
    with launch(2, 2, 2, 256) as running:
        yield running


class Watched:
    """A driver that nobody kills when another one takes over, and its events."""

    def __init__(self, config: Config) -> None:
        self.driver, self.events = Driver(config, float("inf")), SimpleQueue[RunEvent | PpaError | None]()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        try:
            for event in self.driver.events():
                self.events.put(event)
            self.events.put(None)
        except PpaError as error:
            self.events.put(error)

    def until(self, kind: type[RunEvent], count: int = 1) -> None:
        while count:
            event = self.events.get(timeout=180)
            assert isinstance(event, RunEvent), event
            count -= isinstance(event, kind)


@pytest.mark.drill
def test_a_driver_that_hangs_in_any_stage_of_a_batch_and_wakes_has_no_effect(
    nodes: EmbeddedNodes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each hangs a little later in a batch than the one before: after its output, in its jobs, between two batches."""
    monkeypatch.setattr("ppa_core.process.driver.HUNG_SECONDS", float("inf"))
    settings = Settings(checkpoint_every=4, interval=1.0, deadline=60.0)
    sinks = (f"jsonl:{tmp_path / 'lines'}", f"parquet:{tmp_path / 'parquet'}")
    drivers: list[Watched] = []
    with launch_witness(nodes.cluster.nodes) as witness:
        plan = ("O1.1", "O2.1", "O3.1", "O4.1")
        config = Config(
            "tree", OPTIONS, nodes.cluster.nodes, plan, settings, "twice", tmp_path, sinks=sinks, strict_lease=True,
            witness=witness,
        )  # fmt: skip
        try:
            drivers.append(Watched(config))
            drivers[0].until(BatchFinished, 2)
            for moment in (0.0, 0.2, 0.5, 0.8):
                drivers.append(Watched(replace(config, standby=True)))
                drivers[-1].until(StandbyReady)
                old, new = drivers[-2:]
                while not old.events.empty():
                    assert isinstance(old.events.get(), RunEvent)
                old.until(OutputPublished)
                time.sleep(moment)
                old.driver.hang()
                new.until(DriverTookOver)
                new.until(BatchFinished, 2)
                old.driver.resume()
                old.driver.process.wait(60)
                assert old.driver.process.returncode not in (0, -signal.SIGKILL), "it ends by itself"
            drivers[-1].until(BatchFinished, 3)
        finally:
            for one in drivers:
                one.driver.close()
    for sink in sinks:
        records = list(read_sink(sink))
        setup = Setup("tree", OPTIONS, 4, (), replace(settings, batches=len(records)))
        expected = {batch: found for batch, (_, found) in without_spark(setup).accurate().items()}
        assert [record.batch for record in records] == list(range(len(records))), "no batch is missing"
        assert all(a.epoch <= b.epoch for a, b in pairwise(records)), "what a woken driver wrote does not count"
        assert records[-1].epoch == 5
        for record in records:
            if record.status != "tentative":
                assert digest(encode(record.table)) == expected[record.batch]
