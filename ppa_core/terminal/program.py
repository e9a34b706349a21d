"""A program with subcommands: its parser, and its errors as one line on standard error and an exit code."""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Never

from ppa_core.errors import BadInput, PpaError
from ppa_core.safety.masking import masked, remember, remember_given
from ppa_core.terminal import logs
from ppa_core.terminal.output import as_text, note

EXIT_FAILED = 1
EXIT_BAD_INPUT = 2
EXIT_INTERRUPTED = 130

_log = logging.getLogger(__name__)


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one line."""

    def error(self, message: str) -> Never:
        self.exit(EXIT_BAD_INPUT, f"error: {as_text(masked(message))} (see `{self.prog} --help`)\n")


def parser_of(prog: str, description: str, epilog: str, *groups: Callable[[Any], None]) -> Parser:
    """The parser of a program. Each group adds commands; their `command` is called with the arguments. All have --json."""
    parser = Parser(prog=prog, description=description, epilog=epilog)
    json_help = "print only JSON on standard output"
    parser.add_argument("--json", action="store_true", help=json_help)
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for register in groups:
        register(commands)
    for command in commands.choices.values():
        command.add_argument("--json", action="store_true", default=argparse.SUPPRESS, help=json_help)
    return parser


def run(
    make_parser: Callable[[], Parser], argv: Sequence[str] | None, warn: Callable[[argparse.Namespace], None] | None = None
) -> int:
    """Run one command and return its exit code: 0, 1 (failed), 2 (bad input) or 130 (interrupted)."""
    if sys.stdout is None:
        return _fail("output: standard output is closed", EXIT_FAILED)
    _never_fail_on_a_character()
    try:
        remember_given(argv)
        arguments = make_parser().parse_args(argv)
        if warn is not None:
            warn(arguments)
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
        return _fail("memory: not enough", EXIT_FAILED)
    finally:
        remember(())
    return 0


@contextmanager
def _logged() -> Iterator[None]:
    """Log an error with its traceback at debug level; the user sees one line."""
    try:
        yield
    except Exception:
        _log.debug("the command failed", exc_info=True)
        raise


def _fail(message: str, code: int) -> int:
    note(f"error: {message}")
    return code


def _never_fail_on_a_character() -> None:
    """Print characters that the terminal cannot show as escapes, instead of failing."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")


def _forget_output() -> None:
    """The reader has closed the pipe: discard what is left when the interpreter flushes."""
    with suppress(OSError, ValueError):  # not a file
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
