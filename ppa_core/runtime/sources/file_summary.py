"""What is in a file, or in the files of a directory: rows, columns, and what would be refused."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from stat import S_ISDIR, S_ISREG

import pyarrow as pa

from ppa_core.errors import BadInput
from ppa_core.runtime.sources.files import complete_files
from ppa_core.runtime.sources.formats import PATTERNS, Place, infer_schema, read_piece
from ppa_core.runtime.sources.live import Refusals

_ROWS = 100_000
"""Rows that are looked at together: it bounds the memory."""


@dataclass(frozen=True)
class FilesSummary:
    """`rows` are those that can be read with the schema that the first file suggests."""

    files: int
    rows: int
    schema: pa.Schema
    refusals: Refusals


def summarise(kind: str, path: Path) -> FilesSummary:
    """The figures of a file, or of the complete files in a directory, as `open_files` would read them."""
    try:
        mode = path.stat().st_mode
    except OSError as error:
        raise BadInput(str(path), f"cannot be read: {error.strerror}; name a file or a directory") from error
    except ValueError as error:
        raise BadInput(repr(str(path)), f"not the name of a file: {error}") from error
    if not (S_ISREG(mode) or S_ISDIR(mode)):
        raise BadInput(str(path), "neither a file nor a directory; name one of them")
    files = [path / name for name in complete_files(str(path), PATTERNS[kind])] if S_ISDIR(mode) else [path]
    if not files:
        raise BadInput(str(path), f"no file named {PATTERNS[kind]} in this directory; name a file, or another directory")
    schema = infer_schema(kind, files[0])
    rows, refusals = 0, Refusals()
    for file in files:
        place, ended = Place(), False
        while not ended:
            try:
                piece = read_piece(kind, file, schema, place, _ROWS)
            except OSError as error:
                raise BadInput(str(file), f"cannot be read: {error.strerror}") from error
            rows, refusals = rows + piece.table.num_rows, refusals + piece.refusals
            place, ended = piece.after, piece.ended
    return FilesSummary(len(files), rows, schema, refusals)
