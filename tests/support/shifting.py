"""A pipeline whose load moves from one half of its keys to the other."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from ppa_core.pipeline import operators as op
from ppa_core.pipeline.definition import Pipeline

SCHEMA = pa.schema({"key": pa.int64()})
MUCH, LITTLE = 900, 100


@dataclass(frozen=True)
class Shifting:
    """Four tasks, each with keys of its own: the first two have most of the tuples before batch `at`, the last two after."""

    at: int

    @property
    def schema(self) -> pa.Schema:
        return SCHEMA

    def rate(self, task: int) -> float:
        return MUCH if task < 2 else LITTLE

    def read(self, task: int, batch: int) -> pa.Table:
        rows = MUCH if (task < 2) == (batch < self.at) else LITTLE
        keys = np.random.default_rng((task, batch)).integers(0, 50, rows) * 4 + task
        return pa.table({"key": keys}, schema=SCHEMA)


def shifting(at: int = 8) -> Pipeline:
    """Four chains of two tasks into one sink; every tuple is passed on, so a chain's worth is its load."""
    return (
        Pipeline("shifting")
        .source("S", 4, Shifting(at))
        .operator("A", 4, {"S": "one-to-one"}, op.map(_same), lookback_batches=3)
        .operator("B", 4, {"A": "one-to-one"}, op.map(_same), lookback_batches=3)
        .operator("C", 1, {"B": "merge"}, op.map(_same), lookback_batches=3)
    )


def _same(table: pa.Table) -> pa.Table:
    return table
