"""Live rates, from what flowed in batches."""

from __future__ import annotations

import numpy as np
import pytest

from ppa_core.drills.local import Local
from ppa_core.engine.meter import MeasuredFlow, Meter
from ppa_core.fidelity import compile_topology
from ppa_core.pipeline import operators as op
from ppa_core.pipeline.definition import Pipeline
from ppa_core.queries import load_query
from tests.support.shifting import LITTLE, MUCH, Shifting, _same, shifting

PIPELINE = shifting()
STREAM = next(stream for stream in PIPELINE.streams if stream.source == "S")


class Quiet(Shifting):
    """Has no rate to declare."""

    def rate(self, task: int) -> float:
        return 0.0


def flowed(*rows: int) -> list[MeasuredFlow]:
    """Tuples from each task of S to that of A, each told by a task of A, as workers do: nothing of those without."""
    parts = [(np.arange(i, i + 1), np.array([n])) if n else (np.zeros(0, int),) * 2 for i, n in enumerate(rows)]
    return [MeasuredFlow(0, STREAM, task, task, tuples) for task, tuples in parts]


def first(meter: Meter) -> list[float]:
    return [meter.rates()[f"S.{k}>A.{k}"] for k in range(1, 5)]


def test_nothing_is_told_before_the_first_batch() -> None:
    assert Meter(PIPELINE).rates() == {}


def test_rates_begin_with_the_declared_ones_and_go_over_to_those_seen() -> None:
    meter = Meter(PIPELINE)
    meter.take(flowed(0, 0, 700, 300))
    assert first(meter) == pytest.approx([MUCH / 2, MUCH / 2, (LITTLE + 700) / 2, (LITTLE + 300) / 2])
    for _ in range(30):
        meter.take(flowed(0, 0, 700, 300))
    assert first(meter) == pytest.approx([0, 0, 700, 300], abs=0.01)


def test_a_stream_that_carries_tuples_every_tenth_batch_has_one_rate_all_the_time() -> None:
    meter = Meter(PIPELINE)
    for batch in range(300):
        meter.take(flowed(*([1000, 2000, 3000, 4000] if batch % 10 == 9 else [0] * 4)))
        if batch > 200:
            assert first(meter) == pytest.approx([100, 200, 300, 400], rel=0.01)


def test_a_stream_that_dries_up_fades_and_keeps_its_proportions() -> None:
    meter = Meter(PIPELINE)
    for batch in range(30):
        meter.take(flowed(100, 200, 300, 400) if batch < 10 else [])
    rates = first(meter)
    assert sum(rates) < 100
    assert np.diff(rates).min() > 0


def test_the_chance_of_a_few_tuples_hardly_moves_a_rate() -> None:
    random, meter, told = np.random.default_rng(7), Meter(PIPELINE), []
    for batch in range(1000):
        meter.take(flowed(*random.multinomial(20, [0.25] * 4)))
        if batch > 300:
            told.append(first(meter))
    assert np.mean(told) == pytest.approx(5, rel=0.02)
    assert np.std(told, axis=0).max() < 0.8  # of one batch: 1.9


def test_a_stream_without_a_declared_rate_is_not_told_before_it_is_seen_and_then_at_once() -> None:
    pipeline = (
        Pipeline("quiet")
        .source("S", 4, Quiet(0))
        .operator("A", 4, {"S": "one-to-one"}, op.map(_same), lookback_batches=0)
        .operator("B", 1, {"A": "merge"}, op.map(_same), lookback_batches=0)
    )
    meter = Meter(pipeline)
    meter.take([])
    assert meter.rates() == {}
    meter.take(flowed(10, 20, 30, 40))
    assert first(meter) == pytest.approx([5, 10, 15, 20])  # two batches
    assert not any(name.startswith("A.") for name in meter.rates())


@pytest.mark.slow
def test_of_does_not_jump_between_the_slides_of_a_window() -> None:
    query = load_query("q2", rate=2000, users=4000, segments=100, window=20, slide=4)
    local, meter, values = Local(query.pipeline, partitions=2), Meter(query.pipeline), []
    alive = np.ones(len(query.pipeline.topology().tasks), dtype=bool)
    alive[query.pipeline.topology().index["O3.2"]] = False
    for batch in range(40):
        meter.take(local.run(local.order(batch)).flows)
        values.append(compile_topology(query.pipeline.topology(meter.rates())).value(alive))
    late = values[28:]
    assert 0 < min(late) <= max(late) < 1
    assert max(late) - min(late) < 0.1
    assert late[1] == pytest.approx(late[0])  # nothing came between
