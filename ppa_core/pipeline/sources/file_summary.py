"""Summary of a file or of the files in a directory: rows, columns, and refused rows."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from stat import S_ISLNK, S_ISREG

import pyarrow as pa

from ppa_core.errors import BadInput
from ppa_core.pipeline.sources.directory import complete_files, first_schema
from ppa_core.pipeline.sources.formats import PATTERNS, Place
from ppa_core.pipeline.sources.limits import DEFAULT_LIMITS, Limits, Unfit, open_regular
from ppa_core.pipeline.sources.live import RefusedRow, RefusedRows
from ppa_core.pipeline.sources.reading import examine

_ROWS = 100_000
"""Rows read at a time, to limit memory."""


@dataclass(frozen=True)
class FilesSummary:
    """`rows` are those that can be read with the schema inferred from the first file."""

    files: int
    rows: int
    schema: pa.Schema
    refusals: RefusedRows


def summarise(kind: str, path: Path, limits: Limits = DEFAULT_LIMITS) -> FilesSummary:
    """Summarise a file, or the complete files in a directory, as `open_files` would read them."""
    try:
        mode = path.lstat().st_mode
        is_directory = path.is_dir()
    except OSError as error:
        raise BadInput(str(path), f"cannot be read: {error.strerror}; give a file or a directory") from error
    except ValueError as error:
        raise BadInput(repr(str(path)), f"not a valid file name: {error}") from error
    if S_ISLNK(mode) and not is_directory:
        raise BadInput(str(path), "a symbolic link, and links are not followed; give the file itself")
    if not (S_ISREG(mode) or is_directory):
        raise BadInput(str(path), "neither a file nor a directory")
    files = [path / name for name in complete_files(str(path), PATTERNS[kind])] if is_directory else [path]
    if not files:
        raise BadInput(str(path), f"no file named {PATTERNS[kind]} in this directory; give a file, or another directory")
    schema = first_schema(kind, files, limits)
    rows, refusals = 0, RefusedRows()
    for file in files:
        found = _rows(kind, file, schema, limits)
        rows, refusals = rows + found[0], refusals + found[1]
    return FilesSummary(len(files), rows, schema, refusals)


def _rows(kind: str, path: Path, schema: pa.Schema, limits: Limits) -> tuple[int, RefusedRows]:
    rows, refusals, place, ended = 0, RefusedRows(), Place(), False
    try:
        with open_regular(path) as file:
            while not ended:
                found = examine(kind, file, path.name, schema, place, limits, _ROWS)
                rows, refusals = rows + found.rows, refusals + found.refusals
                place, ended = found.after, found.ended
    except Unfit as error:
        refusals += RefusedRows.of([RefusedRow(path.name, place.line, error.reason)])
    except OSError as error:
        raise BadInput(str(path), f"cannot be read: {error.strerror}") from error
    return rows, refusals
