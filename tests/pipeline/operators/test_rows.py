"""Steps without state."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings

from ppa_core.pipeline import operators as op
from tests.pipeline.operators.running import SCHEMA, TABLES, run


def doubled(rows: pa.Table) -> pa.Table:
    return rows.select(["k"]).append_column("twice", pc.multiply(rows["n"], 2))


def thrice(rows: pa.Table) -> pa.Table:
    return pa.concat_tables([rows] * 3)


def only(step: Any, table: pa.Table) -> pa.Table:
    ran = run(step, [[table]])
    assert ran.versions[0][0] == {}
    assert ran.outputs[0].schema.equals(step.output_schema([SCHEMA]))
    assert step.lookback_batches(1.0) == 0
    return ran.outputs[0]


@settings(max_examples=25, deadline=None)
@given(TABLES)
def test_rows_are_those_of_plain_python(table: pa.Table) -> None:
    rows = table.to_pylist()
    assert only(op.map(doubled), table).to_pylist() == [
        {"k": row["k"], "twice": None if row["n"] is None else 2 * row["n"]} for row in rows
    ]
    assert len(only(op.flat_map(thrice, SCHEMA, selectivity=3), table)) == 3 * len(rows)
    positive = [row["j"] for row in rows if row["n"] is not None and row["n"] > 0]
    for predicate in (pc.field("n") > 0, lambda t: pc.greater(t["n"], 0), lambda t: t["n"].fill_null(0).to_numpy() > 0):
        assert only(op.filter(predicate), table)["j"].to_pylist() == positive
    assert only(op.rekey("word", "k"), table)["word"].equals(table["k"])
    assert only(op.rekey("word", "k"), table).column_names == ["word", "j", "n", "x"]
    assert only(op.rekey("k", lambda t: pc.utf8_length(t["k"])), table)["k"].to_pylist() == [
        None if row["k"] is None else len(row["k"]) for row in rows
    ]
    assert only(op.rekey("all", lambda t: np.zeros(len(t), np.int8)), table)["all"].to_pylist() == [0] * len(rows)


def test_a_map_that_changes_the_number_of_rows_is_refused() -> None:
    table = pa.table({"k": ["a"], "j": [1], "n": [1], "x": [1.0]}, schema=SCHEMA)
    with pytest.raises(ValueError, match="map returned 3 rows for 1; use flat_map"):
        run(op.map(thrice), [[table]])


def test_a_schema_says_what_an_empty_list_cannot() -> None:
    schema = pa.schema({"k": pa.string(), "n": pa.int32()})

    def listed(rows: pa.Table) -> pa.Table:
        return pa.table({"k": rows["k"], "n": [7] * len(rows)})

    step = op.map(listed, schema)
    assert step.output_schema([SCHEMA]) == schema
    table = pa.table({"k": ["a"], "j": [1], "n": [1], "x": [1.0]}, schema=SCHEMA)
    assert run(step, [[table]]).outputs[0].equals(pa.table({"k": ["a"], "n": [7]}, schema=schema))


def test_several_inputs_are_one_stream() -> None:
    table = pa.table({"k": ["a"], "j": [1], "n": [1], "x": [1.0]}, schema=SCHEMA)
    assert run(op.map(doubled), [[table, table]]).outputs[0].num_rows == 2


STEPS = [
    op.map(doubled),
    op.flat_map(thrice, SCHEMA),
    op.filter(pc.field("n") > 0),
    op.rekey("word", "k"),
    op.count(by="k", window=op.sliding(3)),
    op.top(3, "count", of=op.count(by="k", window=op.sliding(3))),
    op.join("k", op.tumbling(3)),
    op.pandas_step(doubled, SCHEMA),
]


@pytest.mark.parametrize("step", STEPS, ids=lambda step: type(step).__name__)
def test_steps_are_values(step: object) -> None:
    again = pickle.loads(pickle.dumps(step))
    assert again == step
    assert hash(again) == hash(step)
    assert [other for other in STEPS if other == step] == [step]


def test_filters_with_other_predicates_are_different() -> None:
    first, second = op.filter(pc.field("n") > 0), op.filter(pc.field("n") > 1)
    assert first != second
    assert first != op.filter(doubled)
    assert op.filter(doubled) == op.filter(doubled) != op.filter(thrice)
    assert first != op.filter(pc.field("n") > 0, selectivity=0.5)
