"""The equi-join of streams over a window.

Tuples of all inputs with equal keys in one window are combined. Each combination is produced once, in the batch that ends the
slide of its newest tuple. As in SQL, a null key equals nothing.

The state is a segment `<input>.<batch>` for each input and batch of the window: the tuples sorted by the hash of their key,
with the hash in a last column. New tuples are looked up in them by binary search; old ones are not compared again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ppa_core.errors import BadInput
from ppa_core.pipeline.definition import Context, Result
from ppa_core.pipeline.operators.columns import key_fields, names, sorted_by
from ppa_core.pipeline.operators.slices import Segments
from ppa_core.pipeline.operators.windows import Window, check_window
from ppa_core.pipeline.streams import Hashes, Ints, hash_column, mix


def join(on: str | Sequence[str], window: Window) -> Join:
    """Combinations of tuples, one of each input, with equal values in the columns `on` and in one window.

    The output has the columns `on` and then the other columns of each input; it is sorted by key. With more than one task all
    inputs must be partitioned alike, by one of the columns `on`.
    """
    return Join(names("join", on), window)


@dataclass(frozen=True)
class Join:
    """See `join`."""

    on: tuple[str, ...]
    window: Window

    correlated: ClassVar[bool] = True
    selectivity: ClassVar[float] = 1.0

    def __post_init__(self) -> None:
        check_window(f"join on {', '.join(self.on)}", self.window)

    @property
    def keyed_by(self) -> tuple[str, ...]:
        return self.on

    def output_schema(self, inputs: Sequence[pa.Schema]) -> pa.Schema:
        place = f"join on {', '.join(self.on)}"
        if len(inputs) < 2:
            raise BadInput(place, "a join with one input; give at least two upstreams")
        fields = key_fields(place, inputs[0], self.on)
        for number, schema in enumerate(inputs, 1):
            for key, found in zip(fields, key_fields(f"{place}, input {number}", schema, self.on), strict=True):
                if found.type != key.type:
                    reason = f"key {key.name!r} is of type {found.type} here and {key.type} in the first input"
                    raise BadInput(f"{place}, input {number}", f"{reason}; cast one of them first, with map")
        for number, schema in enumerate(inputs, 1):
            for column in schema:
                if column.name not in self.on and any(column.name == other.name for other in fields):
                    reason = f"an earlier input has a column {column.name!r} too; rename one of them first, with map"
                    raise BadInput(f"{place}, input {number}", reason)
            fields += [column.remove_metadata() for column in schema if column.name not in self.on]
        return pa.schema(fields)

    def lookback_batches(self, batch_seconds: float) -> int:
        return self.window.slices(batch_seconds).length

    def __call__(self, context: Context, state: Mapping[str, pa.Table], inputs: Sequence[pa.Table], /) -> Result:
        slices, batch = self.window.slices(context.batch_seconds), context.batch
        segments = Segments(state)
        made = self.output_schema([table.schema for table in inputs])
        for number, table in enumerate(inputs):
            segments.put(f"{number}.{batch}", self._by_hash(table))
        if not slices.closes(batch):
            return Result(made.empty_table(), segments.add, segments.drop)
        first, fresh = max(batch + 1 - slices.length, 0), batch + 1 - slices.slide
        old = [_there(segments, number, range(first, fresh)) for number in range(len(inputs))]
        new = [_there(segments, number, range(fresh, batch + 1)) for number in range(len(inputs))]
        found = pa.concat_tables([made.empty_table(), *self._combinations(old, new, made)]).combine_chunks()
        for number in range(len(inputs)):
            for b in range(first, batch + 1 + slices.slide - slices.length):  # before the next window
                segments.remove(f"{number}.{b}")
        return Result(sorted_by(found, self.on), segments.add, segments.drop)

    def _combinations(self, old: list[list[pa.Table]], new: list[list[pa.Table]], made: pa.Schema) -> list[pa.Table]:
        """All combinations with a new tuple, each once: `begin` is the last input that contributes a new tuple."""
        found = []
        for begin, tables in enumerate(new):
            if tables:
                others = {i: old[i] + (new[i] if i < begin else []) for i in range(len(new)) if i != begin}
                rows = self._with_others(begin, pa.concat_tables(tables), others)
                if rows is not None:
                    columns = {name: column for table in rows for name, column in zip(table.column_names, table, strict=True)}
                    found.append(pa.table([columns[name] for name in made.names], schema=made))
        return found

    def _with_others(self, begin: int, new: pa.Table, others: Mapping[int, list[pa.Table]]) -> list[pa.Table] | None:
        """The tuples `new` of one input with the matching ones of every other input: for each input, its part of the rows."""
        rows = {begin: new}
        for number, tables in others.items():
            matches = [self._matches(rows[begin], table) for table in tables]
            left = np.concatenate([np.zeros(0, np.int64), *(mine for mine, _ in matches)])
            if not len(left):
                return None
            taken = [table.take(pa.array(its)) for table, (_, its) in zip(tables, matches, strict=True) if len(its)]
            rows = {i: table.take(pa.array(left)) for i, table in rows.items()}
            rows[number] = pa.concat_tables(taken)
        return [rows[i].select(range(rows[i].num_columns - 1)) for i in sorted(rows, reverse=True)]

    def _matches(self, rows: pa.Table, table: pa.Table) -> tuple[Ints, Ints]:
        """The pairs of rows with equal keys; `table` is sorted by hash."""
        mine, its = _hashes(rows), _hashes(table)
        starts, ends = np.searchsorted(its, mine, "left"), np.searchsorted(its, mine, "right")
        counts = ends - starts
        left = np.repeat(np.arange(len(mine)), counts)
        right = np.arange(len(left)) + np.repeat(starts - (np.cumsum(counts) - counts), counts)
        same = np.ones(len(left), bool)
        for key in self.on:  # different keys can have the same hash
            equal = pc.equal(rows[key].take(pa.array(left)), table[key].take(pa.array(right)))
            same &= equal.to_numpy() if len(left) else same
        return left[same], right[same]

    def _by_hash(self, rows: pa.Table) -> pa.Table:
        """The rows without null keys, in a stable order by the hash of the key, with the hash as the last column."""
        for key in self.on:
            if rows[key].null_count:
                rows = rows.filter(pc.is_valid(rows[key]))
        hashes = hash_column(rows[self.on[0]])
        for key in self.on[1:]:
            hashes = mix(hashes) ^ hash_column(rows[key])
        order = np.argsort(hashes, kind="stable")
        return rows.take(pa.array(order)).append_column("hash of the key", pa.array(hashes[order])).combine_chunks()


def _hashes(table: pa.Table) -> Hashes:
    return np.asarray(table.column(table.num_columns - 1).to_numpy())


def _there(segments: Segments, number: int, batches: range) -> list[pa.Table]:
    found = (segments.get(f"{number}.{batch}") for batch in batches)
    return [table for table in found if table is not None]
