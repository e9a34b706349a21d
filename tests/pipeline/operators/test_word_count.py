"""Whole pipelines of steps that ship, without Spark: a user's word count, and the same bytes however they run."""

from __future__ import annotations

import doctest
from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from ppa_core.drills.local import Local
from ppa_core.pipeline import operators as op
from ppa_core.pipeline.definition import Pipeline, StepFailed
from ppa_core.pipeline.operators import count, flat_map, sliding, top
from tests.support.local import outputs


@dataclass(frozen=True)
class Lines:
    """Lines of random words."""

    schema: pa.Schema = pa.schema({"line": pa.string()})  # noqa: RUF009  a schema never changes

    def read(self, task: int, batch: int) -> pa.Table:
        random = np.random.default_rng((task, batch))
        words = random.choice(["to", "be", "or", "not", "é"], (random.integers(0, 4), 3))
        return pa.table({"line": [" ".join(line) for line in words.tolist()]}, schema=self.schema)

    def rate(self, task: int) -> float:
        return 2.0


def split(lines: pa.Table) -> pa.Table:
    return pa.table({"word": pc.list_flatten(pc.utf8_split_whitespace(lines["line"]))})


WORDS = (
    Pipeline("words")
    .source("lines", 2, Lines())
    .operator("words", 2, {"lines": "one-to-one"}, flat_map(split, selectivity=3))
    .operator("counts", 4, {"words": ("full", "word")}, count(by="word", window=sliding(5, every=1)))
    .operator("top", 1, {"counts": "merge"}, top(3, "count"))
)


def test_the_example_in_the_documentation_works() -> None:
    assert doctest.testmod(op).failed == 0


def seen(batches: range) -> Counter[str]:
    lines = [line for batch in batches for task in range(2) for line in Lines().read(task, batch)["line"].to_pylist()]
    return Counter(word for line in lines for word in line.split())


def test_words_are_counted() -> None:
    local = Local(WORDS, 2)
    for batch in range(12):
        ((_, _, table),) = local.run(local.order(batch)).sinks
        counts = seen(range(max(0, batch - 4), batch + 1))
        expected = sorted(counts.items(), key=lambda item: (-item[1], item[0].encode()))[:3]
        assert list(zip(table["word"].to_pylist(), table["count"].to_pylist(), strict=True)) == expected


def sales(item: int, lines: pa.Table) -> pa.Table:
    return pa.table({"word": lines["word"], f"x{item}": pc.utf8_length(lines["word"]).cast(pa.float64())})


def first(lines: pa.Table) -> pa.Table:
    return sales(0, lines)


def second(lines: pa.Table) -> pa.Table:
    return sales(1, lines)


KINDS = (
    WORDS.operator("first", 2, {"words": "one-to-one"}, op.map(first))
    .operator("second", 1, {"words": "merge"}, op.map(second))
    .operator("joined", 3, {"first": ("full", "word"), "second": ("split", "word")}, op.join("word", sliding(4, every=2)))
    .operator(
        "measured",
        3,
        {"joined": "one-to-one"},
        op.aggregate(by="word", window=sliding(3), n=op.Count(), x=op.Mean("x0"), d=op.Distinct("word"), m=op.Max("x1")),
    )
)


def test_all_kinds_of_steps_are_the_same_on_any_number_of_partitions() -> None:
    one, three = Local(KINDS, 1), Local(KINDS, 3, cache_bytes=0)
    for batch in range(8):
        assert outputs(one.run(one.order(batch))) == outputs(three.run(three.order(batch)))
    assert one.versions(1) == three.versions(1)
    assert any(
        table.num_rows for task in ("measured.1", "measured.2", "measured.3") for table in one.state(task, 7, 1).values()
    )


def test_a_pipeline_that_starts_from_nothing_is_right_when_all_memories_are_over() -> None:
    local = Local(KINDS, 2)
    for batch in range(16):
        local.run(local.order(batch))
    start, nothing = 3, local.order(0, 2).runs
    local.run(
        replace(local.order(start, 2), runs=nothing), *(local.order(batch, 2, before=None) for batch in range(start + 1, 16))
    )
    lookback: dict[str, int] = {}
    for operator in KINDS.operators:
        assert operator.lookback_batches is not None
        lookback[operator.name] = operator.lookback_batches + max(
            (lookback[stream.source] for stream in operator.inputs), default=0
        )
    assert lookback == {
        "lines": 0,
        "words": 0,
        "counts": 5,
        "top": 5,
        "first": 0,
        "second": 0,
        "joined": 4,
        "measured": 7,
    }
    accurate, again = local.versions(1), local.versions(2)
    settled = {(task, b) for task, b in again if b >= start + lookback[task.rpartition(".")[0]]}
    assert {key: again[key] for key in settled} == {key: accurate[key] for key in settled}
    assert again != {key: accurate[key] for key in again}, "there was something to settle"


def test_a_step_that_raises_is_named() -> None:
    class Large(Lines):
        def read(self, task: int, batch: int) -> pa.Table:
            return pa.table({"line": [str(2**62)] * (batch + 1)})

    def numbers(lines: pa.Table) -> pa.Table:
        return pa.table({"k": pc.utf8_length(lines["line"]), "n": lines["line"].cast(pa.int64())})

    pipeline: Any = Pipeline("p").source("in", 1, Large()).operator("n", 1, {"in": "one-to-one"}, op.map(numbers))
    local = Local(pipeline.operator("sums", 1, {"n": "one-to-one"}, op.sum("n", by="k", window=op.tumbling(1))))
    local.run(local.order(0))
    with pytest.raises(StepFailed, match=r"operator 'sums', task sums.1, batch 1: OverflowError: the sum of 'n'"):
        local.run(local.order(1))
