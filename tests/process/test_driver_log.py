"""A driver's standard error in a file: whole, bounded, its owner's alone; and whatever the disk does, the pipe is read."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from ppa_core.process.driver_log import DriverLog, keep
from ppa_core.safety.masking import remember, remember_more


@pytest.fixture
def forget() -> Iterator[None]:
    yield
    remember(())


def lines(*numbers: int) -> list[bytes]:
    return [b"line %d\n" % number for number in numbers]


def test_drivers_of_a_run_write_one_after_the_other(tmp_path: Path) -> None:
    for first in (0, 2):
        log = DriverLog(tmp_path / "run")
        assert not log.over.is_set()
        log.take(lines(first, first + 1))
        assert log.over.is_set()
    assert log.path.read_text() == "line 0\nline 1\nline 2\nline 3\n"
    assert log.path.stat().st_mode & 0o777 == 0o600
    assert list(log.last) == ["line 2", "line 3"]


def test_a_long_file_makes_room_and_the_one_before_stays(tmp_path: Path) -> None:
    log = DriverLog(tmp_path, most=70)  # ten lines
    log.take(lines(*range(10)))
    assert not log.path.exists() or log.path.read_text() == ""
    log.take(lines(*range(10, 14)))
    assert (tmp_path / "driver.log.1").read_text() == b"".join(lines(*range(10))).decode()
    assert log.path.read_text() == "line 10\nline 11\nline 12\nline 13\n"
    assert log.path.stat().st_mode & 0o777 == 0o600


def test_any_bytes_are_kept_as_text_and_passwords_are_not(tmp_path: Path, forget: None) -> None:
    remember_more(["redis://:s3cret-Passw0rd@127.0.0.1:1"])
    log = DriverLog(tmp_path)
    log.take([b"\xff\xfe caf\xc3\xa9\n", b"AUTH s3cret-Passw0rd\n", b"x" * 200_000 + b"\n", b"no end"])
    first, second, long, last = log.path.read_text().splitlines()
    assert first == "\\xff\\xfe café"
    assert second == "AUTH ***"
    assert len(long) == 100_000
    assert last == "no end"
    assert "s3cret" not in str(log.last)


@pytest.mark.parametrize("place", ["a link", "a pipe", "a folder", "no folder"])
def test_where_no_file_can_be_written_the_lines_are_read_all_the_same(place: str, tmp_path: Path) -> None:
    folder, elsewhere = tmp_path / "run", tmp_path / "elsewhere"
    if place == "no folder":
        folder.write_text("a file")
    else:
        folder.mkdir()
    if place == "a link":
        elsewhere.write_text("of someone else")
        (folder / "driver.log").symlink_to(elsewhere)
    elif place == "a pipe":
        os.mkfifo(folder / "driver.log")
    elif place == "a folder":
        (folder / "driver.log").mkdir()
    log = DriverLog(folder)
    log.take(lines(*range(500)))
    assert list(log.last) == [f"line {number}" for number in range(300, 500)]
    assert log.over.is_set()
    assert not elsewhere.exists() or elsewhere.read_text() == "of someone else"


def test_a_pipe_that_is_closed_meanwhile_ends_it(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.close(writing)
    pipe = os.fdopen(reading, "rb")
    pipe.close()
    log = DriverLog(tmp_path)
    log.take(pipe)
    assert log.over.is_set()


def test_a_copy_is_kept_once_and_for_its_owner_alone(tmp_path: Path, own_folder: Path) -> None:
    log = DriverLog(tmp_path)
    log.take(lines(1))
    copy = keep(log.path, "run-1")
    assert copy == own_folder / "logs" / "driver-run-1.log"
    assert copy.read_text() == "line 1\n"
    assert copy.stat().st_mode & 0o777 == 0o600
    log.take(lines(2))
    assert keep(log.path, "run-1") == log.path  # nothing is written over
    assert copy.read_text() == "line 1\n"
    assert keep(tmp_path / "nothing", "run-2") == tmp_path / "nothing"
