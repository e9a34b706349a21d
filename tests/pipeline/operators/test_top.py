"""The greatest few, against sorting everything."""

from __future__ import annotations

import math
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ppa_core.pipeline import operators as op
from tests.pipeline.operators.running import SCHEMA, STREAMS, TABLES, Batches, run, windows


def expected(rows: list[dict[str, Any]], k: int, column: str) -> list[dict[str, Any]]:
    def order(row: dict[str, Any]) -> list[Any]:
        others = [(1, 0) if v is None else (0.5, 0) if v != v else (0, v) for name, v in row.items() if name != column]
        return [-row[column], *others]

    return sorted((row for row in rows if row[column] is not None and not math.isnan(row[column])), key=order)[:k]


@settings(max_examples=50, deadline=None)
@given(TABLES, st.integers(1, 5), st.sampled_from(["j", "n", "x"]))
def test_the_top_of_a_batch_is_that_of_a_full_sort(table: pa.Table, k: int, column: str) -> None:
    output = run(op.top(k, column), [[table]]).outputs[0]
    assert repr(output.to_pylist()) == repr(expected(table.to_pylist(), k, column))


@settings(max_examples=15, deadline=None)
@given(STREAMS, windows(), st.integers(1, 3))
def test_the_top_of_an_aggregate_is_that_of_its_output(batches: Batches, window: op.Window, k: int) -> None:
    aggregate = op.count(by="k", window=window)
    whole, ran = run(aggregate, batches), run(op.top(k, "count", of=aggregate), batches)
    for batch, output in whole.outputs.items():
        assert ran.outputs[batch].to_pylist() == expected(output.to_pylist(), k, "count")
        assert ran.versions[batch][0] == whole.versions[batch][0]


def test_columns_that_cannot_be_ordered_do_not_break_ties() -> None:
    rows = pa.table({"tags": [["b"], ["a"]], "n": [1, 1]})
    assert run(op.top(5, "n"), [[rows]]).outputs[0].equals(rows)


@pytest.mark.parametrize("column", ["k", "n"])
def test_texts_have_a_top_too(column: str) -> None:
    rows = pa.table({"k": ["b", None, "c"], "j": [1, 2, 3], "n": [5, None, 6], "x": [0.0] * 3}, schema=SCHEMA)
    assert run(op.top(1, column), [[rows]]).outputs[0]["j"].to_pylist() == [3]
