"""Steps on pandas and polars frames."""

from __future__ import annotations

import importlib
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings

from ppa_core.errors import BadInput, Unavailable
from ppa_core.pipeline import operators as op
from ppa_core.pipeline.operators import adapters
from tests.pipeline.operators.running import SCHEMA, STREAMS, Batches, run

COUNTS = pa.schema({"k": pa.string(), "rows": pa.int64()})


def pandas_same(frame: Any) -> Any:
    return frame


def pandas_counts(state: Any, frame: Any) -> Any:
    rows = importlib.import_module("pandas").concat([state, frame[["k"]].assign(rows=1)])
    counts = rows.groupby("k", dropna=False, as_index=False)["rows"].sum()
    return counts, counts


def polars_same(frame: Any) -> Any:
    return frame


def polars_counts(state: Any, frame: Any) -> Any:
    pl = importlib.import_module("polars")
    rows = pl.concat([state, frame.select("k", pl.lit(1, pl.Int64).alias("rows"))])
    counts = rows.group_by("k").agg(pl.col("rows").sum()).sort("k", nulls_last=True)
    return counts, counts


@pytest.fixture(params=["pandas", "polars"])
def library(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    pytest.importorskip(name, reason=f"{name} is not among the requirements; install it to test its adapter")
    return name


def step(library: str, what: str, *arguments: Any, **options: Any) -> Any:
    return getattr(op, f"{library}_step")(globals()[f"{library}_{what}"], *arguments, **options)


def test_frames_come_and_go_with_all_their_values(library: str) -> None:
    @settings(max_examples=15, deadline=None)
    @given(STREAMS)
    def check(batches: Batches) -> None:
        made = step(library, "same", SCHEMA)
        assert made.lookback_batches(1.0) == 0
        for (table,), output in zip(batches, run(made, batches).outputs.values(), strict=True):
            assert output.schema.equals(SCHEMA)
            for name in ("k", "j", "n"):
                assert output[name].to_pylist() == table[name].to_pylist(), "nulls and large numbers too"

    check()


def test_a_state_is_a_frame_that_lasts(library: str) -> None:
    @settings(max_examples=15, deadline=None)
    @given(STREAMS)
    def check(batches: Batches) -> None:
        ran = run(step(library, "counts", COUNTS, state=COUNTS), batches)
        whole = pa.concat_tables([table for (table,) in batches])
        expected = {key: whole["k"].to_pylist().count(key) for key in whole["k"].to_pylist()}
        assert {row["k"]: row["rows"] for row in ran.outputs[len(batches) - 1].to_pylist()} == expected

    check()


def test_only_the_user_can_know_how_far_back_a_state_depends(library: str) -> None:
    assert step(library, "counts", COUNTS, state=COUNTS).lookback_batches(1.0) is None
    assert step(library, "counts", COUNTS, state=COUNTS, lookback_batches=3).lookback_batches(1.0) == 3


REFUSED: dict[str, tuple[Any, dict[str, Any], str]] = {
    "a missing column": (
        lambda frame: frame[["page"]],
        {},
        "called on empty frames with the columns k, j, n, x, it raised KeyError",
    ),
    "another output": (
        lambda frame: frame[["k"]],
        {},
        r"the output has the columns \(k\), but the schema has \(k: string, j: int32",
    ),
    "no frame": (lambda frame: 3, {}, "the output is int, not a pandas DataFrame"),
    "no state": (lambda state, frame: frame, {"state": COUNTS}, "must return the output and the state, not DataFrame"),
    "another state": (lambda state, frame: (frame, frame), {"state": COUNTS}, r"the state has the columns \(k, j, n, x\)"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_functions_that_do_not_fit_are_refused_when_tried(case: str) -> None:
    function, options, reason = REFUSED[case]
    with pytest.raises(BadInput, match=reason) as caught:
        op.pandas_step(function, SCHEMA, **options).output_schema([SCHEMA])
    assert caught.value.place == "pandas_step"


def test_a_schema_is_one_of_arrow() -> None:
    with pytest.raises(BadInput, match=r"its state is dict, not a pyarrow.Schema"):
        op.pandas_step(pandas_same, SCHEMA, state={"k": "text"})


def test_a_library_that_is_not_there_is_named_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise ImportError(f"No module named {name!r}")

    monkeypatch.setattr(adapters, "import_module", missing)
    adapters._imported.cache_clear()
    with pytest.raises(Unavailable, match=r"polars is not installed.*pip install polars"):
        op.polars_step(polars_same, SCHEMA)
    adapters._imported.cache_clear()
