"""What the driver publishes for predictions: the machine's `Standing` and the meter's `MeasuredRates`. Plain data.

`Machine.standing` and `Meter.rates` produce them; `predictions.py` uses them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

FORGETS_NOTHING = -1
"""In `lookback`: the task's state can depend on all batches."""
NOISE = 0.05
"""Share of the mean rate; smaller changes of a rate are ignored."""


@dataclass(frozen=True)
class Standing:
    """Where each task runs and who holds its versions. Columns have one item per task; nodes and tasks are given by their
    index in `nodes` and `tasks`."""

    batch: int
    """The last batch that was run."""
    nodes: tuple[str, ...]
    tasks: tuple[str, ...]
    homes: tuple[int, ...]
    holders: tuple[tuple[int, ...], ...]
    """The nodes that hold the newest version, from which the task continues."""
    copies: tuple[tuple[int, ...], ...]
    """Accurate copies of any age: node, batch, node, batch, …"""
    lookback: tuple[int, ...]
    """How many past batches the task's state depends on, or FORGETS_NOTHING."""
    stateless: tuple[int, ...] = ()
    """Tasks without state, in general or so far: they survive any loss."""
    missing: tuple[int, ...] = ()
    lost: tuple[int, ...] = ()
    drained: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if not len(self.tasks) == len(self.homes) == len(self.holders) == len(self.copies) == len(self.lookback):
            raise ValueError("columns of different length")
        if any(len(copies) % 2 for copies in self.copies):
            raise ValueError("a copy without its batch")
        named = [self.homes, *self.holders, *(copies[::2] for copies in self.copies), self.lost, self.drained]
        if any(not 0 <= node < len(self.nodes) for numbers in named for node in numbers):
            raise ValueError("unknown node")
        if any(not 0 <= task < len(self.tasks) for numbers in (self.stateless, self.missing) for task in numbers):
            raise ValueError("unknown task")

    def copies_of(self, task: int) -> Iterator[tuple[int, int]]:
        """Node and batch of each accurate copy of a task."""
        flat = self.copies[task]
        return zip(flat[::2], flat[1::2], strict=True)


@dataclass(frozen=True)
class MeasuredRates:
    """The rates of all substreams after a batch, in tuples/s, such as `"O1.1>O3.1"`."""

    batch: int
    tuples: dict[str, float]

    def differs(self, other: MeasuredRates | None) -> bool:
        """Whether any rate differs from `other` by more than NOISE."""
        if other is None or self.tuples.keys() != other.tuples.keys():
            return True
        mean = sum(self.tuples.values()) / max(1, len(self.tuples))
        return any(abs(rate - other.tuples[name]) > NOISE * mean for name, rate in self.tuples.items())
