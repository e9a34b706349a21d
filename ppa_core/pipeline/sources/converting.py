"""Vectorised conversion of text to typed columns. Invalid values are found by bisection, so valid input costs nothing extra."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ppa_core.errors import BadInput
from ppa_core.safety.printable import printable

Bad = dict[int, str]
"""Invalid rows, each with its reason."""

_INTEGER = r"^[-+]?(0[xX][0-9a-fA-F]+|[0-9]+)$"
_FLOATING = r"^[-+]?([0-9.]|(?i:inf|nan))"
"""Matches every text that Arrow parses as a number, and some others."""

_TIMES = ("0001-01-01", "9999-12-31")

Item = TypeVar("Item")


def check_columns(place: str, schema: pa.Schema) -> None:
    """Refuse a schema with a type that text cannot be converted to."""
    for field in schema:
        try:
            pa.array([], pa.string()).cast(field.type)
        except (pa.ArrowNotImplementedError, pa.ArrowInvalid):
            reason = f"text cannot be converted to {field.type}; use a number, string, bytes, boolean, date or time"
            raise BadInput(f"{place}, column {field.name!r}", reason) from None


def convert(column: pa.Array, field: pa.Field) -> tuple[pa.Array, Bad]:
    """Convert texts (as bytes) to the field's type, null where one is invalid. An empty text is null, except for strings."""
    wanted = field.type
    if pa.types.is_binary(wanted) or pa.types.is_large_binary(wanted):
        return column.cast(wanted), {}
    text, bad = fit(column, pa.string(), field.name)
    if not (pa.types.is_string(wanted) or pa.types.is_large_string(wanted)):
        text = pc.utf8_trim_whitespace(text)
        text = pc.if_else(pc.equal(text, ""), pa.scalar(None, pa.string()), text)
    typed, unfit = fit(text, wanted, field.name)
    bad = unfit | bad
    return typed, beyond(typed, field) | bad | nulls(typed, field, bad)


def fit(column: pa.Array, wanted: pa.DataType, name: str) -> tuple[pa.Array, Bad]:
    """Cast a column, with null for invalid values. Strings are checked to be UTF-8, whatever a file declares."""
    if _is_text(column.type) and _is_text(wanted):
        column = column.cast(pa.large_binary())
    try:
        return column.cast(wanted), {}
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        hopeless = _hopeless(column, wanted)
    rest = pc.if_else(hopeless, pa.scalar(None, column.type), column)
    bad: Bad = {}

    def attempt(first: int, end: int) -> pa.Array:
        try:
            return rest.slice(first, end - first).cast(wanted)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            if end - first > 1:
                raise
            bad[first] = ""
            return pa.nulls(1, wanted)

    typed = pa.concat_arrays(halving(len(rest), attempt))
    rows = [*bad, *pc.indices_nonzero(hopeless).to_pylist()]
    values = _listed(column.take(pa.array(rows, pa.int64())))
    return typed, {row: f"column {name!r}: {value} is not {wanted}" for row, value in zip(rows, values, strict=True)}


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _listed(column: pa.Array) -> list[str]:
    """Values for a message; strings may not be UTF-8, and times may be out of range."""
    try:
        return [shown(value) for value in column.to_pylist()]
    except (ValueError, OverflowError):
        return [f"a {column.type} that cannot be shown"] * len(column)


def _hopeless(column: pa.Array, wanted: pa.DataType) -> pa.Array:
    """Texts that are not numbers, found in one pass: if every value of a column is invalid, bisection would be slow."""
    pattern = _INTEGER if pa.types.is_integer(wanted) else _FLOATING if pa.types.is_floating(wanted) else ""
    if not pattern or not pa.types.is_string(column.type):
        return pa.array(np.zeros(len(column), bool))
    return pc.fill_null(pc.invert(pc.match_substring_regex(column, pattern)), False)


def nulls(column: pa.Array, field: pa.Field, known: Bad) -> Bad:
    """The rows without a value in a required field, except those already known to be invalid."""
    if field.nullable or not column.null_count:
        return {}
    rows = pc.indices_nonzero(pc.is_null(column)).to_pylist()
    return {row: f"column {field.name!r}: no value, but a value is required" for row in rows if row not in known}


def beyond(column: pa.Array, field: pa.Field) -> Bad:
    """The rows with a time outside the years 1 to 9999, which Python cannot represent."""
    if pa.types.is_timestamp(column.type):
        first, last = (np.datetime64(time, column.type.unit).astype(np.int64) for time in _TIMES)
    elif pa.types.is_date32(column.type):
        first, last = (np.datetime64(time, "D").astype(np.int64) for time in _TIMES)
    else:
        return {}
    number = column.cast(pa.int32() if pa.types.is_date32(column.type) else pa.int64())
    ends = pc.min_max(number).as_py()
    if ends["min"] is None or (first <= ends["min"] and ends["max"] <= last):
        return {}
    outside = pc.fill_null(pc.or_(pc.less(number, int(first)), pc.greater(number, int(last))), False)
    reason = f"column {field.name!r}: a time outside the years 1 to 9999"
    return dict.fromkeys(pc.indices_nonzero(outside).to_pylist(), reason)


def halving(count: int, attempt: Callable[[int, int], Item]) -> list[Item]:
    """The results of `attempt` for all items from first to before end, or for halves, quarters, … where it raises ArrowInvalid.

    It must not raise for a single item.
    """
    made: list[Item] = []
    waiting = [(0, count)]
    while waiting:
        first, end = waiting.pop()
        try:
            made.append(attempt(first, end))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            middle = (first + end) // 2
            waiting += [(middle, end), (first, middle)]
    return made


def shown(value: object) -> str:
    """A value for a message, shortened."""
    cut = value[:100] if isinstance(value, str | bytes) else value
    text = repr(cut)
    return text if len(text) <= 60 else text[:57] + "…"


def without(table: pa.Table, bad: Bad) -> pa.Table:
    """The table without the invalid rows."""
    if not bad:
        return table
    good = np.ones(table.num_rows, bool)
    good[list(bad)] = False
    return table.filter(pa.array(good))


def brief(error: BaseException) -> str:
    """The first line of a library's error message, made printable because it may quote input."""
    return printable(str(error).partition("\n")[0], 200)
