"""Parses lines of CSV and JSON into typed columns: fast if all lines are valid, line by line if one is not."""

from __future__ import annotations

import csv
import io
import json
import math
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.json as pa_json

from ppa_core.pipeline.sources.converting import Bad, beyond, brief, convert, halving, nulls, shown, without
from ppa_core.pipeline.sources.limits import Limits, Unfit, size_of

_READ = 1 << 20


def header_of(file: BinaryIO, limits: Limits) -> bytes:
    """The first line of the file. Raises Unfit if it is too long."""
    file.seek(0)
    line = file.readline(limits.line_bytes + 1)
    if len(line) > limits.line_bytes:
        raise Unfit(f"its header line has more than {size_of(limits.line_bytes)}, the limit line_bytes")
    return line


def lines_of(file: BinaryIO, most: int | None, most_bytes: int) -> bytes:
    """The next `most` lines, or all; fewer, but at least one, if they have more than `most_bytes`."""
    pieces: list[bytes] = []
    found = size = whole = 0
    while content := file.read(min(_READ, most_bytes + 1)):
        breaks = np.flatnonzero(np.frombuffer(content, np.uint8) == ord("\n"))
        pieces.append(content)
        if most is not None and found + len(breaks) >= most:
            whole = size + int(breaks[most - found - 1]) + 1
        elif len(breaks):
            whole = size + int(breaks[-1]) + 1
        found, size = found + len(breaks), size + len(content)
        if (most is not None and found >= most) or size > most_bytes:
            if not whole:
                raise Unfit(f"a line of more than {size_of(most_bytes)}; is this a text file with one record per line?")
            file.seek(whole - size, io.SEEK_CUR)
            return b"".join(pieces)[:whole]
    return b"".join(pieces)


def split(content: bytes) -> list[bytes]:
    """Split into lines, keeping the line ends; only \\n ends a line."""
    return io.BytesIO(content).readlines()


def csv_rows(header: bytes, texts: list[bytes], schema: pa.Schema, most_columns: int) -> tuple[pa.Table, Bad]:
    names, wrong = _header(header, schema, most_columns)
    if wrong:
        return schema.empty_table(), dict.fromkeys(range(len(texts)), wrong)
    columns, bad = _csv_columns(len(names), [names.index(name) for name in schema.names], texts)
    good = [row for row in range(len(texts)) if row not in bad] if bad else range(len(texts))
    typed = []
    unfit: Bad = {}
    for field, values in zip(schema, columns, strict=True):
        column, reasons = convert(values, field)
        typed.append(column)
        unfit = reasons | unfit
    table = without(pa.Table.from_arrays(typed, schema=schema), unfit)
    return table, bad | {good[row]: reason for row, reason in unfit.items()}


def _header(header: bytes, schema: pa.Schema, most_columns: int) -> tuple[list[str], str]:
    """The names of the columns, and an error message or ''."""
    if not header.strip():
        return list(schema.names), ""
    try:
        names = next(csv.reader([header.decode("utf-8-sig").rstrip("\r\n")], strict=True))
    except (UnicodeDecodeError, csv.Error) as error:
        return [], f"the column names in line 1 cannot be read: {brief(error)}"
    if len(names) > most_columns:
        raise Unfit(f"it has {len(names)} columns, above the limit columns of {most_columns}")
    names = [name.strip() for name in names]
    times = Counter(names)
    lacking = [name for name in schema.names if times[name] != 1]
    if lacking:
        listed = shown(", ".join(names[:100]))
        return names, f"line 1 has the columns {listed}; missing or duplicate: {', '.join(lacking)}"
    return names, ""


