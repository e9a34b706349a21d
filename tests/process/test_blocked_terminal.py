"""A terminal that takes nothing, or a reader that does not read: the driver's batches go on, and what is lost is counted."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ppa_core.driver.config import Config
from ppa_core.driver.records import Settings
from ppa_core.engine.run_events import DriverDied, Failed, OutputPublished, RunEvent
from ppa_core.process import driver, run
from ppa_core.terminal.printing import MOST, Dropped, Printing

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
BATCHES = 3_000

DRIVER = f"""
import json, sys
sys.stdin.readline()
taken = dict(seconds=0.1, attempts=1, source_rows=1, rows_in=1)
shown = dict(revision=1, status="accurate", of=1.0, missing=[], rows=1, digest="x" * 200)
for batch in range({BATCHES}):
    for kind, figures in (("batch", taken), ("output", shown)):
        print(json.dumps(dict(kind=kind, at=0.0, batch=batch, **figures)), flush=True)
    print("told", batch, file=sys.stderr)
print(json.dumps({{"kind": "ended", "at": 0.0, "batch": {BATCHES}}}), flush=True)
sys.stdin.readline()
"""


def config(folder: Path) -> Config:
    return Config("tree", {}, (), (), Settings(), "run", folder)


@pytest.fixture
def another_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A driver that tells of many batches, in place of one with Spark: the pipes and the processes are real."""
    (tmp_path / "program.py").write_text(DRIVER)
    monkeypatch.setattr(driver, "PROGRAM", (sys.executable, str(tmp_path / "program.py")))
    return tmp_path / "run"


@pytest.fixture
def full_pipe() -> Iterator[int]:
    """The end for writing of a pipe that is full, and that nobody reads."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    try:
        while True:
            os.write(writing, b"x" * 4096)
    except BlockingIOError:
        os.set_blocking(writing, True)
    try:
        yield writing
    finally:
        os.close(reading)
        os.close(writing)


def test_a_printer_that_stands_still_holds_up_neither_the_driver_nor_the_monitor(another_program: Path) -> None:
    go_on, printed, noted = threading.Event(), list[RunEvent | Dropped](), list[RunEvent]()

    def blocked(event: RunEvent | Dropped) -> None:
        go_on.wait(60)
        printed.append(event)

    with Printing(blocked, ordinary=run.is_ordinary) as printing:

        def tell(event: RunEvent) -> None:
            printing(event)
            noted.append(event)

        run.SupervisedRun(config(another_program), tell).run()  # returns, though nothing has been printed
        assert printed == []
        go_on.set()
    assert [event.batch for event in noted if isinstance(event, OutputPublished)] == list(range(BATCHES))
    (dropped,) = [event for event in printed if isinstance(event, Dropped)]
    assert dropped.lines == len(noted) - (len(printed) - 1)
    assert MOST <= len(printed) <= MOST + 5
    assert noted[-1] in printed  # the end is out of the ordinary


def test_the_driver_ends_with_standard_output_and_error_full(another_program: Path, full_pipe: int) -> None:
    """The program as users run it, as far as it prints; its own end does not wait for the terminal for ever."""
    program = f"""
import logging, sys
from pathlib import Path
from ppa_core.driver.config import Config
from ppa_core.driver.records import Settings
from ppa_core.process import driver, run
from ppa_core.cli.running import event_printer
from ppa_core.terminal.logs import LogSettings, configured
from ppa_core.terminal.printing import Printing
driver.PROGRAM = {driver.PROGRAM!r}
config = Config("tree", {{}}, (), (), Settings(), "run", Path({str(another_program)!r}))
with configured(LogSettings("debug")), Printing(event_printer(True), ordinary=run.is_ordinary, patience=1.0) as printing:
    def tell(line):
        logging.getLogger("ppa_core").warning("a line")
        printing(line)
    run.SupervisedRun(config, tell).run()
    Path({str(another_program)!r}, "over").touch()
"""
    environment = {"PYTHONPATH": str(ROOT), "PATH": os.environ["PATH"]}
    with subprocess.Popen([sys.executable, "-c", program], stdout=full_pipe, stderr=full_pipe, env=environment) as child:
        try:
            assert child.wait(120) == 0
        finally:
            child.kill()
    assert (another_program / "over").exists()


def test_a_reader_that_is_gone_ends_the_run_as_before() -> None:
    reading, writing = os.pipe()
    os.close(reading)

    def tell(line: object) -> None:
        os.write(writing, b"x")

    with Printing(tell) as printing, pytest.raises(BrokenPipeError):
        _until_it_raises(printing)
    os.close(writing)


def _until_it_raises(printing: Printing[object]) -> None:
    for _ in range(200):
        printing("a line")
        time.sleep(0.05)


def test_what_a_driver_says_is_kept_in_full_and_for_its_owner_alone(another_program: Path) -> None:
    run.SupervisedRun(config(another_program), lambda event: None).run()
    log = another_program / "driver.log"
    assert log.stat().st_mode & 0o777 == 0o600
    said = [line for line in log.read_text().splitlines() if line.startswith("told")]
    assert said == [f"told {batch}" for batch in range(BATCHES)]


def test_a_driver_that_dies_names_where_its_words_are(another_program: Path) -> None:
    dying = "import sys\nfor i in range(300): print('word', i, file=sys.stderr)\nraise SystemExit(1)\n"
    (another_program.parent / "program.py").write_text(dying)
    noted: list[RunEvent] = []
    with pytest.raises(driver.DriverExited, match=str(another_program / "driver.log")) as died:
        run.SupervisedRun(config(another_program), noted.append).run()
    assert "word 299" in str(died.value)
    assert [type(event) for event in noted] == [DriverDied] * run.RESTARTS + [Failed]
    assert (another_program / "driver.log").read_text().count("word 0\n") == run.RESTARTS + 1
