"""Reads pieces of CSV, JSON-lines and Parquet files: a number of rows from a place on, typed, with the refused ones.

A piece of a text file is a range of whole lines: a record is one line, also in CSV. A piece of a Parquet file is a range of
rows. The same file, range and limits give the same piece. The size of a piece is limited, whatever the file contains.
"""

from __future__ import annotations

import io
import os
from dataclasses import dataclass
from typing import Any, BinaryIO, Self

import numpy as np
import pyarrow as pa

from ppa_core.pipeline.sources import parquet_rows
from ppa_core.pipeline.sources.converting import Bad, brief
from ppa_core.pipeline.sources.limits import DEFAULT_LIMITS, Limits, Unfit, size_of
from ppa_core.pipeline.sources.live import KEPT, RefusedRow, RefusedRows
from ppa_core.pipeline.sources.text_rows import csv_rows, csv_schema, header_of, json_rows, json_schema, lines_of, split

PATTERNS = {"csv": "*.csv", "jsonl": "*.jsonl", "parquet": "*.parquet"}
"""The default name pattern of each file format."""

_SAMPLE = 10_000
"""Lines used to infer a schema."""


@dataclass(frozen=True)
class Place:
    """Where a piece begins: a byte offset, or a row of a Parquet file; `line` is the line number, from 1."""

    start: int = 0
    line: int = 1


@dataclass(frozen=True)
class Extent:
    """The extent of a piece, without its rows."""

    rows: int
    bytes: int
    """Size of the text, or of the rows in memory."""
    refusals: RefusedRows
    after: Place
    ended: bool

    def document(self) -> dict[str, Any]:
        """As a JSON document; `from_document` is the reverse."""
        after = [self.after.start, self.after.line]
        return vars(self) | {"refusals": self.refusals.document(), "after": after}

    @classmethod
    def from_document(cls, document: dict[str, Any]) -> Self:
        refusals = RefusedRows.from_document(document["refusals"])
        return cls(**(document | {"refusals": refusals, "after": Place(*document["after"])}))


@dataclass(frozen=True)
class Piece:
    """The rows in a range of a file."""

    table: pa.Table
    extent: Extent


def read_piece(kind: str, file: BinaryIO, name: str, schema: pa.Schema, place: Place, limits: Limits, most: int) -> Piece:
    """Read up to `most` rows from `place` on. Raises Unfit if the file must be skipped.

    Raises OSError for errors of the disk.
    """
    if kind == "parquet":
        return _parquet(file, name, schema, place, limits, most)
    return _text(kind, file, name, schema, place, limits, most)


def read_bytes(kind: str, content: bytes, schema: pa.Schema, limits: Limits = DEFAULT_LIMITS) -> tuple[int, RefusedRows]:
    """The number of rows in a file with this content, and the refused ones. Raises Unfit if the file must be skipped."""
    place, rows, refusals, ended = Place(), 0, RefusedRows(), False
    while not ended:
        found = read_piece(kind, io.BytesIO(content), "content", schema, place, limits, 100_000).extent
        rows, refusals, place, ended = rows + found.rows, refusals + found.refusals, found.after, found.ended
    return rows, refusals


def infer_schema(kind: str, file: BinaryIO, limits: Limits) -> pa.Schema:
    """Infer the schema from the beginning of a file; a column without values is a string. Raises Unfit if that fails."""
    try:
        if kind == "parquet":
            found = parquet_rows.schema_of(file, limits)
        else:
            header = header_of(file, limits) if kind == "csv" else b""
            content = lines_of(file, _SAMPLE, limits.batch_bytes)
            texts = [line for line in split(content) if line.strip(b"\r\n") and len(line) <= limits.line_bytes]
            found = csv_schema(header, texts, limits.columns) if kind == "csv" else json_schema(texts, limits.columns)
    except (pa.ArrowException, UnicodeDecodeError) as error:
        raise Unfit(
            f"its columns cannot be inferred, is this {kind}? ({brief(error)}); give another file, or a schema"
        ) from None
    return pa.schema([pa.field(field.name, _plain(field.type)) for field in found])


def _plain(kind: pa.DataType) -> pa.DataType:
    """A type that Spark supports: no dictionaries, no unsigned integers, no null type, times in microseconds."""
    if pa.types.is_null(kind):
        return pa.string()
    if pa.types.is_dictionary(kind):
        return _plain(kind.value_type)
    if pa.types.is_time32(kind) or pa.types.is_time64(kind):
        return pa.string()
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", kind.tz)
    return pa.int64() if pa.types.is_unsigned_integer(kind) else kind


def _text(kind: str, file: BinaryIO, name: str, schema: pa.Schema, place: Place, limits: Limits, most: int) -> Piece:
    header = header_of(file, limits) if kind == "csv" else b""
    if kind == "csv" and place.start == 0:
        place = Place(len(header), 2)
    file.seek(place.start)
    content = lines_of(file, most, limits.batch_bytes)
    ended = file.tell() >= file.seek(0, os.SEEK_END)
    lines = split(content)
    kept = [number for number, line in enumerate(lines) if line.strip(b"\r\n")]
    bad: Bad = {}
    if len(max(lines, key=len, default=b"")) > limits.line_bytes:
        reason = f"a line of more than {size_of(limits.line_bytes)}, the limit line_bytes"
        bad = {number: reason for number in kept if len(lines[number]) > limits.line_bytes}
        kept = [number for number in kept if number not in bad]
    texts = [lines[number] for number in kept]
    table, unfit = csv_rows(header, texts, schema, limits.columns) if kind == "csv" else json_rows(texts, schema)
    bad |= {kept[row]: reason for row, reason in unfit.items()}
    refusals = _refused(name, place.line, bad)
    after = Place(place.start + len(content), place.line + len(lines))
    found = Extent(table.num_rows, len(content), refusals, after, ended)
    return Piece(table, found)


def _parquet(file: BinaryIO, name: str, schema: pa.Schema, place: Place, limits: Limits, most: int) -> Piece:
    found = parquet_rows.read(file, schema, place.start, limits, most)
    if isinstance(found, parquet_rows.Unreadable):
        count = max(1, found.stop - place.start)
        refusals = RefusedRows(count, (RefusedRow(name, place.line, found.reason),))
        after = Place(found.stop, found.stop + 1)
        nothing = Extent(0, 0, refusals, after, found.ended)
        return Piece(schema.empty_table(), nothing)
    after = Place(found.stop, found.stop + 1)
    refusals = _refused(name, place.line, found.bad)
    table = found.table
    return Piece(table, Extent(table.num_rows, found.bytes, refusals, after, found.ended))


def _refused(name: str, line: int, bad: Bad) -> RefusedRows:
    first = sorted(bad)[:KEPT]
    return RefusedRows(len(bad), tuple(RefusedRow(name, int(np.int64(line) + row), bad[row]) for row in first))
