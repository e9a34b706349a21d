"""Live rates, from what flowed in batches."""

from __future__ import annotations

import numpy as np
import pytest

from ppa_core.fidelity import compile_topology
from ppa_core.queries import load_query
from ppa_core.runtime.meter import HALF_LIFE, Meter
from ppa_core.runtime.work import Flow
from tests.runtime.local import Local
from tests.runtime.shifting import LITTLE, MUCH, shifting

PIPELINE = shifting()
STREAM = next(stream for stream in PIPELINE.streams if stream.source == "S")


def flowed(batch: int, *rows: int) -> list[Flow]:
    """Tuples from each task of S to that of A, each told by a task of A, as workers do: nothing of those without."""
    parts = [(np.arange(i, i + 1), np.array([n])) if n else (np.zeros(0, int),) * 2 for i, n in enumerate(rows)]
    return [Flow(batch, STREAM, task, task, tuples) for task, tuples in parts]


def first(meter: Meter) -> list[float]:
    return [meter.rates()[f"S.{k}>A.{k}"] for k in range(1, 5)]


def test_nothing_is_told_before_the_first_batch() -> None:
    assert Meter(PIPELINE).rates() == {}


def test_rates_begin_with_the_declared_ones_and_go_over_to_those_seen() -> None:
    meter = Meter(PIPELINE)
    for batch in range(HALF_LIFE):
        meter.take(batch, flowed(batch, 0, 0, 700, 300))
    assert first(meter) == pytest.approx([MUCH / 2, MUCH / 2, (LITTLE + 700) / 2, (LITTLE + 300) / 2])
    for batch in range(HALF_LIFE, 60):
        meter.take(batch, flowed(batch, 0, 0, 700, 300))
    assert first(meter) == pytest.approx([0, 0, 700, 300], abs=0.01)


def test_a_stream_that_carries_tuples_every_tenth_batch_has_one_rate_all_the_time() -> None:
    meter = Meter(PIPELINE)
    for batch in range(300):
        meter.take(batch, flowed(batch, *([1000, 2000, 3000, 4000] if batch % 10 == 9 else [0] * 4)))
        if batch > 200:
            assert first(meter) == pytest.approx([100, 200, 300, 400], rel=0.01)


def test_a_stream_that_dries_up_fades_and_keeps_its_proportions() -> None:
    meter = Meter(PIPELINE)
    for batch in range(1000, 1030):
        meter.take(batch, flowed(batch, 100, 200, 300, 400) if batch < 1010 else [])
    rates = first(meter)
    assert sum(rates) < 100
    assert np.diff(rates).min() > 0


def test_a_run_that_goes_on_where_it_stopped_has_no_gap() -> None:
    meter = Meter(PIPELINE)
    meter.take(5000, flowed(5000, MUCH, MUCH, LITTLE, LITTLE))
    assert first(meter) == pytest.approx([MUCH, MUCH, LITTLE, LITTLE])


def test_of_does_not_jump_between_the_slides_of_a_window() -> None:
    query = load_query("q2", rate=2000, users=4000, segments=100, window=20, slide=4)
    local, meter, values = Local(query.pipeline, partitions=2), Meter(query.pipeline), []
    alive = np.ones(len(query.pipeline.topology().tasks), dtype=bool)
    alive[query.pipeline.topology().index["O3.2"]] = False
    for batch in range(40):
        meter.take(batch, local.run(local.order(batch)).flows)
        values.append(compile_topology(query.pipeline.topology(meter.rates())).value(alive))
    late = values[28:]
    assert 0 < min(late) <= max(late) < 1
    assert max(late) - min(late) < 0.1
    assert late[1] == pytest.approx(late[0])  # nothing came between
