"""Results on standard output: one JSON document, or text for people. Names are always text, never markup."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from rich.box import ROUNDED
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from ppa_core.safety.masking import masked
from ppa_core.safety.printable import printable as as_text

__all__ = [
    "as_text", "console", "finite", "headline", "note", "print_json", "print_json_with_rows", "progress_bar", "table",
]  # fmt: skip


def finite(value: float | None) -> float | None:
    """A number that JSON can represent: None if it is not finite."""
    return None if value is None or not math.isfinite(value) else float(value)


def print_json(document: Any) -> None:
    sys.stdout.write(json.dumps(document, allow_nan=False) + "\n")


def print_json_with_rows(head: dict[str, Any], key: str, rows: Iterable[Any]) -> None:
    """Print `head` with one more field, a list that is written row by row."""
    sys.stdout.write(json.dumps(head, allow_nan=False)[:-1] + (", " if head else "") + json.dumps(key) + ": [")
    for i, row in enumerate(rows):
        sys.stdout.write((",\n " if i else "") + json.dumps(row, allow_nan=False))
    sys.stdout.write("]}\n")


def console() -> Console:
    """Standard output for people. Markup is off, so that square brackets in a name are printed as they are."""
    return Console(markup=False, emoji=False, highlight=False)


def note(message: str) -> None:
    """A message on standard error, if that is open."""
    if sys.stderr is not None:
        with suppress(OSError):
            print(as_text(masked(message)), file=sys.stderr)


def headline(text: str) -> None:
    """A line above a table; it may be longer than the terminal is wide."""
    console().print(as_text(text), style="bold", soft_wrap=True)


def table(*columns: str, right: Iterable[str] = ()) -> Table:
    """An empty table; the columns named in `right` are aligned to the right."""
    made = Table(box=ROUNDED, header_style="bold cyan", border_style="dim")
    for column in columns:
        made.add_column(column, justify="right" if column in right else "left", overflow="fold")
    return made


def progress_bar() -> Progress:
    """A progress bar on standard error, if that is a terminal."""
    screen = Console(stderr=True, markup=False)
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    return Progress(*columns, console=screen, transient=True, disable=not screen.is_terminal)
