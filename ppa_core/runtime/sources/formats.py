"""Pieces of CSV, JSON-lines and Parquet files: so many rows from a place on, typed, with what was refused.

A piece of a text is a range of bytes of whole lines: a record is a line, in CSV too. A piece of a Parquet file is a range of
rows. The same file and range give the same piece.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ppa_core.errors import BadInput
from ppa_core.runtime.sources.converting import Bad, brief, fit, nulls, shown, without
from ppa_core.runtime.sources.live import KEPT, Refusals, Refused
from ppa_core.runtime.sources.text_rows import csv_rows, csv_schema, json_rows, json_schema, line_of, lines_of, split
from ppa_core.runtime.tables import digest, encode

PATTERNS = {"csv": "*.csv", "jsonl": "*.jsonl", "parquet": "*.parquet"}
"""The names that files of each kind have, if nothing else is said."""


@dataclass(frozen=True)
class Place:
    """Where a piece begins: bytes of a text, rows of a Parquet file; `line` is what people count from 1."""

    start: int = 0
    line: int = 1


@dataclass(frozen=True)
class Piece:
    """What a range of a file holds. `digest` tells whether the range is still what it was."""

    table: pa.Table
    refusals: Refusals
    stop: int
    after: Place
    ended: bool
    digest: str


def read_piece(
    kind: str, path: Path, schema: pa.Schema, place: Place, most: int | None = None, stop: int | None = None
) -> Piece:
    """The rows from `place` on: `most` of them, or those before `stop`. OSError if the file cannot be read."""
    if kind == "parquet":
        return _parquet(path, schema, place, most, stop)
    with path.open("rb") as file:
        header = line_of(path, file) if kind == "csv" else b""
        if kind == "csv" and place.start == 0:
            place = Place(len(header), 2)
        file.seek(place.start)
        content = file.read(stop - place.start) if stop is not None else lines_of(path, file, most)
        ended = not file.read(1)
    lines = split(content)
    kept = [number for number, line in enumerate(lines) if line.strip(b"\r\n")]
    texts, numbers = [lines[number] for number in kept], np.array(kept, np.int64) + place.line
    table, bad = csv_rows(header, texts, schema) if kind == "csv" else json_rows(texts, schema)
    first = sorted(bad)[:KEPT]
    refusals = Refusals(len(bad), tuple(Refused(path.name, int(numbers[row]), bad[row]) for row in first))
    after = Place(place.start + len(content), place.line + len(lines))
    return Piece(table, refusals, after.start, after, ended, digest(header + content))


def infer_schema(kind: str, path: Path) -> pa.Schema:
    """The schema that the beginning of a file suggests; a column without a value is text."""
    try:
        if kind == "parquet":
            found = pq.read_schema(path)
        else:
            with path.open("rb") as file:
                header = line_of(path, file) if kind == "csv" else b""
                texts = [line for line in split(lines_of(path, file, 10_000)) if line.strip(b"\r\n")]
            found = csv_schema(header, texts) if kind == "csv" else json_schema(texts)
    except OSError as error:
        raise BadInput(str(path), f"cannot be read: {error.strerror or brief(error)}; name a file or a directory") from error
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        reason = f"its columns cannot be told, is this {kind}? ({brief(error)}); name another file, or give a schema"
        raise BadInput(str(path), reason) from error
    return pa.schema([pa.field(field.name, _plain(field.type)) for field in found])


def _plain(kind: pa.DataType) -> pa.DataType:
    """The type in Spark's terms: no dictionary, no unsigned number, no column without a type, times to the microsecond."""
    if pa.types.is_null(kind):
        return pa.string()
    if pa.types.is_dictionary(kind):
        return _plain(kind.value_type)
    if pa.types.is_time32(kind) or pa.types.is_time64(kind):
        return pa.string()
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", kind.tz)
    return pa.int64() if pa.types.is_unsigned_integer(kind) else kind


def _parquet(path: Path, schema: pa.Schema, place: Place, most: int | None, stop: int | None) -> Piece:
    rows, end, reason = 0, place.start, ""
    found = None
    try:
        with pq.ParquetFile(path) as file:
            rows, names = file.metadata.num_rows, file.schema_arrow.names
            end = stop if stop is not None else rows if most is None else min(rows, place.start + most)
            lacking = [name for name in schema.names if names.count(name) != 1]
            if lacking:
                reason = f"it has the columns {shown(', '.join(names))}; {', '.join(lacking)} must be there, once"
            else:
                found = _rows(file, schema.names, place.start, end)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:  # gone, or closed to us, and not damaged
            raise
        reason = f"not a Parquet file, or damaged: {brief(error)}"
    if found is None:
        refusals = Refusals(max(1, end - place.start), (Refused(path.name, place.line, reason),))
        return Piece(schema.empty_table(), refusals, end, Place(end, end + 1), end >= rows, digest(reason.encode()))
    bad: Bad = {}
    columns = []
    for field in schema:
        column, reasons = fit(found[field.name].combine_chunks(), field.type, field.name)
        columns.append(column)
        bad = nulls(column, field, reasons) | reasons | bad
    table = without(pa.Table.from_arrays(columns, schema=schema), bad)
    refusals = Refusals(len(bad), tuple(Refused(path.name, place.line + row, bad[row]) for row in sorted(bad)[:KEPT]))
    return Piece(table, refusals, end, Place(end, end + 1), end >= rows, digest(encode(found)))


def _rows(file: pq.ParquetFile, names: list[str], start: int, end: int) -> pa.Table:
    """Rows from `start` to before `end`, of which only the row groups that hold some are read."""
    sizes = [file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)]
    begins = np.cumsum([0, *sizes])
    groups = [i for i in range(len(sizes)) if begins[i] < end and begins[i + 1] > start]
    if not groups:
        return file.schema_arrow.empty_table().select(names)
    found = file.read_row_groups(groups, columns=names).select(names)
    return found.slice(start - int(begins[groups[0]]), end - start)
