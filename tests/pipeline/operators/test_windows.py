"""Windows in batches, and those that are refused."""

from __future__ import annotations

import pytest

from ppa_core.errors import BadInput
from ppa_core.pipeline.operators import Window, sliding, tumbling
from ppa_core.pipeline.operators.windows import Slices


@pytest.mark.parametrize(
    ("window", "batch_seconds", "slices"),
    [
        (tumbling(10), 1.0, Slices(10, 1)),
        (tumbling(3, "batches"), 7.0, Slices(3, 1)),
        (sliding(10), 2.5, Slices(1, 4)),
        (sliding(60, every=10), 0.1, Slices(100, 6)),
        (sliding(0.3, every=0.1), 0.1, Slices(1, 3)),
        (sliding(6, 2, "batches"), 0.5, Slices(2, 3)),
    ],
)
def test_windows_are_counted_in_batches(window: Window, batch_seconds: float, slices: Slices) -> None:
    assert window.slices(batch_seconds) == slices


@pytest.mark.parametrize(
    ("window", "reason"),
    [
        (tumbling(5), r"a slide of 5 seconds is 2.5 batches of 2 s; it must be a whole number.*batch_seconds"),
        (sliding(5), r"a length of 5 seconds is 2.5 batches"),
        (sliding(1), r"a length of 1 seconds is 0.5 batches"),
        (sliding(10, every=4), r"length of 5 batches and a slide of 2; the length must be a multiple of it, such as 4 or 6"),
        (sliding(2, every=4), r"such as 2$"),
        (sliding(1.5, unit="batches"), r"a length of 1.5 batches is 1.5 batches; it must be a whole number"),
    ],
)
def test_windows_that_do_not_fit_the_batches_are_refused(window: Window, reason: str) -> None:
    with pytest.raises(BadInput, match=reason):
        window.slices(2.0)


@pytest.mark.parametrize("length", [0, -1, float("nan"), float("inf")])
def test_lengths_are_positive(length: float) -> None:
    with pytest.raises(BadInput, match="it must be a positive number"):
        sliding(length)
    with pytest.raises(BadInput, match="it must be a positive number"):
        sliding(1, every=length)


def test_units_are_seconds_or_batches() -> None:
    with pytest.raises(BadInput, match="choose seconds or batches"):
        tumbling(3, "hours")  # type: ignore[arg-type]


def test_a_slice_ends_with_the_last_of_its_batches() -> None:
    assert [Slices(3, 2).closes(batch) for batch in range(6)] == [False, False, True, False, False, True]
