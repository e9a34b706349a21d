"""A task started from nothing, no more batches back than its step remembers, comes to the same bytes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ppa_core.pipeline import operators as op
from ppa_core.pipeline.operators import Window
from tests.pipeline.operators.running import SCHEMA, random_table, run, windows

pytestmark = pytest.mark.slow

OTHER = pa.schema({"k": pa.string(), "m": pa.int64(), "y": pa.float64()})


def other(table: pa.Table) -> pa.Table:
    """The table as that of another input, with other names."""
    return table.select(["k", "n", "x"]).rename_columns(OTHER.names)


STEPS: dict[str, Callable[[Window], Any]] = {
    "count": lambda window: op.count(by="k", window=window),
    "sum": lambda window: op.sum("n", by=["j", "k"], window=window),
    "float sum": lambda window: op.sum("x", by="k", window=window),
    "mean": lambda window: op.mean("x", by="k", window=window),
    "min": lambda window: op.min("x", by="k", window=window),
    "max": lambda window: op.max("k", by="j", window=window),
    "distinct": lambda window: op.distinct("n", by="k", window=window),
    "several": lambda window: op.aggregate(by="j", window=window, a=op.Mean("x"), b=op.Distinct("k"), c=op.Max("n")),
    "top": lambda window: op.top(2, "sum", of=op.sum("n", by="k", window=window)),
    "join": lambda window: op.join("k", window),
    "filter": lambda window: op.filter(pc.field("n") > 0),
}


@pytest.mark.parametrize("name", STEPS)
@settings(max_examples=12, deadline=None)
@given(st.integers(0, 2**32), windows(slices=7), st.integers(1, 12), st.integers(1, 6))
def test_a_task_started_later_is_the_same_after_its_memory(name: str, seed: int, window: Window, start: int, rest: int) -> None:
    step = STEPS[name](window)
    lookback_batches = step.lookback_batches(1.0)
    assert lookback_batches == (0 if name == "filter" else window.length)
    tables = [(random_table((seed, b, 0)), random_table((seed, b, 1))) for b in range(start + lookback_batches + rest)]
    batches = [[first, other(second)] if name == "join" else [first] for first, second in tables]
    whole, later = run(step, batches), run(step, batches, start)
    just_full = start + max(lookback_batches - 1, 0)  # a batch sooner than promised
    assert later.since(just_full) == whole.since(just_full)


def test_floating_point_sums_are_those_of_the_window_alone() -> None:
    """A running sum would keep what 1e16 did to the small ones long after it left."""
    values = [1e16, 1.0, 1.0, 1.0, 1.0]
    batches = [[pa.table({"k": ["a"], "j": [0], "n": [0], "x": [x]}, schema=SCHEMA)] for x in values]
    assert run(op.sum("x", by="k", window=op.sliding(2)), batches).outputs[4]["sum"].to_pylist() == [2.0]
