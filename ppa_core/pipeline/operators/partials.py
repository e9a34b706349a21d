"""Partial aggregates: stored for a slice of a stream instead of its tuples, one row per key, sorted by key.

Partials of neighbouring slices can be merged. The bytes of a partial depend only on the tuples and their order: rows are
sorted, and floating-point numbers are added in the order of the rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ppa_core.pipeline.operators.columns import sorted_by

Kind = Literal["rows", "count", "sum", "min", "max"]


@dataclass(frozen=True)
class Part:
    """A column of a partial: the number of tuples, or of a column the number of values, their sum, least or greatest."""

    kind: Kind
    column: str = ""
    exact: bool = True
    """Whether subtracting a slice from a merged partial gives exactly the partial without that slice."""

    @property
    def name(self) -> str:
        return f"{self.kind}.{self.column}"


ROWS = Part("rows")


@dataclass(frozen=True)
class Partials:
    """Partial aggregates by `keys` with the columns `parts`. Nulls are a key of their own, and no values."""

    keys: tuple[str, ...]
    parts: tuple[Part, ...] = (ROWS,)

    @property
    def exact(self) -> bool:
        return all(part.exact for part in self.parts)

    @property
    def names(self) -> list[str]:
        """The key columns of a partial."""
        return [f"key.{i}" for i in range(len(self.keys))]

    def of(self, rows: pa.Table) -> pa.Table:
        """The partial of tuples."""
        columns = {name: rows[key] for name, key in zip(self.names, self.keys, strict=True)}
        columns |= {part.name: _prepared(part, rows[part.column]) for part in self.parts if part.column}
        functions: dict[str, str] = {part.name: part.kind for part in self.parts}
        return self._grouped(pa.table(columns), functions | {ROWS.name: "count_all"})

    def merged(self, partials: Sequence[pa.Table]) -> pa.Table:
        """The partial of all slices, given oldest first; at least one."""
        if len(partials) == 1:
            return partials[0]
        functions = {part.name: part.kind if part.kind in ("min", "max") else "sum" for part in self.parts}
        return self._grouped(pa.concat_tables(partials), functions)

    def without(self, partial: pa.Table, old: pa.Table) -> pa.Table:
        """An exact partial without one of its merged slices; keys without remaining tuples are removed."""
        assert self.exact
        negative = [old[name] for name in self.names] + [pc.negate(old[part.name]) for part in self.parts]
        left = self.merged([partial, pa.Table.from_arrays(negative, schema=old.schema)])
        return left.filter(pc.not_equal(left[ROWS.name], 0))

    def _grouped(self, table: pa.Table, functions: dict[str, str]) -> pa.Table:
        """One row for each key; in one thread, so that numbers are added in the order of rows."""
        wanted = [([], f) if f == "count_all" else (name, f) for name, f in functions.items()]
        grouped = table.group_by(self.names, use_threads=False).aggregate(wanted)
        made = [f if f == "count_all" else f"{name}_{f}" for name, f in functions.items()]
        grouped = grouped.select([*self.names, *made]).rename_columns([*self.names, *functions])
        for part in self.parts:
            if part.kind == "sum":
                grouped = _sums(part, table, grouped, self.names)
        return sorted_by(grouped.combine_chunks(), self.names)


def _prepared(part: Part, column: pa.ChunkedArray) -> pa.ChunkedArray:
    """The values to aggregate: whole numbers to add are 64-bit, and what is not a number has no place in an order."""
    if part.kind == "sum":
        return column.cast(pa.int64() if part.exact else pa.float64())
    if part.kind in ("min", "max") and pa.types.is_floating(column.type):
        return pc.if_else(pc.is_nan(column), pa.scalar(None, column.type), column)
    return column


def _sums(part: Part, table: pa.Table, grouped: pa.Table, keys: list[str]) -> pa.Table:
    """The sums with 0 where there is no value; raises OverflowError if one of whole numbers does not fit 64 bits."""
    place = grouped.column_names.index(part.name)
    grouped = grouped.set_column(place, part.name, grouped[part.name].fill_null(0))
    if not part.exact or not table.num_rows:
        return grouped
    bounds = pc.min_max(table[part.name]).as_py()
    if any(abs(bound or 0) * table.num_rows >= 2**63 for bound in bounds.values()):
        floats = table.select(keys).append_column("value", table[part.name].cast(pa.float64(), safe=False))
        about = floats.group_by(keys, use_threads=False).aggregate([("value", "sum")])["value_sum"].fill_null(0)
        # A sum that does not fit comes out wrong by 2⁶⁴ or more; groups come in the same order both times.
        if np.any(np.abs(about.to_numpy() - grouped[part.name].to_numpy().astype(np.float64)) > 2.0**62):
            raise OverflowError(f"the sum of {part.column!r} does not fit into 64 bits; cast it to float64 first, with map")
    return grouped
