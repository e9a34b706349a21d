"""Reads rows of a Parquet file in batches of limited size, without trusting the sizes declared in the file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import BinaryIO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ppa_core.pipeline.sources.converting import Bad, beyond, brief, fit, nulls, shown, without
from ppa_core.pipeline.sources.limits import Limits, Unfit, size_of

RATIO = 1000
"""Maximum ratio of the size in memory to the size on disk, for a file that does not fit into a batch."""

_STEP_BYTES, _STEP_ROWS = 8 << 20, 1 << 16
"""Approximate bytes decoded at a time, if the declared sizes are right, and maximum rows."""

_BUFFER = 1 << 20
"""Bytes of a column that are read ahead, so that the columns of a row group are never completely in memory."""


@dataclass(frozen=True)
class Rows:
    """The rows before `stop` without the invalid ones, which are numbered from the first row read."""

    table: pa.Table
    bad: Bad
    bytes: int
    stop: int
    ended: bool


@dataclass(frozen=True)
class Unreadable:
    """The rows before `stop` are refused, all for one reason."""

    reason: str
    stop: int
    ended: bool


def schema_of(file: BinaryIO, limits: Limits) -> pa.Schema:
    try:
        with _opened(file, limits) as opened:
            return opened.schema_arrow
    except OSError as error:
        if error.errno is not None:
            raise
        raise pa.ArrowInvalid(brief(error)) from None


def read(file: BinaryIO, schema: pa.Schema, start: int, limits: Limits, most: int) -> Rows | Unreadable:
    """Read rows from `start` on: at most `most`, and about `limits.batch_bytes` of memory."""
    rows, end = 0, start
    try:
        with _opened(file, limits) as opened:
            rows, names = opened.metadata.num_rows, opened.schema_arrow.names
            _check_size(file, rows, limits)  # a row takes about a byte at least
            end = min(rows, start + most)
            lacking = [name for name in schema.names if names.count(name) != 1]
            if lacking:
                listed = shown(", ".join(names[:100]))
                return Unreadable(f"it has the columns {listed}; missing or duplicate: {', '.join(lacking)}", end, end >= rows)
            found = _rows(opened, schema.names, start, end, limits.batch_bytes)
    except (pa.ArrowException, OSError, UnicodeDecodeError, OverflowError) as error:
        if isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno is not None):
            raise  # handled by the caller
        return Unreadable(f"not a Parquet file, or damaged: {brief(error)}", end, end >= rows)
    if found.num_rows < end - start and found.nbytes < limits.batch_bytes:
        return Unreadable("not a Parquet file, or damaged: it has fewer rows than declared", end, end >= rows)
    end = start + found.num_rows
    if end < rows:
        _check_size(file, found.nbytes * rows // max(1, found.num_rows), limits)
    bad: Bad = {}
    columns = []
    for field in schema:
        column = found[field.name].combine_chunks()
        long = _too_long(column, field.name, limits.line_bytes)
        no_text: Bad = {}
        if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):  # as declared by the file
            raw = pa.binary() if pa.types.is_string(column.type) else pa.large_binary()
            column, no_text = fit(column.cast(raw), column.type, field.name)
        typed, reasons = fit(column, field.type, field.name)
        reasons |= no_text
        columns.append(typed)
        bad = nulls(typed, field, reasons) | beyond(typed, field) | reasons | long | bad
    table = without(pa.Table.from_arrays(columns, schema=schema), bad)
    try:
        table.validate(full=True)
    except pa.ArrowInvalid as error:
        return Unreadable(f"damaged: {brief(error)}", end, end >= rows)
    return Rows(table, bad, found.nbytes, end, end >= rows)


def _opened(file: BinaryIO, limits: Limits) -> pq.ParquetFile:
    file.seek(0)
    opened = pq.ParquetFile(file, pre_buffer=False, buffer_size=_BUFFER)
    if opened.metadata.num_columns > limits.columns:
        raise Unfit(f"it has {opened.metadata.num_columns} columns, above the limit columns of {limits.columns}")
    return opened


def _rows(opened: pq.ParquetFile, names: list[str], start: int, end: int, most_bytes: int) -> pa.Table:
    """Rows from `start` to before `end`, fewer if they reach `most_bytes`. Only row groups with such rows are read."""
    batches: list[pa.RecordBatch] = []
    taken = after = 0
    for number in range(opened.num_row_groups):
        group = opened.metadata.row_group(number)
        at, after = after, after + group.num_rows
        if after <= start or at >= end or taken >= most_bytes:
            continue
        step = max(1, min(_STEP_ROWS, _STEP_BYTES * group.num_rows // max(group.total_byte_size, 1)))
        for batch in opened.iter_batches(step, row_groups=[number], columns=names, use_threads=False):
            part = batch.slice(max(0, start - at), max(0, end - max(start, at)))
            at += batch.num_rows
            if part.num_rows:
                batches.append(part.select(names))
                taken += part.nbytes
            if at >= end or taken >= most_bytes:
                break
    return pa.Table.from_batches(batches, pa.schema([opened.schema_arrow.field(name) for name in names]))


def _check_size(file: BinaryIO, expected: int, limits: Limits) -> None:
    """Refuse a small file that would keep a pipeline busy for hours, although each batch of it can be read."""
    size = file.seek(0, 2)
    if expected > max(limits.batch_bytes, RATIO * size):
        reason = f"its {size_of(size)} decompress to about {size_of(expected)}, more than {RATIO} times as much"
        raise Unfit(f"{reason}; write fewer rows per file")


def _too_long(column: pa.Array, name: str, most: int) -> Bad:
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    if not (
        pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_binary(kind) or pa.types.is_large_binary(kind)
    ):
        return {}
    values = column.dictionary if pa.types.is_dictionary(column.type) else column
    longest = pc.max(pc.binary_length(values)).as_py() or 0
    if longest <= most:
        return {}
    plain = column.cast(kind)
    rows = pc.indices_nonzero(pc.greater(pc.binary_length(plain), most)).to_pylist()
    return {row: f"column {name!r}: a value of more than {size_of(most)}, the limit line_bytes" for row in rows}
