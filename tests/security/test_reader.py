"""The process that reads files is killed, with its driver or without, and knows nothing worth stealing."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import pytest

from ppa_core.pipeline.sources import reading
from ppa_core.pipeline.sources.files import open_files
from ppa_core.pipeline.sources.formats import Place
from ppa_core.pipeline.sources.limits import Limits, Unfit
from tests.security.bombs import MEASURED, SCHEMA, good, numbers, reasons

ROOT = Path(__file__).parents[2]


def large(path: Path) -> Path:
    path.write_text('{"word": "w", "n": 1}\n' * 1_500_000)
    return path


def holds(pid: int, path: Path) -> bool:
    """Whether a process has a file open."""
    try:
        return any(os.path.realpath(entry) == str(path) for entry in Path(f"/proc/{pid}/fd").iterdir())
    except OSError:
        return False


def test_a_file_that_kills_its_reader_is_passed_over(tmp_path: Path) -> None:
    path = large(tmp_path / "a.jsonl")
    over, killed = threading.Event(), Counter[int]()

    def kill() -> None:
        while not over.is_set():
            for reader in list(reading._current):
                if holds(reader.process.pid, path):
                    os.kill(reader.process.pid, signal.SIGKILL)
                    killed[reader.process.pid] = 1
            time.sleep(0.001)

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        with path.open("rb") as file, pytest.raises(Unfit, match=r"it crashed 3 processes .*SIGKILL"):
            reading.examine("jsonl", file, path.name, SCHEMA, Place(), Limits(), 10**6)
    finally:
        over.set()
        killer.join()
    assert len(killed) == 3
    assert read_again(tmp_path) == [1, 2]


def read_again(tmp_path: Path) -> list[int]:
    """What a new reader reads after all that."""
    folder = tmp_path / "other"
    folder.mkdir()
    good(folder / "a.csv", [1, 2])
    source = open_files(folder, "csv", 1, SCHEMA)
    source.seal(0)
    return numbers(source, 0)


def test_a_file_that_was_being_read_when_two_drivers_died_is_passed_over(tmp_path: Path) -> None:
    large(tmp_path / "a.jsonl")
    (tmp_path / "b.jsonl").write_text('{"word": "w", "n": 7}\n')
    source = open_files(tmp_path, "jsonl", 1, SCHEMA)
    note = tmp_path / ".ppa" / "reading.json"
    for deaths in (0, 1):
        with subprocess.Popen([sys.executable, "-c", MEASURED], stdin=subprocess.PIPE, cwd=ROOT) as driver:
            assert driver.stdin is not None
            driver.stdin.write(pickle.dumps((source, 1)))
            driver.stdin.close()
            until = time.monotonic() + 60
            while not (note.exists() and f'"deaths": {deaths}' in note.read_text()) and time.monotonic() < until:
                time.sleep(0.005)
            driver.kill()
    source.seal(0)
    assert numbers(source, 0) == [7]
    assert reasons(source, 0) == {"a.jsonl": "2 drivers died while it was being read"}
    assert not note.exists()


def test_the_reader_knows_no_secret_and_ends_with_its_driver(tmp_path: Path) -> None:
    code = (
        "import sys, time; from pathlib import Path; from ppa_core.pipeline.sources import reading\n"
        "reader = reading._reader(); pid = reader.process.pid\n"
        "print(pid, 'hunter2' in Path(f'/proc/{pid}/environ').read_text(), flush=True); time.sleep(60)"
    )
    environment = os.environ | {"PPA_PASSWORD": "hunter2"}
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, cwd=ROOT, env=environment) as driver:
        assert driver.stdout is not None
        pid, told = driver.stdout.readline().split()
        driver.kill()
    assert told == b"False"
    until = time.monotonic() + 30
    while Path(f"/proc/{int(pid)}/exe").exists() and time.monotonic() < until:
        time.sleep(0.02)
    assert not Path(f"/proc/{int(pid)}/exe").exists()
