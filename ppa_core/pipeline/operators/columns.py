"""Checks of the columns that steps need, made when the pipeline is defined."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from ppa_core.errors import BadInput
from ppa_core.pipeline.kinds import is_names
from ppa_core.pipeline.streams import is_key

KEYS = "an integer, a string, bytes, a date, a time or a boolean"


def names(place: str, columns: str | Sequence[str]) -> tuple[str, ...]:
    """One or several column names, without duplicates."""
    if not is_names(columns):
        raise BadInput(place, f"invalid key {columns!r}; give a column name, or a list of names")
    found = (columns,) if isinstance(columns, str) else tuple(columns)
    if not found:
        raise BadInput(
            place, "no key; give at least one column (for one group of all tuples, add a constant column with rekey)"
        )
    if len(set(found)) < len(found):
        raise BadInput(place, f"duplicate key column: {', '.join(found)}")
    return found


def common_schema(place: str, inputs: Sequence[pa.Schema]) -> pa.Schema:
    """The schema of all inputs, which are combined into one stream and must have the same columns."""
    first, *others = [schema.remove_metadata() for schema in inputs]
    for number, other in enumerate(others, 2):
        if not other.equals(first):
            reason = f"input {number} has the columns ({listed(other)}), the first ({listed(first)})"
            raise BadInput(place, f"{reason}; combined inputs must have the same columns: convert them with map")
    return first


def field(place: str, schema: pa.Schema, column: str) -> pa.Field:
    """A column of the input."""
    if column not in schema.names:
        raise BadInput(place, f"unknown column {column!r}; the input has {', '.join(schema.names) or 'none'}")
    return schema.field(column).remove_metadata()


def typed(place: str, schema: pa.Schema, column: str, fits: Callable[[pa.DataType], bool], wanted: str) -> pa.Field:
    """A column of the input with a suitable type."""
    found = field(place, schema, column)
    if not fits(found.type):
        raise BadInput(place, f"column {column!r} is of type {found.type}; it must be {wanted}: cast it first, with map")
    return found


def key_fields(place: str, schema: pa.Schema, keys: Iterable[str]) -> list[pa.Field]:
    """The key columns of the input."""
    return [typed(place, schema, key, is_key, KEYS) for key in keys]


def together(inputs: Sequence[pa.Table]) -> pa.Table:
    """All inputs concatenated, each column in one chunk, so that results do not depend on the chunks."""
    return pa.concat_tables(inputs).replace_schema_metadata().combine_chunks()


def sorted_by(table: pa.Table, keys: Iterable[str]) -> pa.Table:
    """The rows in the order of their keys, nulls last, equal ones as they came."""
    if table.num_rows < 2:
        return table
    return table.take(pc.sort_indices(table, sort_keys=[(key, "ascending") for key in keys]))


def listed(schema: pa.Schema) -> str:
    """Columns and types for a message."""
    return ", ".join(f"{column.name}: {column.type}" for column in schema)
