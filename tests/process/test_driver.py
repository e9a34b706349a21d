"""A driver's process: what comes out of it, and that nothing of it is left."""

from __future__ import annotations

import json
import logging
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from ppa_core.engine.event_codec import kind_of
from ppa_core.engine.run_events import OutputPublished, Starting
from ppa_core.placement.nodes import Node
from ppa_core.process import driver as driver_module
from ppa_core.process.driver import Driver, DriverExited
from tests.process.programs import Program


def gone(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


def said_by(driver: Driver) -> Any:
    """What the program said with `say`."""
    event = next(driver.events())
    assert isinstance(event, Starting)
    return json.loads(event.what)


def await_gone(*pids: int) -> None:
    end = time.monotonic() + 30
    while not all(map(gone, pids)) and time.monotonic() < end:
        time.sleep(0.02)
    assert all(map(gone, pids))


def test_lines_end_with_the_line_ended_though_the_driver_lives_on(program: Program) -> None:
    with Driver(program.does("output(0)\noutput(1)\ntell('ended')\noutput(2)\ntime.sleep(600)")) as driver:
        assert [kind_of(event) for event in driver.events()] == ["output", "output", "ended"]
        assert driver.process.poll() is None
    assert driver.process.poll() is not None


def test_torn_lines_are_passed_over_and_log_records_are_logged(program: Program, caplog: pytest.LogCaptureFixture) -> None:
    record = "tell('log', level='warning', logger='ppa_core.driver.x', process=1, message='from the driver')"
    code = f"output(0)\n{record}\nprint('{{\"kind\": \"outp', flush=True)\noutput(1)\ntell('ended')"
    with caplog.at_level(logging.WARNING), Driver(program.does(code)) as driver:
        assert [event.batch for event in driver.events() if isinstance(event, OutputPublished)] == [0, 1]
    assert "from the driver" in caplog.text


def test_a_driver_that_just_ends_has_died_with_its_last_words(program: Program) -> None:
    code = "output(0)\nfor i in range(40): print('word', i, file=sys.stderr)\nsys.exit(3)"
    with Driver(program.does(code)) as driver, pytest.raises(DriverExited) as died:
        list(driver.events())
    assert died.value.last.splitlines() == [f"word {i}" for i in range(25, 40)]
    assert died.value.log == program.folder / "run" / "driver.log"
    assert died.value.log.read_text().splitlines()[0] == "word 0"
    kept = died.value.kept("some-run")
    assert kept.last == died.value.last
    assert kept.log != died.value.log
    assert kept.log.read_text() == died.value.log.read_text()


def test_a_driver_without_a_line_for_too_long_is_killed(program: Program) -> None:
    with Driver(program.does("output(0)\ntime.sleep(600)"), patience=1.0) as driver:
        with pytest.raises(DriverExited):
            list(driver.events())
        assert driver.process.wait(10) != 0


def test_a_driver_whose_pulse_ends_is_killed_though_it_lives(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver_module, "HUNG_SECONDS", 1.0)
    code = "output(0)\nfor _ in range(6): os.write(int(sys.argv[1]), b'.'); time.sleep(0.5)\ntime.sleep(600)"
    with Driver(program.does(code)) as driver:
        began = time.monotonic()
        with pytest.raises(DriverExited):
            list(driver.events())
        assert 3.0 < time.monotonic() - began < 60
        assert driver.process.wait(10) != 0


def test_a_killed_driver_takes_what_it_started_and_its_files_along(program: Program) -> None:
    code = (
        "import subprocess, tempfile\nchild = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        "file = tempfile.NamedTemporaryFile(delete=False)\n"
        "say(child=child.pid, file=file.name, spark=os.environ['SPARK_LOCAL_DIRS'],"
        " java=os.environ['JDK_JAVA_OPTIONS'])\ntime.sleep(600)"
    )
    with Driver(program.does(code)) as driver:
        said = said_by(driver)
        folder = Path(said["file"]).parent
        assert folder.exists()
        assert str(folder) == said["spark"]
        assert f"-Djava.io.tmpdir={folder}" in said["java"]
        driver.kill()
        await_gone(said["child"], driver.process.pid)
        assert not folder.exists()
        driver.kill()  # once more does no harm


def test_what_a_killed_driver_told_is_not_lost(program: Program) -> None:
    with Driver(
        program.does("output(0)\noutput(1)\noutput(2)\nprint('over', file=sys.stderr, flush=True)\ntime.sleep(600)")
    ) as driver:
        assert next(driver.events()).batch == 0
        end = time.monotonic() + 30
        while "over" not in driver.log.last and time.monotonic() < end:
            time.sleep(0.02)
        driver.kill()
        assert [event.batch for event in driver._read()] == [1, 2]


def test_a_command_to_a_driver_that_is_gone_is_no_error(program: Program) -> None:
    with Driver(program.does("")) as driver:
        driver.process.wait(60)
        for _ in range(3):
            driver.send("pause")
    driver.send("pause")


def test_no_password_is_on_the_command_line_or_in_the_environment(program: Program) -> None:
    config = program.does("say(nodes=config['nodes'])\ntime.sleep(600)")
    secret = "a-secret-of-the-node"
    config = replace(config, nodes=(Node("n1", "r1", "primary", f"redis://:{secret}@127.0.0.1:1"),))
    with Driver(config) as driver:
        assert secret in str(said_by(driver)["nodes"])  # through the pipe
        process = psutil.Process(driver.process.pid)
        assert secret not in str(process.cmdline())
        assert secret not in str(process.environ())
