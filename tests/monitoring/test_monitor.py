"""The monitor beside a pipeline: what it costs, what survives the driver, and Spark's progress."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from monitoring.connection import Address
from monitoring.inputs import Noted, Published
from monitoring.monitor import Monitor
from monitoring.reader import MonitorReader
from monitoring.recorded import Note, Play, Script, Stats, accuracy
from monitoring.records import PipelineInfo, Progress, inner_tasks
from ppa_core.topology import Build, to_dict

TASKS = 1_000
ROOT = Path(__file__).parents[2]
DRIVER = """
import sys, time
from pathlib import Path
from monitoring.connection import Address
from monitoring.monitor import Monitor
from monitoring.recorded import Play, Script, accuracy
from tests.monitoring.test_monitor import play
script = Script(run="killed", batches=90)
monitor = Monitor(Address(directory=Path(sys.argv[1])), Play(script).info, accuracy)
play(monitor, script, until=67.1)
while monitor._seen or monitor.writer.waiting or monitor.writer._changed:
    time.sleep(0.01)
time.sleep(0.2)
print("told", flush=True)
time.sleep(60)
"""


def play(monitor: Monitor, script: Script, since: float = 0.0, until: float = 1e9) -> None:
    """Tell what happened from `since` to `until` seconds after the beginning."""
    for seen in Play(script).told():
        if since <= seen.at - script.begin < until or seen.batch == -1:
            (monitor.progress if isinstance(seen, Progress) else monitor.watch)(seen)  # type: ignore[arg-type]


def test_a_run_that_is_watched_is_there(address: Address, reader: MonitorReader) -> None:
    script = Script(run="watched", batches=100)
    with Monitor(address, Play(script).info, accuracy) as monitor:
        play(monitor, script)
    state = reader.state(Play(script).info.pipeline)
    assert state is not None
    assert state.totals.corrected_batches == 12
    assert monitor.missed == 0
    assert monitor.writer.dropped == monitor.writer.refused == 0


@pytest.mark.slow
def test_a_driver_killed_in_an_incident_leaves_one_whole_incident(address: Address, reader: MonitorReader) -> None:
    script = Script(run="killed", batches=90)
    info = Play(script).info
    driver = subprocess.Popen(
        [sys.executable, "-c", DRIVER, str(address.directory)], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    assert driver.stdout
    assert driver.stdout.readline() == "told\n"
    driver.kill()
    driver.wait()
    driver.stdout.close()
    second = Monitor(address, info, accuracy)
    second.watch(Note("resumed", script.begin + 67.2, 66, {}))
    play(second, script, since=67.3)
    assert second.close()
    (incident,) = reader.incidents(info.pipeline)
    assert incident.until is not None
    assert incident.tentative == incident.corrected == ((61, 72),)
    report = reader.incident(info.pipeline, incident.id)
    assert report is not None
    assert [event.kind for event in report.events].count("driver resumed") == 1
    assert [event.kind for event in reader.events(info.pipeline)].count("started") == 1
    assert [batch.batch for batch in reader.batches(info.pipeline)] == list(range(90))
    state = reader.state(info.pipeline)
    assert state is not None
    assert (state.totals.batches, state.totals.tentative_batches, state.totals.incidents) == (90, 12, 1)


def large() -> PipelineInfo:
    topology = (
        Build("large").source("S", 10, 1000.0, external=True).operator("A", TASKS // 2, {"S": "full"})
        .operator("B", TASKS // 2, {"A": "one-to-one"}).done()
    )  # fmt: skip
    return PipelineInfo("large", "1", "large", to_dict(topology), (), 0.0, 1.0)


def test_telling_of_a_thousand_tasks_costs_less_than_two_percent_of_a_batch(address: Address) -> None:
    info = large()
    tasks = inner_tasks(info.opened())
    assert len(tasks) == TASKS
    monitor = Monitor(address, info)
    batches = 20
    notes = []
    for batch in range(batches):
        stats = [
            Stats(task, batch, 1000 + i % 97, 500 + i % 89, 0.001 * (1 + i % 7), 240_000 + 31 * i, 900)
            for i, task in enumerate(tasks)
        ]
        figures: dict[str, object] = {"seconds": 0.9, "stats": stats, "checkpointed": tasks[batch::15], "synced": tasks[:100]}
        notes.append(Note("batch", 1_763_251_200.0 + batch, batch, figures))
    here, everywhere = time.thread_time(), time.process_time()
    for note in notes:
        monitor.watch(note)
    told = (time.thread_time() - here) / batches
    assert monitor.close(20)
    whole = (time.process_time() - everywhere) / batches
    assert told <= 0.001
    assert whole <= 0.02, "collecting, encoding and writing together, of one core"


def test_a_monitor_that_is_not_there_costs_nothing_and_is_counted(info: PipelineInfo) -> None:
    began = time.monotonic()
    monitor = Monitor(Address("redis://127.0.0.1:1"), info)
    for batch in range(100):
        monitor.watch(Note("batch", 1.0 + batch, batch, {"seconds": 0.5}))
    assert time.monotonic() - began < 1.5
    assert not monitor.close(0.2)
    assert monitor.writer.dropped >= 100


def test_what_makes_no_sense_is_missed_and_the_rest_told(address: Address, info: PipelineInfo, reader: MonitorReader) -> None:
    monitor = Monitor(address, info)
    monitor.watch(Note("tasks", 1.0, 1, {"stats": [object()]}))
    monitor.watch(None)  # type: ignore[arg-type]
    monitor.watch(Note("batch", 2.0, 2, {"seconds": 0.5}))
    assert monitor.close()
    assert monitor.missed == 2
    assert monitor.writer.refused == 0


def test_the_hosts_own_types_fit() -> None:
    host = pytest.importorskip("ppa_core.driver.host", reason="needs PySpark")
    record: Published = host.PublishedOutput(1, 1, "accurate", 1.0, (), None, 1.0)
    note: Noted = host.Note("batch", 1.0, 1)
    assert (record.status, note.figures) == ("accurate", {})
