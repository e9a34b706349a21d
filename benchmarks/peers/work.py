"""The work that every system does, and its exact results.

16 sources of 1,000 tuples/s; every second the count and the sum of the values of each key over the last 30 s, as in the query
`tree`. Key and value are arithmetic in the tuple's number, so every system makes the same tuples without sharing anything. A
tuple's event time is its position in its source, in milliseconds; a result is named by the second at which its window ends.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ppa_core.pipeline import operators as op
from ppa_core.pipeline.definition import Pipeline
from ppa_core.pipeline.sources.generators import Generated

SOURCES, RATE, WINDOW, KEYS = 16, 1000, 30, 1000
LENGTH = 600 * RATE
"""Tuples of a source: number `source * LENGTH + k` is the k-th of a source. No run is longer."""

MIXED = "MOD({number} * 48271, 2147483647)"
"""The common part of key and value, as SQL that Flink and Spark share."""


SCHEMA = pa.schema({"key": pa.int64(), "value": pa.int64()})
TASKS = 8
"""Of PPA, for the windows."""


@dataclass(frozen=True)
class Row:
    """A result of one key, and when it was seen."""

    at: float
    window: int
    key: int
    count: int
    total: int


def tuples(source: int, first: int, end: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Keys and values of the tuples `first` to `end` of a source."""
    mixed = (source * LENGTH + np.arange(first, end, dtype=np.int64)) * 48271 % 2147483647
    return mixed % KEYS, mixed // KEYS % KEYS


@cache
def exact(window: int) -> dict[int, tuple[int, int]]:
    """Count and sum by key of the window that ends at this second."""
    counts, sums = np.zeros(KEYS, np.int64), np.zeros(KEYS, np.int64)
    for second in range(max(0, window - WINDOW), window):
        of_second = _second(second)
        counts += of_second[0]
        sums += of_second[1]
    return {int(key): (int(counts[key]), int(sums[key])) for key in np.flatnonzero(counts)}


@cache
def _second(second: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    parts = [tuples(source, second * RATE, (second + 1) * RATE) for source in range(SOURCES)]
    keys, values = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    sums = np.bincount(keys, weights=values, minlength=KEYS).astype(np.int64)
    return np.bincount(keys, minlength=KEYS).astype(np.int64), sums


def windows() -> Pipeline:
    """The work in PPA."""
    step = op.aggregate(by="key", window=op.sliding(WINDOW, every=1), count=op.Count(), total=op.Sum("value"))
    return (
        Pipeline("windows", 1.0)
        .source("S", SOURCES, Generated(SCHEMA, RATE, _batch))
        .operator("W", TASKS, {"S": ("full", "key")}, step)
    )


def _batch(random: np.random.Generator, task: int, batch: int) -> pa.Table:
    keys, values = tuples(task, batch * RATE, (batch + 1) * RATE)
    return pa.table({"key": keys, "value": values}, schema=SCHEMA)
