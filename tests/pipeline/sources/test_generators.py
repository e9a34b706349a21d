"""Generators: a function of seed, task and batch, checked against its schema."""

from __future__ import annotations

import doctest
import pickle
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from ppa_core.errors import BadInput
from ppa_core.pipeline.definition import Pipeline
from ppa_core.pipeline.sources import generators
from ppa_core.pipeline.sources.generators import Generated

SCHEMA = pa.schema({"word": pa.string(), "n": pa.int32()})


def words(random: np.random.Generator, task: int, batch: int) -> dict[str, Any]:
    return {"n": random.integers(0, 100, 20), "word": [f"w{task}-{batch}"] * 20}


def test_the_example_in_the_documentation() -> None:
    assert doctest.testmod(generators).failed == 0


def test_the_same_seed_task_and_batch_give_the_same_tuples() -> None:
    source = Generated(SCHEMA, 20.0, words, seed=1)
    again = pickle.loads(pickle.dumps(source))
    assert source.read(2, 5) == again.read(2, 5)
    assert source.read(2, 5).schema == SCHEMA
    assert (
        len(
            {
                tuple(Generated(SCHEMA, 20.0, words, s).read(t, b)["n"].to_pylist())
                for s in (0, 1)
                for t in (0, 1)
                for b in (0, 1)
            }
        )
        == 8
    )


def test_rates_are_for_all_tasks_or_for_each() -> None:
    assert Generated(SCHEMA, 20.0, words).rate(3) == 20
    source = Generated(SCHEMA, (1.0, 2.0, 3.0), words)
    assert [source.rate(task) for task in range(3)] == [1, 2, 3]
    assert Pipeline("words").source("in", 3, source).topology().operators[0].name == "in"


@pytest.mark.parametrize(
    ("made", "reason"),
    [
        ([1, 2], "returned list"),
        ({"n": [1]}, "returned the columns n, the schema has word, n"),
        ({"n": ["x"], "word": ["y"]}, "does not match"),
        (pa.table({"n": [1 << 40], "word": ["y"]}), "does not match"),
    ],
)
def test_what_does_not_fit_is_refused_with_task_and_batch(made: Any, reason: str) -> None:
    source = Generated(SCHEMA, 1.0, lambda random, task, batch: made)
    with pytest.raises(BadInput, match=rf"task 1, batch 7: .*{reason}"):
        source.read(1, 7)
