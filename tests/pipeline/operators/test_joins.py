"""Joins against nested loops, and hashes that collide."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ppa_core.pipeline import operators as op
from ppa_core.pipeline.operators import joins
from tests.pipeline.operators.running import Batches, in_pieces, run, windows

KEYS = st.tuples(st.sampled_from(["a", "b", None]), st.sampled_from([0, 1, None]))


def tables(name: str) -> st.SearchStrategy[pa.Table]:
    rows = st.lists(st.tuples(KEYS, st.integers(0, 3)), max_size=4)
    schema = pa.schema({"k": pa.string(), "j": pa.int16(), name: pa.int64()})
    return rows.map(
        lambda rows: pa.table([[r[0][0] for r in rows], [r[0][1] for r in rows], [r[1] for r in rows]], schema=schema)
    )


def streams(inputs: int) -> st.SearchStrategy[Batches]:
    return st.lists(st.tuples(*(tables("xyz"[i]) for i in range(inputs))), min_size=1, max_size=8)


def expected(batches: Batches, window: op.Window, on: list[str], batch: int) -> list[dict[str, Any]]:
    """All combinations in the window of which the newest tuple is in the slide that ends with the batch."""
    assert window.every is not None
    if (batch + 1) % window.every:
        return []
    first, fresh = max(0, batch + 1 - int(window.length)), batch + 1 - int(window.every)
    inputs = range(len(batches[0]))
    there = [[(b, row) for b in range(first, batch + 1) for row in batches[b][i].to_pylist()] for i in inputs]
    found = []
    for combination in product(*there):
        keys = {tuple(row[key] for key in on) for _, row in combination}
        if len(keys) == 1 and None not in next(iter(keys)) and max(b for b, _ in combination) >= fresh:
            found.append({name: value for _, row in reversed(combination) for name, value in row.items()})
    return found


def ordered(rows: list[dict[str, Any]]) -> list[list[tuple[str, Any]]]:
    return sorted(sorted(row.items()) for row in rows)


@settings(max_examples=60, deadline=None)
@given(st.sampled_from([2, 3]).flatmap(streams), windows())
def test_joins_are_those_of_nested_loops(batches: Batches, window: op.Window) -> None:
    on, step = ["k", "j"], op.join(["k", "j"], window)
    ran = run(step, batches)
    for batch, output in ran.outputs.items():
        assert output.schema.equals(step.output_schema([table.schema for table in batches[0]]))
        assert ordered(output.to_pylist()) == ordered(expected(batches, window, on, batch))
        keys = output.select(on).to_pylist()
        assert keys == sorted(keys, key=lambda row: list(row.values()))
    assert run(step, in_pieces(batches)).versions == ran.versions


def test_keys_with_the_same_hash_are_not_taken_for_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joins, "hash_column", lambda column: np.zeros(len(column), np.uint64))
    left, right = pa.table({"k": ["a", "b"], "x": [1, 2]}), pa.table({"k": ["b", "c", "b"], "y": [3, 4, 5]})
    output = run(op.join("k", op.tumbling(1)), [[left, right]]).outputs[0]
    assert output.to_pylist() == [{"k": "b", "x": 2, "y": 3}, {"k": "b", "x": 2, "y": 5}]
