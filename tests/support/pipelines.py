"""Small pipelines of any shape for tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from ppa_core.pipeline.definition import Context, Pipeline, Result
from ppa_core.topology import Partitioning

SCHEMA = pa.schema({"k": pa.string(), "n": pa.int64()})


@dataclass(frozen=True)
class Random:
    rows: int
    schema: pa.Schema = SCHEMA

    def read(self, task: int, batch: int) -> pa.Table:
        random = np.random.default_rng((7, task, batch))
        keys = random.integers(0, 30, random.integers(0, self.rows + 1))
        texts = [None if key == 0 else "x" * (key % 4) + str(key) for key in keys.tolist()]
        return pa.table({"k": texts, "n": keys * 1000 + batch}, schema=SCHEMA)

    def rate(self, task: int) -> float:
        return self.rows / 2


def source(rows: int = 20) -> Random:
    return Random(rows)


def union(context: Context, state: Mapping[str, pa.Table], inputs: Sequence[pa.Table]) -> Result:
    """All inputs one after the other, each n plus the number of rows seen so far; keeps the last three batches."""
    together = pa.concat_tables(inputs)
    seen = state["seen"]["rows"][0].as_py() if "seen" in state else 0
    window = sum(state[name].num_rows for name in state if name != "seen")
    numbers = pa.array(together["n"].to_numpy() + seen + window)
    output = pa.table({"k": together["k"], "n": numbers}, schema=SCHEMA)
    add = {str(context.batch): together, "seen": pa.table({"rows": [seen + together.num_rows]})}
    return Result(output, add, (str(context.batch - 3),))


@st.composite
def pipelines(draw: st.DrawFn) -> Pipeline:
    """One or two sources, and up to four operators with one or two inputs each."""
    pipeline = Pipeline("any")
    for i in range(draw(st.integers(1, 2))):
        pipeline = pipeline.source(f"s{i}", draw(st.integers(1, 5)), source())
    for i in range(draw(st.integers(1, 4))):
        tasks = draw(st.integers(1, 5))
        upstreams = draw(st.lists(st.sampled_from([o.name for o in pipeline.operators]), min_size=1, max_size=2, unique=True))
        inputs = {name: (draw(st.sampled_from(_fitting(pipeline.by_name[name].tasks, tasks))), "k") for name in upstreams}
        pipeline = pipeline.operator(f"o{i}", tasks, inputs, union)
    return pipeline


def _fitting(n1: int, n2: int) -> list[Partitioning]:
    narrow = Partitioning.ONE_TO_ONE if n1 == n2 else Partitioning.MERGE if n1 > n2 else Partitioning.SPLIT
    return [narrow, Partitioning.FULL]
