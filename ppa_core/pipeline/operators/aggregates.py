"""Aggregates by key over a window: count, sum, mean, min, max, distinct, alone or several at once.

A result has a row for each key that has tuples in the window, sorted by key. It is produced in the batch that ends a slide; in
other batches the output is empty. Null is a key of its own, as in GROUP BY, and is sorted last.

For complete results, all tuples of a key must be in one task: partition the input by a key column, or use one-to-one after an
operator whose input is partitioned by it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa

from ppa_core.errors import BadInput
from ppa_core.pipeline.definition import Context, Result
from ppa_core.pipeline.operators.columns import common_schema, key_fields, names, together
from ppa_core.pipeline.operators.measures import Count, Distinct, Max, Mean, Measure, Min, Sum
from ppa_core.pipeline.operators.partials import ROWS, Partials
from ppa_core.pipeline.operators.slices import Segments, slide
from ppa_core.pipeline.operators.windows import Window, check_window

By = str | Sequence[str]


def aggregate(*, by: By, window: Window, **columns: Measure) -> Aggregate:
    """Several measures at once: `aggregate(by="shop", window=tumbling(60), sales=Count(), value=Sum("price"))`."""
    return Aggregate(names("aggregate", by), window, tuple(columns.items()))


def count(column: str | None = None, *, by: By, window: Window, name: str = "count") -> Aggregate:
    """The number of tuples of each key; with a column, of those in which it is not null."""
    return aggregate(by=by, window=window, **{name: Count(column)})


def sum(column: str, *, by: By, window: Window, name: str = "sum") -> Aggregate:
    """The sum of a column for each key: int64 for integers, float64 for others."""
    return aggregate(by=by, window=window, **{name: Sum(column)})


def mean(column: str, *, by: By, window: Window, name: str = "mean") -> Aggregate:
    """The mean of a column for each key."""
    return aggregate(by=by, window=window, **{name: Mean(column)})


def min(column: str, *, by: By, window: Window, name: str = "min") -> Aggregate:
    """The least value of a column for each key."""
    return aggregate(by=by, window=window, **{name: Min(column)})


def max(column: str, *, by: By, window: Window, name: str = "max") -> Aggregate:
    """The greatest value of a column for each key."""
    return aggregate(by=by, window=window, **{name: Max(column)})


def distinct(column: str, *, by: By, window: Window, name: str = "distinct") -> Aggregate:
    """The number of different values of a column for each key."""
    return aggregate(by=by, window=window, **{name: Distinct(column)})


@dataclass(frozen=True)
class Aggregate:
    """Measures by key over a window; the output has the key columns, then one for each measure. See `aggregate`."""

    by: tuple[str, ...]
    window: Window
    measures: tuple[tuple[str, Measure], ...]

    correlated: ClassVar[bool] = False
    selectivity: ClassVar[float] = 1.0

    def __post_init__(self) -> None:
        check_window(self._place, self.window)
        if not self.measures:
            raise BadInput(self._place, "no measure; give an output column and its measure, such as n=Count()")
        for name, measure in self.measures:
            if name in self.by:
                raise BadInput(self._place, f"the measure {name!r} is also a key; give it another name")
            if isinstance(measure, type) or not callable(getattr(measure, "parts", None)):
                raise BadInput(self._place, f"{name!r} is not a measure; use Count(), Sum(column), Mean(column), …")

    @property
    def keyed_by(self) -> tuple[str, ...]:
        return self.by

    def output_schema(self, inputs: Sequence[pa.Schema]) -> pa.Schema:
        schema = common_schema(self._place, inputs)
        measured = [pa.field(name, measure.type(self._place, schema)) for name, measure in self.measures]
        return pa.schema([*key_fields(self._place, schema, self.by), *measured])

    def lookback_batches(self, batch_seconds: float) -> int:
        return self.window.slices(batch_seconds).length

    def __call__(self, context: Context, state: Mapping[str, pa.Table], inputs: Sequence[pa.Table], /) -> Result:
        rows, slices = together(inputs), self.window.slices(context.batch_seconds)
        windows: dict[str, pa.Table | None] = {}
        add: dict[str, pa.Table] = {}
        drop: list[str] = []
        for prefix, partials in self._partials(rows.schema):
            segments = Segments(state, prefix)
            windows[prefix] = slide(partials, slices, context.batch, partials.of(rows), segments)
            add |= segments.add
            drop += segments.drop
        return Result(self._output(rows.schema, windows), add, drop)

    def _partials(self, schema: pa.Schema) -> Iterator[tuple[str, Partials]]:
        """The partials to keep, with the prefix of their segments: those by key, and by key and value for distinct ones."""
        parts = {part: None for _, measure in self.measures for part in measure.parts(schema)}
        yield "", Partials(self.by, (ROWS, *parts))
        for column in {measure.column: None for _, measure in self.measures if isinstance(measure, Distinct)}:
            yield f"{column}/", Partials((*self.by, column))

    def _output(self, schema: pa.Schema, windows: Mapping[str, pa.Table | None]) -> pa.Table:
        """The measures of the keys in the window. All partials have the same keys in the same order."""
        made = self.output_schema([schema])
        if (base := windows[""]) is None:
            return made.empty_table()
        columns = base.columns[: len(self.by)]
        for _, measure in self.measures:
            partial = windows[f"{measure.column}/"] if isinstance(measure, Distinct) else base
            columns.append(measure.value(partial, schema))
        return pa.Table.from_arrays(columns, schema=made)

    @property
    def _place(self) -> str:
        return f"aggregate by {', '.join(self.by)}"
