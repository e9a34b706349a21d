"""A run under supervision: which drivers are started again, how often, and how a run is stopped."""

from __future__ import annotations

import json
import os
import signal
import threading
from typing import Any

import pytest

from ppa_core.engine.event_codec import kind_of
from ppa_core.engine.run_events import DriverDied, Failed, OutputPublished, RunEvent, Starting
from ppa_core.errors import BadInput, PpaError, Unavailable
from ppa_core.process.driver import DriverExited
from ppa_core.process.run import RESTARTS, SupervisedRun
from tests.process.programs import Program


class Told(list[RunEvent]):
    """What a run told."""

    @property
    def kinds(self) -> list[str]:
        return [kind_of(event) for event in self]

    @property
    def reason(self) -> str:
        """Why the run failed."""
        assert isinstance(self[-1], Failed)
        return self[-1].reason

    @property
    def said(self) -> Any:
        """What the program said with `say`."""
        return next(json.loads(event.what) for event in self if isinstance(event, Starting))


def test_a_driver_that_dies_before_it_publishes_is_started_again_a_few_times(program: Program) -> None:
    told = Told()
    with pytest.raises(DriverExited, match="broken from the beginning"):
        SupervisedRun(program.does("sys.exit('broken from the beginning')"), told.append).run()
    assert len(program.pids) == 1 + RESTARTS
    assert told.kinds == ["driver died"] * RESTARTS + ["failed"]
    assert "broken from the beginning" in told.reason


def test_a_driver_that_published_is_started_again_however_often_it_dies(program: Program) -> None:
    starts = 2 * RESTARTS + 2
    told = Told()
    config = program.does(f"output(start)\nif start == {starts}: tell('ended')\nelse: os.kill(os.getpid(), 9)")
    SupervisedRun(config, told.append).run()
    assert told.kinds == ["output", "driver died"] * (starts - 1) + ["output", "ended"]


def test_after_it_published_a_driver_has_as_many_restarts_as_a_new_one(program: Program) -> None:
    told = Told()
    with pytest.raises(DriverExited):
        SupervisedRun(program.does("if start == RESTARTS: output(0)".replace("RESTARTS", str(RESTARTS))), told.append).run()
    assert len(program.pids) == RESTARTS + RESTARTS
    assert told.kinds.count("driver died") == len(program.pids) - 1
    assert told.kinds[-1] == "failed"


@pytest.mark.parametrize(
    ("line", "error", "text"),
    [
        ("tell('failed', reason='step 3 raised')", PpaError, "step 3 raised"),
        (
            "tell('failed', reason='x', bad_input=['node n1', 'refuses the password'])",
            BadInput,
            "node n1: refuses the password",
        ),
        ("tell('unavailable', reason='no node answers')", Unavailable, "no node answers"),
    ],
)
def test_a_failure_with_a_reason_ends_the_run_and_starts_nothing_again(
    line: str, error: type[PpaError], text: str, program: Program
) -> None:
    told = Told()
    with pytest.raises(error, match=text) as raised:
        SupervisedRun(program.does(f"output(0)\n{line}\nsys.exit(1)"), told.append).run()
    assert type(raised.value) is error
    assert told.kinds == ["output", "failed"]
    assert told.reason == text
    assert len(program.pids) == 1


def test_a_run_that_is_stopped_before_it_runs_tells_nothing(program: Program) -> None:
    told = Told()
    supervised = SupervisedRun(program.does("time.sleep(600)"), told.append)
    supervised.stop()
    supervised.run()
    assert told == []


def test_stop_is_a_command_and_the_run_ends_when_the_driver_has(program: Program) -> None:
    told = Told()
    config = program.does("output(0)\nasked = command()\noutput(1)\nsay(asked=asked['do'])\ntell('ended')")

    def tell(event: RunEvent) -> None:
        told.append(event)
        if told.kinds == ["output"]:
            supervised.stop()

    supervised = SupervisedRun(config, tell)
    supervised.run()
    assert told.kinds == ["output", "output", "starting", "ended"]
    assert told.said["asked"] == "stop"


def test_a_driver_that_dies_while_it_stops_is_not_started_again(program: Program) -> None:
    told = Told()

    def tell(event: RunEvent) -> None:
        told.append(event)
        supervised.stop()

    supervised = SupervisedRun(program.does("output(0)\ncommand()\nos.kill(os.getpid(), 9)"), tell)
    supervised.run()
    assert told.kinds == ["output"]
    assert len(program.pids) == 1


def test_kill_ends_a_driver_that_does_not_listen(program: Program) -> None:
    told = Told()

    def tell(event: RunEvent) -> None:
        told.append(event)
        supervised.kill()

    supervised = SupervisedRun(program.does("output(0)\ntime.sleep(600)"), tell)
    supervised.run()
    assert told.kinds == ["output"]
    assert len(program.pids) == 1


def test_kill_does_not_wait_for_a_command_that_the_driver_does_not_read(program: Program) -> None:
    """A pipe holds 64 kB: whoever writes more to a driver that hangs waits until it is gone."""
    supervised = SupervisedRun(program.does("output(0)\ntime.sleep(600)"), lambda event: started.set())
    started, killed = threading.Event(), threading.Event()
    running = threading.Thread(target=supervised.run)
    running.start()
    assert started.wait(20)
    sending = threading.Thread(target=supervised.send, args=("apply-plan", {"tasks": ["O1.1"] * 100_000}))
    sending.start()
    sending.join(0.5)
    assert sending.is_alive(), "it waits for the pipe"

    def kill() -> None:
        supervised.kill()
        killed.set()

    threading.Thread(target=kill, daemon=True).start()
    in_time = killed.wait(10)
    if not in_time:
        os.kill(program.pids[0], signal.SIGKILL)
    running.join(20)
    sending.join(20)
    assert in_time
    assert not running.is_alive()
    assert not sending.is_alive()


def test_a_command_reaches_the_driver_that_runs_and_nobody_if_none_does(program: Program) -> None:
    told, sent = Told(), list[bool]()
    config = program.does("output(0)\nasked = command()\nsay(asked=asked)\ntell('ended')")

    def tell(event: RunEvent) -> None:
        told.append(event)
        if isinstance(event, OutputPublished):
            sent.append(supervised.send("budget", {"budget": 3}, "sender01-1"))

    supervised = SupervisedRun(config, tell)
    assert supervised.send("pause") is False
    supervised.run()
    assert sent == [True]
    assert told.said["asked"] == {"do": "budget", "arguments": {"budget": 3}, "id": "sender01-1"}
    assert supervised.send("pause") is False


def test_no_driver_runs_between_two_of_them(program: Program) -> None:
    sent = []

    def tell(event: RunEvent) -> None:
        if isinstance(event, DriverDied):
            sent.append(supervised.send("pause"))

    supervised = SupervisedRun(program.does("if start == 2: tell('ended')"), tell)
    supervised.run()
    assert sent == [False]


def test_stop_from_another_thread_at_any_moment_ends_the_run(program: Program) -> None:
    """Also while drivers die and are started: none is left, and none is started after it."""
    config = program.does("output(start)\nif start % 2: os.kill(os.getpid(), 9)\ncommand()\ntell('ended')")
    for delay in (0.0, 0.02, 0.05, 0.1, 0.2):
        supervised = SupervisedRun(config, lambda line: None)
        running = threading.Thread(target=supervised.run)
        running.start()
        threading.Event().wait(delay)
        supervised.stop()
        running.join(60)
        assert not running.is_alive()