def _csv_columns(count: int, wanted: list[int], texts: list[bytes]) -> tuple[list[pa.Array], Bad]:
    """The wanted columns as bytes, without the rows that do not have `count` values."""
    bad: Bad = {}

    def refuse(row: Any) -> str:
        bad[row.number - 1] = f"{row.actual_columns} values for {row.expected_columns} columns"
        return "skip"

    content = b"".join(texts)
    labels = [str(i) for i in range(count)]
    named = [labels[i] for i in wanted]
    if content and named:
        try:
            table = pa_csv.read_csv(
                io.BytesIO(content),
                pa_csv.ReadOptions(column_names=labels, use_threads=False, block_size=len(content) + 1),
                pa_csv.ParseOptions(invalid_row_handler=refuse if _is_utf8(content) else None, ignore_empty_lines=False),
                pa_csv.ConvertOptions(
                    column_types=dict.fromkeys(named, pa.binary()), include_columns=named, strings_can_be_null=False
                ),
            )
            if table.num_rows + len(bad) == len(texts):
                return [column.combine_chunks() for column in table.columns], bad
        except pa.ArrowInvalid:
            pass
    # An unclosed quote includes the lines after it, or Arrow cannot tell which row is invalid: read line by line.
    rows: list[list[bytes]] = []
    bad.clear()
    for number, text in enumerate(texts):
        try:
            values = next(csv.reader([text.decode("latin-1").rstrip("\r\n")], strict=True), [""])
        except csv.Error as error:
            bad[number] = f"not valid CSV ({error}); a record must be one line, with quotes closed on the same line"
            continue
        if len(values) == count:
            rows.append([values[i].encode("latin-1") for i in wanted])
        else:
            bad[number] = f"{len(values)} values for {count} columns"
    return [pa.array([row[i] for row in rows], pa.binary()) for i in range(len(wanted))], bad


def _is_utf8(content: bytes) -> bool:
    """Whether Arrow can pass a row to a handler, which fails for other encodings."""
    try:
        content.decode()
    except UnicodeDecodeError:
        return False
    return True


def json_rows(texts: list[bytes], schema: pa.Schema) -> tuple[pa.Table, Bad]:
    bad: Bad = {}
    if not _is_utf8(b"".join(texts)):  # Arrow does not check it
        bad = {row: "not UTF-8" for row, text in enumerate(texts) if not _is_utf8(text)}
    rows = [row for row in range(len(texts)) if row not in bad]
    try:
        table = _json_table([texts[row] for row in rows], schema)
    except pa.ArrowInvalid:
        bad |= {row: reason for row in rows if (reason := _json_reason(texts[row], schema))}
        rows = [row for row in rows if row not in bad]

        def attempt(first: int, end: int) -> pa.Table:
            try:
                return _json_table([texts[row] for row in rows[first:end]], schema)
            except pa.ArrowInvalid as error:
                if end - first > 1:
                    raise
                bad[rows[first]] = f"cannot be read: {brief(error)}"
                return _json_table([], schema)

        table = pa.concat_tables(halving(len(rows), attempt))
        rows = [row for row in rows if row not in bad]
    lacking: Bad = {}
    for field in schema:
        column = table[field.name].combine_chunks()
        lacking |= nulls(column, field, lacking) | beyond(column, field)
    return without(table, lacking).cast(schema), bad | {rows[row]: reason for row, reason in lacking.items()}


def _json_table(texts: list[bytes], schema: pa.Schema) -> pa.Table:
    """The lines with the schema's columns, any of which may be null."""
    nullable = pa.schema([field.with_nullable(True) for field in schema])
    if not texts:
        return nullable.empty_table()
    content = b"".join(text.rstrip(b"\r\n") + b"\n" for text in texts)
    table = pa_json.read_json(
        io.BytesIO(content),
        pa_json.ReadOptions(use_threads=False, block_size=len(content) + 1),
        pa_json.ParseOptions(explicit_schema=nullable, unexpected_field_behavior="ignore"),
    )
    if table.num_rows != len(texts):
        raise pa.ArrowInvalid("not one JSON object on the line")
    found = table.select(schema.names).combine_chunks()
    found.validate(full=True)  # Arrow accepts strings that are not UTF-8
    return found


