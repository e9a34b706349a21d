"""Command-line arguments that several commands share, and their parsers. Errors say what is expected."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from typing import TypeVar

from ppa_core.errors import BadInput, RequestError
from ppa_core.fidelity import Metric
from ppa_core.safety.masking import masked
from ppa_core.safety.names import check_run

Value = TypeVar("Value")


def add_file(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help="topology file, name of a built-in example, or '-' for standard input")


def add_metric(parser: argparse.ArgumentParser) -> None:
    help_text = "the metric to maximise: output fidelity or internal completeness (default: of)"
    parser.add_argument("--metric", choices=[metric.value for metric in Metric], default=Metric.OF.value, help=help_text)


def add_time_limit(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--time-limit", type=seconds, default=10.0, metavar="S", help="maximum seconds per plan (default: 10)")


def _argument(meaning: str) -> Callable[[Callable[[str], Value]], Callable[[str], Value]]:
    """Turn a parser that raises ValueError into one whose error says what is expected."""

    def wrap(read: Callable[[str], Value]) -> Callable[[str], Value]:
        def checked(text: str) -> Value:
            try:
                return read(text)
            except ValueError:
                text = masked(text)  # before it is cut
                shown = text if len(text) <= 60 else text[:57] + "…"
                raise argparse.ArgumentTypeError(f"{shown!r} is not {meaning}") from None

        return checked

    return wrap


def run_name(text: str) -> str:
    """A run name, checked while the arguments are parsed, before anything is created or started."""
    try:
        return check_run(text)
    except BadInput as error:
        raise argparse.ArgumentTypeError(str(error)) from None


@_argument("a whole number")
def whole(text: str) -> int:
    return _whole(text)


@_argument("a whole number of at least 0")
def natural(text: str) -> int:
    number = _whole(text)
    if number < 0:
        raise ValueError
    return number


@_argument("a whole number of at least 1")
def positive(text: str) -> int:
    number = _whole(text)
    if number < 1:
        raise ValueError
    return number


@_argument("a number")
def number(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError
    return value


@_argument("a positive number of seconds")
def seconds(text: str) -> float:
    value = float(text)
    if not (math.isfinite(value) and value > 0):
        raise ValueError
    return value


@_argument("a number of hosts and racks; write HOSTS:RACKS as in 4:2")
def hosts_and_racks(text: str) -> tuple[int, int]:
    hosts, _, racks = text.partition(":")
    return _whole(hosts), _whole(racks or "1")


@_argument("a range; write LOW:HIGH as in 5:10, or one number")
def span(text: str) -> tuple[int, int]:
    low, _, high = text.partition(":")
    return _whole(low), _whole(high if ":" in text else low)


@_argument("a list of budgets; write 5, or 0:31, or 0:31:5 for every fifth, or 1,2,3")
def budgets(text: str) -> tuple[range, ...]:
    return tuple(_budget_range(piece) for piece in text.split(","))


def _budget_range(piece: str) -> range:
    low, *rest = [_whole(part) for part in piece.split(":")]
    high, step = [*rest, 1][:2] if rest else (low, 1)
    if len(rest) > 2 or low > high or step < 1:
        raise ValueError
    return range(low, high + 1, step)


def _whole(text: str) -> int:
    if not text.strip().lstrip("+-").isdecimal() or len(text) > 30:
        raise ValueError
    return int(text)


def budgets_within(ranges: tuple[range, ...], tasks: int) -> list[int]:
    """The budgets in ascending order, without duplicates. Raises RequestError unless all are from 0 to the number of tasks."""
    for wanted in ranges:
        for end in (wanted[0], wanted[-1]):
            if not 0 <= end <= tasks:
                raise RequestError(
                    "--budgets", f"{end} is out of range; it must be from 0 to {tasks}, the number of tasks, as in 0:{tasks}"
                )
    return sorted(set().union(*ranges))


def comma_list(option: str, text: str) -> list[str]:
    """The items of a comma-separated list."""
    if not text.strip():
        return []
    items = [item.strip() for item in text.split(",")]
    if "" in items:
        raise RequestError(option, f"empty item in {text[:60]!r}; separate names with single commas")
    return items
