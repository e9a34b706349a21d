"""Columns that steps need: there, and of the right type, or refused when the pipeline is defined."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from ppa_core.errors import BadInput
from ppa_core.pipeline.kinds import is_names
from ppa_core.pipeline.streams import is_key

KEYS = "a whole number, a text, bytes, a date, a time or a boolean"


def names(place: str, columns: str | Sequence[str]) -> tuple[str, ...]:
    """One or several columns' names, each once."""
    if not is_names(columns):
        raise BadInput(place, f"a key of {columns!r}; name a column, or several in a list")
    found = (columns,) if isinstance(columns, str) else tuple(columns)
    if not found:
        raise BadInput(place, "no key; name at least one column (to bring all tuples together, add a constant one with rekey)")
    if len(set(found)) < len(found):
        raise BadInput(place, f"a key column twice: {', '.join(found)}")
    return found


def common_schema(place: str, inputs: Sequence[pa.Schema]) -> pa.Schema:
    """The schema of all inputs: several are taken as one stream, so they must have the same columns."""
    first, *others = [schema.remove_metadata() for schema in inputs]
    for number, other in enumerate(others, 2):
        if not other.equals(first):
            reason = f"input {number} has the columns ({listed(other)}), the first ({listed(first)})"
            raise BadInput(place, f"{reason}; inputs that are taken together have the same columns: make them so with map")
    return first


def field(place: str, schema: pa.Schema, column: str) -> pa.Field:
    """A column of the input."""
    if column not in schema.names:
        raise BadInput(place, f"there is no column {column!r}; the input has {', '.join(schema.names) or 'none'}")
    return schema.field(column).remove_metadata()


def typed(place: str, schema: pa.Schema, column: str, fits: Callable[[pa.DataType], bool], wanted: str) -> pa.Field:
    """A column of the input that is of a fitting type."""
    found = field(place, schema, column)
    if not fits(found.type):
        raise BadInput(place, f"column {column!r} is of type {found.type}; it must be {wanted}: cast it before, with map")
    return found


def key_fields(place: str, schema: pa.Schema, keys: Iterable[str]) -> list[pa.Field]:
    """The key columns of the input."""
    return [typed(place, schema, key, is_key, KEYS) for key in keys]


def together(inputs: Sequence[pa.Table]) -> pa.Table:
    """All inputs one after the other, each column in one piece: how they came in pieces must not show."""
    return pa.concat_tables(inputs).replace_schema_metadata().combine_chunks()


def sorted_by(table: pa.Table, keys: Iterable[str]) -> pa.Table:
    """The rows in the order of their keys, nulls last, equal ones as they came."""
    if table.num_rows < 2:
        return table
    return table.take(pc.sort_indices(table, sort_keys=[(key, "ascending") for key in keys]))


def listed(schema: pa.Schema) -> str:
    """Columns and types for a message."""
    return ", ".join(f"{column.name}: {column.type}" for column in schema)
