"""The monitor beside a pipeline: what it costs, what survives the driver, and Spark's progress."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from monitoring.connection import Address
from monitoring.monitor import Monitor
from monitoring.reader import MonitorReader
from monitoring.recorded import RecordedRun, Scenario, accuracy, table_of
from monitoring.records import PipelineInfo
from monitoring.task_records import inner_tasks
from ppa_core.engine.event_codec import kind_of
from ppa_core.engine.event_fields import TaskFigures
from ppa_core.engine.run_events import BatchFinished, DriverRestarted
from ppa_core.topology import Build, to_dict

TASKS = 1_000
ROOT = Path(__file__).parents[2]
DRIVER = """
import sys, time
from pathlib import Path
from monitoring.connection import Address
from monitoring.monitor import Monitor
from monitoring.recorded import RecordedRun, Scenario, accuracy
from tests.monitoring.test_monitor import play
script = Scenario(run="killed", batches=90)
monitor = Monitor(Address(directory=Path(sys.argv[1])), RecordedRun(script).info, accuracy)
play(monitor, script, until=67.1)
while monitor._queue or monitor.writer.waiting or monitor.writer._changed:
    time.sleep(0.01)
time.sleep(0.2)
print("told", flush=True)
time.sleep(60)
"""


def play(monitor: Monitor, script: Scenario, since: float = 0.0, until: float = 1e9) -> None:
    """Report what happened from `since` to `until` seconds after the beginning."""
    for event in RecordedRun(script).events():
        if since <= event.at - script.begin < until or event.batch == -1:
            monitor.watch(event, table_of(event))


def test_a_run_that_is_watched_is_there(address: Address, reader: MonitorReader) -> None:
    script = Scenario(run="watched", batches=100)
    with Monitor(address, RecordedRun(script).info, accuracy) as monitor:
        play(monitor, script)
    state = reader.state(RecordedRun(script).info.pipeline)
    assert state is not None
    assert state.totals.corrected_batches == 12
    assert monitor.missed == 0
    assert monitor.writer.dropped == monitor.writer.refused == 0


@pytest.mark.slow
def test_a_driver_killed_in_an_incident_leaves_one_whole_incident(address: Address, reader: MonitorReader) -> None:
    script = Scenario(run="killed", batches=90)
    info = RecordedRun(script).info
    driver = subprocess.Popen(
        [sys.executable, "-c", DRIVER, str(address.directory)], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    assert driver.stdout
    assert driver.stdout.readline() == "told\n"
    driver.kill()
    driver.wait()
    driver.stdout.close()
    second = Monitor(address, info, accuracy)
    second.watch(DriverRestarted(script.begin + 67.2, 66, (), (), ()))
    play(second, script, since=67.3)
    assert second.close()
    (incident,) = reader.incidents(info.pipeline)
    assert incident.until is not None
    assert incident.tentative == incident.corrected == ((61, 72),)
    report = reader.incident(info.pipeline, incident.id)
    assert report is not None
    assert [kind_of(stored.event) for stored in report.events].count("resumed") == 1
    assert [kind_of(stored.event) for stored in reader.events(info.pipeline)].count("started") == 1
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
    tasks = inner_tasks(info.load_topology())
    assert len(tasks) == TASKS
    monitor = Monitor(address, info)
    batches = 20
    notes = []
    for batch in range(batches):
        columns = [(1000 + i % 97, 500 + i % 89, 0.001 * (1 + i % 7), 240_000 + 31 * i, 900) for i in range(TASKS)]
        rows_in, rows_out, seconds, state, checkpoint = zip(*columns, strict=True)
        stats = TaskFigures(tasks, rows_in, rows_out, seconds, state, checkpoint)
        at = 1_763_251_200.0 + batch
        notes.append(BatchFinished(at, batch, 0.9, 1, 0, 0, checkpointed=tasks[batch::15], synced=tasks[:100], stats=stats))
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
        monitor.watch(BatchFinished(1.0 + batch, batch, 0.5, 1, 0, 0))
    assert time.monotonic() - began < 1.5
    assert not monitor.close(0.2)
    assert monitor.writer.dropped >= 100


def test_what_makes_no_sense_is_missed_and_the_rest_told(address: Address, info: PipelineInfo, reader: MonitorReader) -> None:
    monitor = Monitor(address, info)
    monitor.watch(BatchFinished(1.0, 1, "long", 1, 0, 0))  # type: ignore[arg-type]
    monitor.watch(None)  # type: ignore[arg-type]
    monitor.watch(BatchFinished(2.0, 2, 0.5, 1, 0, 0))
    assert monitor.close()
    assert monitor.missed == 2
    assert monitor.writer.refused == 0
