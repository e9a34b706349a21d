"""What must meet in a task is seen to meet when the pipeline is defined; what need not is refused with the remedy."""

from __future__ import annotations

from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from ppa_core.errors import BadInput
from ppa_core.pipeline import operators as op
from ppa_core.pipeline.definition import Pipeline
from ppa_core.pipeline.sources.generators import Generated

WINDOW = op.tumbling(1)


def nothing(schema: pa.Schema, random: object, task: int, batch: int) -> pa.Table:
    return schema.empty_table()


def pipeline() -> Pipeline:
    """Sources a and b of two tasks, and their counts by k, partitioned by k over four tasks."""
    made = Pipeline("partitioning")
    for name in ("a", "b"):
        schema = pa.schema({"k": pa.int64(), "l": pa.int64(), name: pa.int64()})
        made = made.source(name, 2, Generated(schema, 1, partial(nothing, schema), 0))
        made = made.operator(f"{name}4", 4, {name: ("full", "k")}, op.count(by=["k", "l"], window=WINDOW, name=f"of {name}"))
    return made


FITTING: dict[str, tuple[int, dict[str, Any], Any]] = {
    "all full": (3, {"a": ("full", "k"), "b": ("full", "k")}, op.join(["k", "l"], WINDOW)),
    "as they lie": (4, {"a4": "one-to-one", "b4": "one-to-one"}, op.join(["k", "l"], WINDOW)),
    "full beside one-to-one": (4, {"a4": "one-to-one", "b": ("full", "k")}, op.join(["k", "l"], WINDOW)),
    "split of full": (8, {"a4": ("split", "k"), "b": ("full", "k")}, op.join(["k", "l"], WINDOW)),
    "merged by two": (2, {"a4": "merge", "b4": "merge"}, op.join(["k", "l"], WINDOW)),
    "one task": (1, {"a": "merge", "b": "merge"}, op.join(["k", "l"], WINDOW)),
    "partial counts": (2, {"a": "one-to-one"}, op.count(by="k", window=WINDOW)),
    "counts split": (8, {"a4": ("split", "k")}, op.count(by="k", window=WINDOW)),
}

MISFITS: dict[str, tuple[int, dict[str, Any], Any, str]] = {
    "split of what lies anyhow": (
        4, {"a": ("split", "k")}, op.count(by="k", window=WINDOW), r"input 'a': .*'a' has 2 tasks.*\(\"full\", 'k'\)",
    ),
    "join of what lies anyhow": (
        2, {"a": "one-to-one", "b": ("full", "k")}, op.join(["k", "l"], WINDOW), r"input 'a': .*one-to-one does not",
    ),
    "join by two keys": (
        4, {"a": ("full", "k"), "b": ("full", "l")}, op.join(["k", "l"], WINDOW), r"by k and by l; use the same key",
    ),
    "counts by two keys": (
        4, {"a4": ("full", "k"), "a": ("full", "l")}, op.count(by=["k", "l"], window=WINDOW), r"by k and by l; use the same",
    ),
    "merged unevenly": (
        3, {"a4": "merge", "b": ("full", "k")}, op.join(["k", "l"], WINDOW), r"input 'a4': .*are not multiples",
    ),
    "split unevenly": (
        6, {"a4": ("split", "k"), "b": ("full", "k")}, op.join(["k", "l"], WINDOW), r"input 'a4': .*are not multiples",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", FITTING)
def test_what_meets_is_taken(case: str) -> None:
    tasks, inputs, step = FITTING[case]
    pipeline().operator("out", tasks, inputs, step)


@pytest.mark.parametrize("case", MISFITS)
def test_what_does_not_meet_is_refused(case: str) -> None:
    tasks, inputs, step, message = MISFITS[case]
    made = pipeline()
    if case == "counts by two keys":
        made = made.operator("a2", 2, {"a": "one-to-one"}, op.filter(pc.field("k") > 0))
        inputs = {"a": inputs["a4"], "a2": inputs["a"]}
    with pytest.raises(BadInput, match=message):
        made.operator("out", tasks, inputs, step)


def test_a_filter_leaves_tuples_where_they_are_and_a_map_may_not() -> None:
    both = {"f": "one-to-one", "b4": "one-to-one"}
    kept = pipeline().operator("f", 4, {"a4": "one-to-one"}, op.filter(pc.field("k") > 0))
    kept.operator("out", 4, both, op.join(["k", "l"], WINDOW))
    mapped = pipeline().operator("f", 4, {"a4": "one-to-one"}, op.map(lambda table: table))
    with pytest.raises(BadInput, match=r"input 'f': .*may be in different tasks"):
        mapped.operator("out", 4, both, op.join(["k", "l"], WINDOW))


loose: Any = op
loose_text: Any = "1"
WRONG: dict[str, Any] = {
    "tasks as text": lambda p: p.source("c", "2", p.by_name["a"].source),
    "no source": lambda p: p.source("c", 2, None),
    "inputs as text": lambda p: p.operator("c", 2, "a", op.map(lambda table: table)),
    "three parts": lambda p: p.operator("c", 2, {"a": ("full", "k", "x")}, op.map(lambda table: table)),
    "lookback as text": lambda p: p.operator("c", 2, {"a": "one-to-one"}, op.map(lambda table: table), lookback_batches="3"),
    "selectivity as text": lambda p: p.operator("c", 2, {"a": "one-to-one"}, op.map(lambda table: table), selectivity="3"),
    "window as text": lambda p: loose.count(by="k", window="10s"),
    "length as text": lambda p: loose.tumbling("10"),
    "join without window": lambda p: loose.join("k", 10),
    "top of a text": lambda p: loose.top("10", "k"),
    "key as number": lambda p: loose.count(by=5, window=WINDOW),
    "interval as text": lambda p: Pipeline("x", batch_seconds=loose_text),
}


@pytest.mark.parametrize("case", WRONG)
def test_arguments_of_the_wrong_kind_are_refused_and_never_raise_anything_else(case: str) -> None:
    with pytest.raises(BadInput):
        WRONG[case](pipeline())


def test_a_source_that_deals_over_another_number_of_tasks_is_refused() -> None:
    from ppa_core.pipeline.sources.day66 import Day66

    with pytest.raises(BadInput, match="source 's': 3 tasks, but its input is partitioned over 29"):
        Pipeline("x").source("s", 3, Day66())
