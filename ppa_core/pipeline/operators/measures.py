"""Measures: aggregate functions for the tuples of a key. As in SQL, nulls are ignored, and a measure without values is null.

`Count` and `Distinct` are 0 then, never null.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from ppa_core.pipeline.operators.columns import KEYS, typed
from ppa_core.pipeline.operators.partials import ROWS, Part
from ppa_core.pipeline.streams import is_key


class Measure(Protocol):
    """A column of an aggregate's output."""

    @property
    def column(self) -> str | None:
        """The column that is measured; None for whole tuples."""

    def type(self, place: str, schema: pa.Schema) -> pa.DataType:
        """The type of the measure. Raises BadInput if the column is missing or has an unsuitable type."""

    def parts(self, schema: pa.Schema) -> tuple[Part, ...]:
        """The columns of partial aggregates that it needs."""

    def value(self, partial: pa.Table, schema: pa.Schema) -> pa.ChunkedArray:
        """The measure of each key."""


@dataclass(frozen=True)
class Count:
    """The number of tuples; with a column, of those in which it is not null."""

    column: str | None = None

    def type(self, place: str, schema: pa.Schema) -> pa.DataType:
        if self.column is not None:
            typed(place, schema, self.column, lambda kind: True, "present")
        return pa.int64()

    def parts(self, schema: pa.Schema) -> tuple[Part, ...]:
        return () if self.column is None else (Part("count", self.column),)

    def value(self, partial: pa.Table, schema: pa.Schema) -> pa.ChunkedArray:
        return partial[(ROWS if self.column is None else Part("count", self.column)).name]


@dataclass(frozen=True)
class Sum:
    """The sum: an exact int64 for integers (an overflow is an error), a float64 for others."""

    column: str

    def type(self, place: str, schema: pa.Schema) -> pa.DataType:
        kind = typed(place, schema, self.column, _is_number, "an integer or a floating-point number").type
        return pa.int64() if pa.types.is_integer(kind) else pa.float64()

    def parts(self, schema: pa.Schema) -> tuple[Part, ...]:
        whole = bool(pa.types.is_integer(schema.field(self.column).type))
        return Part("count", self.column), Part("sum", self.column, exact=whole)

    def value(self, partial: pa.Table, schema: pa.Schema) -> pa.ChunkedArray:
        count, total = (partial[part.name] for part in self.parts(schema))
        return pc.if_else(pc.equal(count, 0), pa.scalar(None, total.type), total)


@dataclass(frozen=True)
class Mean(Sum):
    """The mean, a float64."""

    def type(self, place: str, schema: pa.Schema) -> pa.DataType:
        super().type(place, schema)
        return pa.float64()

    def value(self, partial: pa.Table, schema: pa.Schema) -> pa.ChunkedArray:
        total = super().value(partial, schema).cast(pa.float64(), safe=False)
        return pc.divide(total, partial[Part("count", self.column).name].cast(pa.float64()))


@dataclass(frozen=True)
class Min:
    """The least value, of the column's own type; NaN counts as no value."""

    column: str
    kind: ClassVar[Literal["min", "max"]] = "min"

    def type(self, place: str, schema: pa.Schema) -> pa.DataType:
        return typed(place, schema, self.column, _is_ordered, "a number, a string, bytes, a date, a time or a boolean").type

    def parts(self, schema: pa.Schema) -> tuple[Part, ...]:
        return (Part(self.kind, self.column, exact=False),)

    def value(self, partial: pa.Table, schema: pa.Schema) -> pa.ChunkedArray:
        return partial[Part(self.kind, self.column).name]


@dataclass(frozen=True)
class Max(Min):
    """The greatest value, of the column's own type; NaN counts as no value."""

    kind: ClassVar[Literal["min", "max"]] = "max"


@dataclass(frozen=True)
class Distinct:
    """The number of distinct values. It uses separate partials, by key and value."""

    column: str

    def type(self, place: str, schema: pa.Schema) -> pa.DataType:
        typed(place, schema, self.column, is_key, KEYS)
        return pa.int64()

    def parts(self, schema: pa.Schema) -> tuple[Part, ...]:
        return ()

    def value(self, partial: pa.Table, schema: pa.Schema) -> pa.ChunkedArray:
        *keys, value = [name for name in partial.column_names if name.startswith("key.")]
        counted = partial.group_by(keys, use_threads=False).aggregate([(value, "count")])
        return counted.take(pc.sort_indices(counted, sort_keys=[(key, "ascending") for key in keys]))[f"{value}_count"]


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_float32(kind) or pa.types.is_float64(kind))


def _is_ordered(kind: pa.DataType) -> bool:
    return (_is_number(kind) or is_key(kind)) and not pa.types.is_duration(kind)
