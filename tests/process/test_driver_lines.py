"""What a driver process prints: events come out, log records are logged, everything else is skipped."""

from __future__ import annotations

import logging
import sys
from pathlib import Path

import pytest

from ppa_core.driver.config import Config
from ppa_core.driver.records import Settings
from ppa_core.engine.run_events import Ended, Failed, Paused, RunUnavailable
from ppa_core.errors import BadInput, PpaError, Unavailable
from ppa_core.process import driver
from ppa_core.process.driver import Driver


def printing(lines: list[str], folder: Path, monkeypatch: pytest.MonkeyPatch) -> Driver:
    """A driver that prints these lines: the pipes and the process are real."""
    program = folder / "program.py"
    program.write_text(f"import sys\nsys.stdin.readline()\nprint({chr(10).join(lines)!r}, flush=True)\n")
    monkeypatch.setattr(driver, "PROGRAM", (sys.executable, str(program)))
    return Driver(Config("tree", {}, (), (), Settings(), "run", folder / "run"))


def test_torn_and_foreign_lines_are_skipped_and_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    foreign = [
        "",
        "[]",
        "7",
        "{",
        '"kind"',
        '{"kind": "unknown", "at": 1, "batch": 1}',
        '{"kind": "paused", "at": "x"}',
        "[" * 9_999,
    ]
    record = '{"kind":"log","at":1.0,"level":"error","logger":"ppa_core.x","process":1,"message":"of the driver"}'
    lines = [*foreign, record, '{"kind":"paused","at":1.0,"batch":3}', '{"kind":"ended","at":2.0,"batch":3}']
    with caplog.at_level(logging.INFO), printing(lines, tmp_path, monkeypatch) as running:
        assert list(running.events()) == [Paused(1.0, 3), Ended(2.0, 3)]
    assert len([one for one in caplog.messages if "a line of the driver was skipped" in one]) == len(foreign)
    assert "of the driver" in caplog.messages


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ('{"kind":"failed","at":1.0,"batch":-1,"reason":"why"}', PpaError("why")),
        ('{"kind":"failed","at":1.0,"batch":-1,"reason":"a: b","bad_input":["a","b"]}', BadInput("a", "b")),
        ('{"kind":"unavailable","at":1.0,"batch":-1,"reason":"no Java"}', Unavailable("no Java")),
    ],
)
def test_a_failure_is_raised_as_what_it_was(
    line: str, error: PpaError, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with printing([line], tmp_path, monkeypatch) as running, pytest.raises(type(error)) as raised:
        list(running.events())
    assert (type(raised.value), str(raised.value)) == (type(error), str(error))
    with printing([line], tmp_path, monkeypatch) as running:
        assert [type(event).__name__ for event in running._read()] in ([Failed.__name__], [RunUnavailable.__name__])