def _json_reason(text: bytes, schema: pa.Schema) -> str:
    """The reason why a line is refused, as far as known without converting it, else ''."""
    names: list[str] = []

    def made(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        names[:] = (name for name, _ in pairs)  # of the outermost object in the end
        return dict(pairs)

    try:
        found = json.loads(text.decode("utf-8-sig"), object_pairs_hook=made, parse_float=_finite)
        if b"\\u" in text:
            json.dumps(found, ensure_ascii=False).encode()  # halves of characters
    except ValueError as error:
        return f"not JSON: {brief(error)}"
    except RecursionError:
        return ""  # too deep for Python, not for Arrow
    if not isinstance(found, dict):
        return f"not a JSON object: {shown(found)}"
    twice = [name for name, times in Counter(names).items() if times > 1 and name in schema.names]
    if twice:
        return f"duplicate column {shown(twice[0])}"
    for field in schema:
        value, fits = found.get(field.name), _fits(field.type)
        if value is not None and not fits(value):
            return f"column {field.name!r}: {shown(value)} is not {field.type}"
    return ""


def _finite(text: str) -> float:
    if math.isinf(value := float(text)):
        raise ValueError(f"{shown(text)} is too large a number")
    return value


def _fits(kind: pa.DataType) -> Callable[[Any], bool]:
    types = pa.types
    if types.is_integer(kind):
        bits = kind.bit_width - (0 if types.is_unsigned_integer(kind) else 1)
        least = 0 if types.is_unsigned_integer(kind) else -(1 << bits)
        return lambda value: type(value) is int and least <= value < 1 << bits
    if types.is_floating(kind):
        return lambda value: type(value) in (int, float)
    if types.is_boolean(kind):
        return lambda value: type(value) is bool
    if types.is_string(kind) or types.is_large_string(kind):
        return lambda value: isinstance(value, str)
    return lambda value: True


def csv_schema(header: bytes, texts: list[bytes], most_columns: int) -> pa.Schema:
    """For each column, the first of some types that fits all values, or else string."""
    names, wrong = _header(header, pa.schema([]), most_columns)
    if wrong or not names:
        raise pa.ArrowInvalid(wrong or "there is no header line")
    columns, _ = _csv_columns(len(names), list(range(len(names))), texts)
    return pa.schema([pa.field(name, _type_of(column)) for name, column in zip(names, columns, strict=True)])


def _type_of(column: pa.Array) -> pa.DataType:
    for kind in (pa.int64(), pa.float64(), pa.bool_(), pa.date32(), pa.timestamp("us"), pa.timestamp("us", "UTC")):
        typed, bad = convert(column, pa.field("", kind))
        if not bad and typed.null_count < len(typed):
            return kind
    return pa.string()


def json_schema(texts: list[bytes], most_columns: int) -> pa.Schema:
    """The schema that Arrow infers from the valid lines: from as many of the first ones as are consistent."""
    lines = []
    paths: set[tuple[str, ...]] = set()
    for text in texts:
        with suppress(RecursionError):
            if not _json_reason(text, pa.schema([])):
                _add_paths(json.loads(text), (), paths)
                lines.append(text.rstrip(b"\r\n") + b"\n")
        if len(paths) > most_columns:
            raise Unfit(f"its lines have more than {most_columns} different fields, the limit columns")
    while True:
        content = b"".join(lines)
        try:
            return pa_json.read_json(io.BytesIO(content), pa_json.ReadOptions(block_size=len(content) + 1)).schema
        except pa.ArrowInvalid:
            if len(lines) < 2:
                raise
            lines = lines[: len(lines) // 2]


def _add_paths(value: Any, at: tuple[str, ...], paths: set[tuple[str, ...]]) -> None:
    """The paths of all values in a JSON document: Arrow creates a column for each."""
    waiting = [(at, value)]
    while waiting:
        place, found = waiting.pop()
        if isinstance(found, dict):
            paths.update((*place, name) for name in found)
            waiting += [((*place, name), item) for name, item in found.items() if isinstance(item, dict | list)]
        elif isinstance(found, list):
            waiting += [((*place, "[]"), item) for item in found if isinstance(item, dict | list)]
