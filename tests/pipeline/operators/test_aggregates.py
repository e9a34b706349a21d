"""Aggregates against a slow reference, on random streams with nulls."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ppa_core.pipeline import operators as op
from tests.pipeline.operators.running import SCHEMA, STREAMS, Batches, content, in_pieces, run, windows

Values = list[Any]
MEASURES: dict[str, tuple[Any, str | None, Callable[[Values], Any]]] = {
    "rows": (op.Count(), None, len),
    "count": (op.Count("n"), "n", len),
    "sum": (op.Sum("n"), "n", lambda values: sum(values) if values else None),
    "total": (op.Sum("x"), "x", lambda values: math.fsum(values) if values else None),
    "mean": (op.Mean("n"), "n", lambda values: sum(values) / len(values) if values else None),
    "average": (op.Mean("x"), "x", lambda values: math.fsum(values) / len(values) if values else None),
    "least": (op.Min("n"), "n", lambda values: min(values, default=None)),
    "most": (op.Max("x"), "x", lambda values: max((v for v in values if not math.isnan(v)), default=None)),
    "last": (op.Max("k"), "k", lambda values: max(values, default=None)),
    "different": (op.Distinct("n"), "n", lambda values: len(set(values))),
    "keys": (op.Distinct("k"), "k", lambda values: len(set(values))),
}


def expected(batches: Batches, window: op.Window, by: Sequence[str], names: Sequence[str], batch: int) -> list[dict[str, Any]]:
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in content(batches, window, batch) or []:
        groups.setdefault(tuple(row[key] for key in by), []).append(row)
    found = []
    for key in sorted(groups, key=lambda key: [(value is None, value) for value in key]):
        rows = groups[key]
        made = dict(zip(by, key, strict=True))
        for name in names:
            _, column, function = MEASURES[name]
            made[name] = function([row[column] for row in rows if row[column] is not None] if column else rows)
        found.append(made)
    return found


def same(found: list[dict[str, Any]], wanted: list[dict[str, Any]]) -> None:
    assert [list(row) for row in found] == [list(row) for row in wanted]
    for mine, its in zip(found, wanted, strict=True):
        for name, value in its.items():
            close = pytest.approx(value, rel=1e-9, abs=1e-6, nan_ok=True) if isinstance(value, float) else value
            assert mine[name] == close, name


@settings(max_examples=80, deadline=None)
@given(STREAMS, windows(), st.sampled_from([["k"], ["j", "k"]]), st.sets(st.sampled_from(list(MEASURES)), min_size=1))
def test_any_measures_are_those_of_the_reference(batches: Batches, window: op.Window, by: list[str], chosen: set[str]) -> None:
    names = [name for name in MEASURES if name in chosen]
    step = op.aggregate(by=by, window=window, **{name: MEASURES[name][0] for name in names})
    schema = step.output_schema([SCHEMA])
    ran = run(step, batches)
    for batch, output in ran.outputs.items():
        assert output.schema.equals(schema)
        same(output.to_pylist(), expected(batches, window, by, names, batch))
    assert run(step, in_pieces(batches)).versions == ran.versions


EXACT = op.aggregate(by="k", window=op.sliding(8, 2), n=op.Count(), s=op.Sum("n"), d=op.Distinct("j"), m=op.Min("x"))


@settings(max_examples=15, deadline=None)
@given(STREAMS)
def test_it_does_not_matter_how_a_stream_is_cut_into_batches(batches: Batches) -> None:
    batches = [*batches, [SCHEMA.empty_table()]] if len(batches) % 2 else batches
    halves = [[pa.concat_tables([first[0], second[0]])] for first, second in zip(batches[::2], batches[1::2], strict=True)]
    fine, coarse = run(EXACT, batches), run(EXACT, halves, batch_seconds=2.0)
    assert [fine.outputs[batch] for batch in range(1, len(batches), 2)] == list(coarse.outputs.values())
    assert all(not fine.outputs[batch].num_rows for batch in range(0, len(batches), 2))


@settings(max_examples=15, deadline=None)
@given(STREAMS)
def test_the_short_forms_are_aggregates_of_one_measure(batches: Batches) -> None:
    window = op.sliding(3)
    forms: list[tuple[op.Aggregate, Any]] = [
        (op.count(by="k", window=window, name="m"), op.Count()),
        (op.count("n", by="k", window=window, name="m"), op.Count("n")),
        (op.sum("n", by="k", window=window, name="m"), op.Sum("n")),
        (op.mean("n", by="k", window=window, name="m"), op.Mean("n")),
        (op.min("n", by="k", window=window, name="m"), op.Min("n")),
        (op.max("n", by="k", window=window, name="m"), op.Max("n")),
        (op.distinct("n", by="k", window=window, name="m"), op.Distinct("n")),
    ]
    for step, measure in forms:
        assert step == op.aggregate(by=["k"], window=window, m=measure)
    two_inputs = [[table.slice(0, 2), table.slice(2)] for (table,) in batches]
    assert run(step, two_inputs).versions == run(step, batches).versions, "several inputs are one stream"


def table(**values: list[Any]) -> pa.Table:
    rows = len(next(iter(values.values())))
    return pa.table({name: values.get(name, [None] * rows) for name in SCHEMA.names}, schema=SCHEMA)


def test_a_sum_that_does_not_fit_64_bits_is_refused_whenever_it_comes_about() -> None:
    step = op.sum("n", by="k", window=op.sliding(3))
    large = table(k=["a"], n=[2**62])
    with pytest.raises(OverflowError, match=r"sum of 'n'.*cast it to float64"):
        run(step, [[table(k=["a", "a"], n=[2**62, 2**62])]])
    with pytest.raises(OverflowError):
        run(step, [[large], [large]])
    mixed = run(step, [[large], [table(k=["a"], n=[-(2**62)])], [large], [table(k=["b"], n=[1])], [table(k=["a"], n=[5])]])
    assert mixed.outputs[2]["sum"].to_pylist() == [2**62]
    assert mixed.outputs[4].to_pylist() == [{"k": "a", "sum": 2**62 + 5}, {"k": "b", "sum": 1}]


def test_a_value_of_which_only_nan_is_there_has_no_least() -> None:
    ran = run(
        op.min("x", by="k", window=op.sliding(2)), [[table(k=["a", "a"], x=[math.nan, math.nan])], [table(k=["a"], x=[2.0])]]
    )
    assert [output["min"].to_pylist() for output in ran.outputs.values()] == [[None], [2.0]]


@pytest.mark.parametrize("column", ["n", "x"])
def test_a_slide_writes_about_two_segments_however_long_the_window(column: str) -> None:
    step = op.max(column, by="k", window=op.sliding(64)) if column == "x" else op.sum("n", by="k", window=op.sliding(64))
    ran = run(step, [[table(k=["a"], n=[1], x=[1.0])]] * 256)
    writes = [len(ran.written[batch]) for batch in range(128, 256)]
    assert sum(writes) <= 2 * len(writes)
    assert len(ran.versions[255][0]) <= 65


@pytest.mark.parametrize(
    "kind",
    [
        pa.int8(),
        pa.uint64(),
        pa.date32(),
        pa.time64("us"),
        pa.timestamp("us", "UTC"),
        pa.bool_(),
        pa.large_string(),
        pa.binary(),
    ],
    ids=str,
)
def test_every_type_of_key_can_be_grouped_by(kind: pa.DataType) -> None:
    values = (
        [b"1", b"0", b"1", None]
        if "binary" in str(kind)
        else ["1", "0", "1", None]
        if "string" in str(kind)
        else [1, 0, 1, None]
    )
    keys = pa.array([None if v is None else bool(v) for v in values] if pa.types.is_boolean(kind) else values, kind)
    step = op.aggregate(by="key", window=op.sliding(2), n=op.Count(), least=op.Min("key"), d=op.Distinct("key"))
    rows = pa.table({"key": keys})
    output = run(step, [[rows], [rows]]).outputs[1]
    assert output.schema.equals(step.output_schema([rows.schema]))
    assert output["n"].to_pylist() == [2, 4, 2]
    assert output["d"].to_pylist() == [1, 1, 0]
    assert output["least"].equals(output["key"])
