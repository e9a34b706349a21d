"""The parser of all commands, and what becomes of errors: one line on standard error and an exit code."""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Never

from ppa_core import __version__
from ppa_core.cli import cluster, inspecting, making, planning, running, serving, sources, watching
from ppa_core.cli.preparing import warn_of_passwords
from ppa_core.errors import BadInput, PpaError
from ppa_core.safety.masking import masked, remember, remember_given
from ppa_core.terminal import logs
from ppa_core.terminal.output import as_text, note

_log = logging.getLogger(__name__)

EXIT_FAILED = 1
EXIT_BAD_INPUT = 2
EXIT_INTERRUPTED = 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code: 0, 1 (failed), 2 (bad input) or 130 (interrupted)."""
    if sys.stdout is None:
        return _fail("output: standard output is closed", EXIT_FAILED)
    watched = watching.words(sys.argv[1:] if argv is None else argv)
    if watched is not None:
        return watching.main(watched, _called())
    _never_fail_on_a_character()
    sys.set_int_max_str_digits(0)  # a count of MC-trees may have more digits than Python prints by default
    try:
        remember_given(argv)
        arguments = _parser().parse_args(argv)
        warn_of_passwords(arguments)
        with logs.configured(logs.settings_of(arguments)), _logged():
            arguments.command(arguments)
        sys.stdout.flush()
    except BadInput as error:
        return _fail(str(error), EXIT_BAD_INPUT)
    except PpaError as error:
        return _fail(str(error), EXIT_FAILED)
    except KeyboardInterrupt:
        return _fail("stopped", EXIT_INTERRUPTED)
    except BrokenPipeError:
        _forget_output()
        return EXIT_FAILED
    except OSError as error:
        _forget_output()
        return _fail(f"output: cannot be written: {error.strerror}", EXIT_FAILED)
    except MemoryError:
        return _fail("memory: not enough for this topology", EXIT_FAILED)
    finally:
        remember(())
    return 0


@contextmanager
def _logged() -> Iterator[None]:
    """What is said in one line below is in the log with its traceback, for whoever asks for it."""
    try:
        yield
    except Exception:
        _log.debug("the command failed", exc_info=True)
        raise


class _Parser(argparse.ArgumentParser):
    """A parser that says what is wrong in one line."""

    def error(self, message: str) -> Never:
        self.exit(EXIT_BAD_INPUT, f"error: {as_text(masked(message))} (see `{self.prog} --help`)\n")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog=_called(),
        description="Which tasks of a streaming topology should have an active replica, and what is that worth?",
        epilog="FILE is a topology file, the name of a shipped example (see `examples`), or '-' for standard input.",
    )
    parser.add_argument("--version", action="version", version=__version__)
    json_help = "one JSON document on standard output, and nothing else there"
    parser.add_argument("--json", action="store_true", help=json_help)
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for group in (inspecting, planning, making, running, serving, watching, cluster, sources):
        group.register(commands)
    for command in commands.choices.values():
        command.add_argument("--json", action="store_true", default=argparse.SUPPRESS, help=json_help)
    return parser


def _called() -> str:
    """How this command line was started, for its help."""
    return "ppa" if Path(sys.argv[0]).name == "ppa" else "python -m ppa_core"


def _fail(message: str, code: int) -> int:
    note(f"error: {message}")
    return code


def _never_fail_on_a_character() -> None:
    """Print what the terminal cannot show as an escape, in place of ending in an encoding error."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")


def _forget_output() -> None:
    """Nobody reads on: let the interpreter flush what is left into nothing."""
    with suppress(OSError, ValueError):  # where there is no file behind it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
