"""Stateless steps, batch by batch: map, flat_map, filter, rekey.

The functions work on whole Arrow tables, never on single tuples. Each is called with an empty table when the pipeline is
defined: that gives the columns of its output and finds a misspelt column at once. Functions must accept empty tables anyway,
because a batch can be empty.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ppa_core.errors import BadInput
from ppa_core.pipeline.definition import Context, Result
from ppa_core.pipeline.operators.columns import KEYS, common_schema, field, listed, together
from ppa_core.pipeline.streams import is_key

OfTable = Callable[[pa.Table], pa.Table]
Column = Any
"""An Arrow array, chunked or not, or a numpy array."""


def map(function: OfTable, schema: pa.Schema | None = None) -> Map:
    """Apply a function that keeps the number of rows. With a `schema`, the result is cast to it; column names must match."""
    return Map(function, schema)


def flat_map(function: OfTable, schema: pa.Schema | None = None, *, selectivity: float = 1.0) -> Map:
    """Apply a function that may change the number of rows: about `selectivity` output rows per input row."""
    return Map(function, schema, selectivity, flat=True)


def filter(predicate: Callable[[pa.Table], Column] | pc.Expression, *, selectivity: float = 1.0) -> Filter:
    """The rows for which `predicate` is true; as in SQL, not those for which it is null. `selectivity` is their expected share.

    The predicate is a function from a table to a boolean column, or an expression such as `pc.field("price") > 100`.
    """
    return Filter(predicate, selectivity)


def rekey(key: str, of: str | Callable[[pa.Table], Column]) -> Rekey:
    """The same rows with a column `key`: another column, renamed, or the result of a function of the table."""
    return Rekey(key, of)


@dataclass(frozen=True)
class Map:
    """See `map` and `flat_map`."""

    function: OfTable
    schema: pa.Schema | None = None
    selectivity: float = 1.0
    flat: bool = False

    correlated: ClassVar[bool] = False
    keyed_by: ClassVar[tuple[str, ...]] = ()

    def output_schema(self, inputs: Sequence[pa.Schema]) -> pa.Schema:
        made = _tried(self._name, self._made, common_schema(self._name, inputs))
        return made.schema.remove_metadata()

    def lookback_batches(self, batch_seconds: float) -> int:
        return 0

    def __call__(self, context: Context, state: Mapping[str, pa.Table], inputs: Sequence[pa.Table], /) -> Result:
        rows = together(inputs)
        made = self._made(rows)
        if not self.flat and made.num_rows != rows.num_rows:
            raise ValueError(
                f"map returned {made.num_rows} rows for {rows.num_rows}; use flat_map to change the number of rows"
            )
        return Result(made)

    def _made(self, rows: pa.Table) -> pa.Table:
        made = self.function(rows)
        if not isinstance(made, pa.Table):
            raise TypeError(f"the function returned {type(made).__name__}, not a pyarrow.Table")
        if self.schema is None or made.schema.equals(self.schema):
            return made
        if made.column_names != self.schema.names:
            raise TypeError(
                f"the function returned the columns ({listed(made.schema)}), but the schema has ({listed(self.schema)})"
            )
        return made.cast(self.schema)

    @property
    def _name(self) -> str:
        return "flat_map" if self.flat else "map"


@dataclass(frozen=True, eq=False)
class Filter:
    """See `filter`."""

    predicate: Callable[[pa.Table], Column] | pc.Expression
    selectivity: float = 1.0

    correlated: ClassVar[bool] = False
    keyed_by: ClassVar[tuple[str, ...]] = ()
    keeps_columns: ClassVar[bool] = True

    def output_schema(self, inputs: Sequence[pa.Schema]) -> pa.Schema:
        schema = common_schema("filter", inputs)
        _tried("filter", self._kept, schema)
        return schema

    def lookback_batches(self, batch_seconds: float) -> int:
        return 0

    def __call__(self, context: Context, state: Mapping[str, pa.Table], inputs: Sequence[pa.Table], /) -> Result:
        return Result(self._kept(together(inputs)))

    def _kept(self, rows: pa.Table) -> pa.Table:
        if isinstance(self.predicate, pc.Expression):
            return rows.filter(self.predicate)
        mask = _arrow(self.predicate(rows))
        if not pa.types.is_boolean(mask.type):
            raise TypeError(f"the predicate returned {mask.type}, not booleans; use a comparison")
        return rows.filter(mask)

    def __eq__(self, other: object) -> bool:
        """Expressions need `equals`: their == returns another expression."""
        if not isinstance(other, Filter) or self.selectivity != other.selectivity:
            return False
        mine, its = self.predicate, other.predicate
        if isinstance(mine, pc.Expression) and isinstance(its, pc.Expression):
            return bool(mine.equals(its))
        return type(mine) is type(its) and bool(mine == its)

    def __hash__(self) -> int:
        return hash((str(self.predicate), self.selectivity))


@dataclass(frozen=True)
class Rekey:
    """See `rekey`."""

    key: str
    of: str | Callable[[pa.Table], Column]

    correlated: ClassVar[bool] = False
    selectivity: ClassVar[float] = 1.0
    keyed_by: ClassVar[tuple[str, ...]] = ()

    def output_schema(self, inputs: Sequence[pa.Schema]) -> pa.Schema:
        place = f"rekey {self.key!r}"
        schema = common_schema(place, inputs)
        if isinstance(self.of, str):
            field(place, schema, self.of)
            if self.key in schema.names and self.key != self.of:
                raise BadInput(place, f"duplicate column {self.key!r}; choose another name")
        made = _tried(place, self._rows, schema).schema
        if not is_key(made.field(self.key).type):
            raise BadInput(place, f"the key is of type {made.field(self.key).type}; a key must be {KEYS}")
        return made

    def lookback_batches(self, batch_seconds: float) -> int:
        return 0

    def __call__(self, context: Context, state: Mapping[str, pa.Table], inputs: Sequence[pa.Table], /) -> Result:
        return Result(self._rows(together(inputs)))

    def _rows(self, rows: pa.Table) -> pa.Table:
        if isinstance(self.of, str):
            return rows.rename_columns([self.key if name == self.of else name for name in rows.column_names])
        column = _arrow(self.of(rows))
        if self.key in rows.column_names:
            return rows.set_column(rows.column_names.index(self.key), self.key, column)
        return rows.append_column(self.key, column)


def _tried(place: str, function: Callable[[pa.Table], Any], schema: pa.Schema) -> Any:
    """The result of a user's function for an empty table."""
    try:
        return function(schema.empty_table())
    except Exception as error:
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        has = ", ".join(schema.names)
        raise BadInput(place, f"called on an empty table with the columns {has}, it raised {reason}") from error


def _arrow(column: Column) -> pa.Array | pa.ChunkedArray:
    return pa.array(column) if isinstance(column, np.ndarray) else column
