"""One way to run a command for all programs: its exit code, and one line for what went wrong."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import pytest

from monitoring.main import _parser as monitoring
from ppa_core.cli.main import _parser as ppa
from ppa_core.errors import PpaError, RequestError, Unavailable
from ppa_core.terminal import program
from ppa_core.terminal.output import print_json

SECRET = "redis://:geheim123@host"


def asking(command: Callable[[argparse.Namespace], None]) -> Callable[[], program.Parser]:
    def register(commands: Any) -> None:
        made = commands.add_parser("do")
        made.add_argument("--number", type=int)
        made.set_defaults(command=command)

    return lambda: program.parser_of("small", "A program.", "", register)


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (RequestError("--number", "too large"), 2, "error: --number: too large\n"),
        (Unavailable(f"no answer from {SECRET}"), 1, "error: no answer from redis://***@host\n"),
        (PpaError("\x1b[2J"), 1, "error: \\x1b[2J\n"),
        (KeyboardInterrupt(), 130, "error: stopped\n"),
        (OSError(28, "No space left on device"), 1, "error: output: cannot be written: No space left on device\n"),
        (BrokenPipeError(), 1, ""),
        (MemoryError(), 1, "error: memory: not enough\n"),
    ],
)
def test_what_goes_wrong_is_a_line_and_a_code(
    error: BaseException, code: int, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(_: argparse.Namespace) -> None:
        raise error

    assert program.run(asking(fail), ["do"]) == code
    said = capsys.readouterr()
    assert (said.out, said.err) == ("", line)


def test_what_cannot_be_read_is_a_line_and_2(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        program.run(asking(print), ["do", "--number", f"{SECRET}\x1b"])
    assert capsys.readouterr().err == (
        "error: argument --number: invalid int value: 'redis://***@host\\x1b' (see `small do --help`)\n"
    )


@pytest.mark.parametrize("argv", [["--json", "do"], ["do", "--json"]])
def test_json_may_stand_on_either_side(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    warned: list[argparse.Namespace] = []
    assert program.run(asking(lambda arguments: print_json(arguments.json)), argv, warned.append) == 0
    assert capsys.readouterr().out == "true\n"
    assert len(warned) == 1


def test_a_defect_is_not_hidden() -> None:
    with pytest.raises(ZeroDivisionError):
        program.run(asking(lambda _: print(1 // 0)), ["do"])


def test_every_command_is_there_and_metrics_stay_on_this_machine() -> None:
    parser = monitoring()
    for words in ("tail", "status", "incidents", "report --incident 1", "send pause", "audit", "serve", "serve-metrics"):
        assert callable(parser.parse_args(words.split()).command)
        if not words.startswith("serve"):
            assert callable(ppa().parse_args(words.split()).command)
    assert parser.parse_args(["serve-metrics"]).host == "127.0.0.1"
