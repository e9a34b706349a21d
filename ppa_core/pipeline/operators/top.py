"""The rows with the largest values: of a batch, or of an aggregate over a window."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from ppa_core.errors import BadInput
from ppa_core.pipeline.definition import Context, Result
from ppa_core.pipeline.kinds import is_whole
from ppa_core.pipeline.operators.aggregates import Aggregate
from ppa_core.pipeline.operators.columns import common_schema, together, typed


def top(k: int, column: str, of: Aggregate | None = None) -> Top:
    """The `k` rows with the largest values of `column`, largest first: of the aggregate `of`, or of the input.

    If keys are spread over several tasks, compute the top of each task and then, in one task, the top of these:
    `top(10, "count", of=count(by="word", window=sliding(60)))` followed by `top(10, "count")`. Ties are ordered by the other
    columns, ascending. Rows in which `column` is null or NaN are left out.
    """
    return Top(k, column, of)


@dataclass(frozen=True)
class Top:
    """See `top`."""

    k: int
    column: str
    of: Aggregate | None = None

    correlated: ClassVar[bool] = False
    selectivity: ClassVar[float] = 1.0

    def __post_init__(self) -> None:
        if not is_whole(self.k) or self.k < 1:
            raise BadInput(f"top {self.k!r}", "it must be a whole number, at least 1")

    @property
    def keyed_by(self) -> tuple[str, ...]:
        return self.of.keyed_by if self.of else ()

    def output_schema(self, inputs: Sequence[pa.Schema]) -> pa.Schema:
        place = f"top {self.k}"
        schema = self.of.output_schema(inputs) if self.of else common_schema(place, inputs)
        typed(place, schema, self.column, _is_ordered, "a number, a string, a date or a time")
        return schema

    def lookback_batches(self, batch_seconds: float) -> int:
        return self.of.lookback_batches(batch_seconds) if self.of else 0

    def __call__(self, context: Context, state: Mapping[str, pa.Table], inputs: Sequence[pa.Table], /) -> Result:
        if self.of is None:
            return Result(self._top(together(inputs)))
        result = self.of(context, state, inputs)
        return replace(result, output=self._top(result.output))

    def _top(self, rows: pa.Table) -> pa.Table:
        values = rows[self.column]
        valid = pc.is_valid(values)
        if pa.types.is_floating(values.type):
            valid = pc.and_kleene(valid, pc.invert(pc.is_nan(values)))
        rows = rows.filter(valid).combine_chunks()
        if rows.num_rows > self.k:  # keep all rows equal to the k-th, so that ties are ordered below
            values = rows[self.column]
            last = values.take(pc.select_k_unstable(values, self.k, [(self.column, "descending")])[-1:])[0]
            rows = rows.filter(pc.greater_equal(values, last)).combine_chunks()
        others = [(field.name, "ascending") for field in rows.schema if field.name != self.column and _is_ordered(field.type)]
        order = pc.sort_indices(rows, sort_keys=[(self.column, "descending"), *others])
        return rows.take(order[: self.k])


def _is_ordered(kind: pa.DataType) -> bool:
    return not (pa.types.is_nested(kind) or pa.types.is_null(kind) or pa.types.is_float16(kind) or pa.types.is_interval(kind))
