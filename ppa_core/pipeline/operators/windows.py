"""Windows: their length, and how often they produce a result. The batch is the unit of time.

A window is divided into slices of one slide each. Slices and windows are aligned to batch 0, so that they never depend on when
a task was started. A result is produced in the batch that ends a slide; the first windows contain fewer batches. There is no
event time: a tuple belongs to the batch in which it arrived.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from typing import Literal

from ppa_core.errors import BadInput
from ppa_core.pipeline.kinds import is_number

Unit = Literal["seconds", "batches"]


def tumbling(length: float, unit: Unit = "seconds") -> Window:
    """Consecutive windows of `length`: every tuple is in exactly one."""
    return Window(length, length, unit)


def sliding(length: float, every: float | None = None, unit: Unit = "seconds") -> Window:
    """A window over the last `length` with slide `every`, by default one batch; `length` must be a multiple of `every`."""
    return Window(length, every, unit)


@dataclass(frozen=True)
class Window:
    """A window of `length` with slide `every` (None: one batch), both in `unit`."""

    length: float
    every: float | None = None
    unit: Unit = "seconds"

    def __post_init__(self) -> None:
        for name, value in (("length", self.length), ("slide", self.every)):
            if value is not None and not (is_number(value) and isfinite(value) and value > 0):
                raise BadInput("window", f"a {name} of {value!r} {self.unit}; it must be a positive number")
        if self.unit not in ("seconds", "batches"):
            raise BadInput("window", f"unknown unit {self.unit!r}; choose seconds or batches")

    def slices(self, batch_seconds: float) -> Slices:
        """The window in batches. Raises BadInput if it is not a whole number of batches, or of slides."""
        slide = 1 if self.every is None else self._batches("slide", self.every, batch_seconds)
        length = self._batches("length", self.length, batch_seconds)
        if length % slide:
            near = f"{length - length % slide} or {length - length % slide + slide}" if length > slide else f"{slide}"
            reason = f"a length of {length} batches and a slide of {slide}; the length must be a multiple of it, such as {near}"
            raise BadInput("window", reason)
        return Slices(slide, length // slide)

    def _batches(self, name: str, value: float, batch_seconds: float) -> int:
        exact = value / batch_seconds if self.unit == "seconds" else value
        whole = round(exact)
        if whole < 1 or abs(exact - whole) > 1e-9 * whole:
            unit = f" of {batch_seconds:g} s" if self.unit == "seconds" else ""
            reason = f"a {name} of {value:g} {self.unit} is {exact:g} batches{unit}; it must be a whole number of them"
            raise BadInput("window", f"{reason}: change it, or the pipeline's batch_seconds")
        return whole


@dataclass(frozen=True)
class Slices:
    """A window of `count` slices of `slide` batches each. Slices and batches are counted from 0."""

    slide: int
    count: int

    @property
    def length(self) -> int:
        """The batches in a window."""
        return self.slide * self.count

    def closes(self, batch: int) -> bool:
        """Whether a slice, and so a window, ends with this batch."""
        return (batch + 1) % self.slide == 0


def check_window(place: str, window: object) -> None:
    """Raise BadInput if it is not a window."""
    if not isinstance(window, Window):
        raise BadInput(place, f"its window is {window!r}; write sliding(60, every=10) or tumbling(10)")
