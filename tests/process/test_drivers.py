"""Two drivers: which one's events count, and who takes over, when one of them dies, fails, or is stopped."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace

import psutil
import pytest

from ppa_core.engine.event_codec import kind_of
from ppa_core.engine.run_events import DriverDied, OutputPublished, RunEvent, StandbyReady
from ppa_core.errors import BadInput
from ppa_core.process.driver import DriverExited
from ppa_core.process.drivers import SETTLED, STANDBY_RESTARTS, Drivers
from tests.process.programs import Program

BATCH = "seconds=1.0, attempts=1, source_rows=0, rows_in=0"
STANDBY = """
if config["standby"]:
    tell("starting", what="not of interest")
    tell("standby ready")
    assert command()["do"] == "take over"
    tell("took over", epoch=2)
"""
"""What a standby driver does first."""


def drivers(program: Program, code: str) -> Drivers:
    return Drivers(replace(program.does(code), strict_lease=True))


def until(events: Iterator[RunEvent], kind: type[RunEvent]) -> list[str]:
    """The kinds of the events up to the first of this type."""
    found = []
    for event in events:
        found.append(kind_of(event))
        if isinstance(event, kind):
            return found
    raise AssertionError(found)


def test_the_standby_driver_takes_over_from_one_that_dies_and_the_run_is_one(program: Program) -> None:
    code = f"{STANDBY}    output(1)\n    tell('ended')\nelse:\n    output(0)\n    command()\n    sys.exit(1)"
    with drivers(program, code) as both:
        events = both.events()
        assert "standby ready" in until(events, StandbyReady)
        both.send("anything")
        assert [kind_of(event) for event in events][-4:] == ["driver died", "took over", "output", "ended"]


def test_a_driver_that_hangs_is_killed_when_the_standby_driver_takes_over(program: Program) -> None:
    impatient = STANDBY.replace('    assert command()["do"] == "take over"\n', "")
    code = f"{impatient}    output(1)\n    tell('ended')\nelse:\n    output(0)\n    time.sleep(600)"
    with drivers(program, code) as both:
        kinds = [kind_of(event) for event in both.events()]
    assert kinds[-3:] == ["took over", "output", "ended"]
    assert "driver died" not in kinds
    assert not any(map(psutil.pid_exists, program.pids))


def test_stop_during_a_takeover_stops_the_driver_that_takes_over(program: Program) -> None:
    more = "    assert command()['do'] == 'stop'\n    tell('ended')\nelse:\n    command()\n    sys.exit(1)"
    with drivers(program, STANDBY + more) as both:
        events = both.events()
        until(events, StandbyReady)
        both.send("anything")
        until(events, DriverDied)
        both.stop()
        assert [kind_of(event) for event in events] == ["took over", "ended"]


def test_nobody_takes_over_from_a_driver_that_was_told_to_stop(program: Program) -> None:
    with drivers(program, f"{STANDBY}    output(1)\nelse:\n    command()\n    sys.exit(1)") as both:
        events = both.events()
        until(events, StandbyReady)
        both.stop()
        with pytest.raises(DriverExited):
            list(events)


def test_an_error_of_the_user_ends_the_run_and_the_standby_driver(program: Program) -> None:
    failed = "tell('failed', reason='x: y', bad_input=['x', 'y'])"
    with drivers(program, f"{STANDBY}    output(1)\nelse:\n    command()\n    {failed}\n    time.sleep(600)") as both:
        events = both.events()
        until(events, StandbyReady)
        both.send("anything")
        with pytest.raises(BadInput, match="x: y"):
            list(events)
    assert not any(map(psutil.pid_exists, program.pids))


def test_a_standby_driver_that_dies_is_started_again_a_few_times_and_the_run_goes_on(program: Program) -> None:
    batches = (STANDBY_RESTARTS + 3) * SETTLED
    loop = f"for i in range({batches}): output(i); tell('batch', {BATCH}); time.sleep(0.3)"
    with drivers(program, f"if config['standby']: sys.exit(1)\n{loop}\ntell('ended')") as both:
        outputs = [event for event in both.events() if isinstance(event, OutputPublished)]
    assert len(outputs) == batches
    assert 2 <= len(program.pids) <= 2 + STANDBY_RESTARTS


def test_without_a_standby_driver_that_is_ready_a_death_is_reported(program: Program) -> None:
    with drivers(program, "if config['standby']: time.sleep(600)\noutput(0)\nsys.exit(1)") as both:
        began = time.monotonic()
        with pytest.raises(DriverExited):
            list(both.events())
        assert time.monotonic() - began < 60
