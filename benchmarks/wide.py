"""A pipeline of 1,000 tasks, 300 × 300 of them connected all to all."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa

from ppa_core.pipeline import operators as op
from ppa_core.pipeline.definition import Pipeline
from ppa_core.pipeline.sources.generators import Generated

SCHEMA = pa.schema({"key": pa.int64(), "value": pa.int64()})
PER_TASK = 20


def wide(batch_seconds: float = 5.0) -> Pipeline:
    """100 sources, 300 and 300 tasks with a `full` edge between them, 300 and 100 more, one sink: 1,001 tasks that can fail."""
    source = Generated(SCHEMA, PER_TASK, _make(batch_seconds), seed=1)
    window = op.sliding(30, every=batch_seconds)
    return (
        Pipeline("wide", batch_seconds)
        .source("S", 100, source)
        .operator("A", 300, {"S": ("split", "key")}, op.map(_same))
        .operator("B", 300, {"A": ("full", "key")}, op.sum("value", by="key", window=window, name="value"))
        .operator("C", 300, {"B": "one-to-one"}, op.map(_same))
        .operator("D", 100, {"C": "merge"}, op.sum("value", by="key", window=window, name="value"))
        .operator("E", 1, {"D": "merge"}, op.top(100, "value"))
    )


def _make(batch_seconds: float) -> Callable[[np.random.Generator, int, int], pa.Table]:
    rows = round(PER_TASK * batch_seconds)

    def make(random: np.random.Generator, task: int, batch: int) -> pa.Table:
        columns = {"key": random.integers(0, 10_000, rows), "value": random.integers(0, 100, rows)}
        return pa.table(columns, schema=SCHEMA)

    return make


def _same(table: pa.Table) -> pa.Table:
    return table
