"""Windows: how long, and how often they give a result. The batch is the unit of time.

A window is cut into slices of one slide each. Slices and windows begin at batch 0 and end with a batch, so that they never
depend on when a task was started. A result comes in the batch that ends a slide; the first windows hold what there is yet.
There is no event time: a tuple belongs to the batch that brought it.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from typing import Literal

from ppa_core.errors import BadInput
from ppa_core.pipeline.kinds import is_number

Unit = Literal["seconds", "batches"]


def tumbling(length: float, unit: Unit = "seconds") -> Window:
    """Windows of `length` one after the other: every tuple is in one."""
    return Window(length, length, unit)


def sliding(length: float, every: float | None = None, unit: Unit = "seconds") -> Window:
    """The last `length`, with a result `every` so often, by default every batch; `length` is a multiple of `every`."""
    return Window(length, every, unit)


@dataclass(frozen=True)
class Window:
    """A window of `length` with a result `every` so often (None: every batch), both in `unit`."""

    length: float
    every: float | None = None
    unit: Unit = "seconds"

    def __post_init__(self) -> None:
        for name, value in (("length", self.length), ("slide", self.every)):
            if value is not None and not (is_number(value) and isfinite(value) and value > 0):
                raise BadInput("window", f"a {name} of {value!r} {self.unit}; it must be a positive number")
        if self.unit not in ("seconds", "batches"):
            raise BadInput("window", f"{self.unit!r} is no unit; choose seconds or batches")

    def slices(self, batch_seconds: float) -> Slices:
        """The window in batches of so many seconds; refused if it is not a whole number of them, or of slides."""
        slide = 1 if self.every is None else self._batches("slide", self.every, batch_seconds)
        length = self._batches("length", self.length, batch_seconds)
        if length % slide:
            near = f"{length - length % slide} or {length - length % slide + slide}" if length > slide else f"{slide}"
            reason = f"a length of {length} batches and a slide of {slide}; the length must be a multiple, such as {near}"
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
    """Refuse what is no window."""
    if not isinstance(window, Window):
        raise BadInput(place, f"its window is {window!r}; write sliding(60, every=10) or tumbling(10)")
