"""The paper's synthetic query: a tree of operators with sliding windows; each task is fed by two upstream tasks."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ppa_core.errors import BadInput
from ppa_core.pipeline.definition import Context, Pipeline, Result
from ppa_core.pipeline.streams import mix

SCHEMA = pa.schema({"key": pa.int64(), "value": pa.int64(), "seq": pa.int64()})
SUMS = "sums"
_MODULUS = 1_000_003
"""Values stay below this, so that the sums of a window are exact in float64 too."""


def tree(
    rate: float = 1000,
    window: float = 30.0,
    batch_seconds: float = 1.0,
    tasks: Sequence[int] = (16, 8, 4, 2, 1),
    selectivity: float = 0.5,
    keys: int = 1000,
    seed: int = 0,
) -> Pipeline:
    """Sources of `rate` tuples/s a task, then operators O1, O2, … with windows of `window` seconds, each merged into the next.

    `tasks` are the sources' tasks and those of each operator; fewer at every level.
    """
    if not (rate >= 0 and window > 0 and 0 <= selectivity <= 1 and keys >= 1):
        reason = f"rate {rate}, window {window} s, selectivity {selectivity}, {keys} keys"
        raise BadInput(
            "query 'tree'", f"{reason}; rate and window must be positive, selectivity from 0 to 1, and keys at least 1"
        )
    source = Tuples(rate, batch_seconds, tasks[0], keys, seed)
    pipeline = Pipeline("tree", batch_seconds).source("S", tasks[0], source)
    step = TreeWindow(max(1, round(window / batch_seconds)), selectivity, keys)
    upstream = "S"
    for level, count in enumerate(tasks[1:], 1):
        pipeline = pipeline.operator(f"O{level}", count, {upstream: "merge"}, step, selectivity=selectivity)
        upstream = f"O{level}"
    return pipeline


def accuracy(tentative: pa.Table, accurate: pa.Table) -> float:
    """The share of the accurate output's tuples that the tentative one has: |S_T ∩ S_A| ÷ |S_A|."""
    if not accurate.num_rows:
        return 1.0
    return float(np.isin(accurate["seq"].to_numpy(), tentative["seq"].to_numpy()).sum() / accurate.num_rows)


@dataclass(frozen=True)
class Tuples:
    """Random tuples with a sequence number that no two share, the same for the same seed, task and batch."""

    tuples_per_second: float
    batch_seconds: float
    tasks: int
    keys: int
    seed: int

    @property
    def schema(self) -> pa.Schema:
        return SCHEMA

    def rate(self, task: int) -> float:
        return self.tuples_per_second

    def read(self, task: int, batch: int) -> pa.Table:
        first, end = (int(self.tuples_per_second * self.batch_seconds * b) for b in (batch, batch + 1))
        random = np.random.default_rng((self.seed, task, batch))
        columns = (
            random.integers(0, self.keys, end - first),
            random.integers(0, _MODULUS, end - first),
            np.arange(first, end) * self.tasks + task,
        )
        return pa.Table.from_arrays([pa.array(column) for column in columns], schema=SCHEMA)


@dataclass(frozen=True)
class TreeWindow:
    """Keeps the last `slices` batches, each in a segment named by its batch, and the sums of their values by key in another.

    Passes on the share `selectivity` of the new tuples, chosen by sequence number, with the sum of their key in place of the
    value: an error in the window shows in the output.
    """

    slices: int
    selectivity: float
    keys: int

    def lookback_batches(self, batch_seconds: float) -> int:
        return self.slices

    def __call__(self, context: Context, state: Mapping[str, pa.Table], inputs: Sequence[pa.Table], /) -> Result:
        new, leaving = inputs[0], str(context.batch - self.slices)
        sums = self._sums(new)
        if SUMS in state:
            sums += state[SUMS]["sum"].to_numpy()
        if leaving in state:
            sums -= self._sums(state[leaving])
        segments = {str(context.batch): new, SUMS: pa.table({"sum": sums})}
        return Result(self._chosen(new, sums, context.operator), segments, (leaving,))

    def _sums(self, slice_: pa.Table) -> NDArray[np.int64]:
        """The sum of the values of each key."""
        keys, values = slice_["key"].to_numpy(), slice_["value"].to_numpy()
        return np.bincount(keys, weights=values, minlength=self.keys).astype(np.int64)

    def _chosen(self, new: pa.Table, sums: NDArray[np.int64], operator: str) -> pa.Table:
        salt = mix(np.array([zlib.crc32(operator.encode())], np.uint64))
        seq = new["seq"].to_numpy()
        chosen = (mix(seq.view(np.uint64) ^ salt) >> np.uint64(11)).astype(np.float64) < self.selectivity * 2.0**53
        keys = new["key"].to_numpy()[chosen]
        return pa.Table.from_arrays([pa.array(column) for column in (keys, sums[keys] % _MODULUS, seq[chosen])], schema=SCHEMA)
