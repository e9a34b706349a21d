"""Measured rates by substream: a moving average over batches, which starts from the declared rates.

For each stream only batches with tuples count, each for the time since the previous one: a sliding window produces output
only in some batches, and its rate is not zero in between. The rate of a substream without tuples decreases if others of its
stream have some.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ppa_core.pipeline.definition import Pipeline
from ppa_core.pipeline.streams import Ints, Stream
from ppa_core.topology import derive

MOST = 0.5
"""Maximum weight of one batch: OF is correct again a few batches after the load has changed."""
PLENTY = 30
"""Tuples per substream; a batch with fewer has less weight, because its rates are mostly chance."""


@dataclass(frozen=True)
class MeasuredFlow:
    """The input of one partition's tasks from one stream in a batch: `rows[i]` from task `up[i]` to task `down[i]`, from 0."""

    batch: int
    stream: Stream
    up: Ints
    down: Ints
    rows: Ints


@dataclass
class _Stream:
    """The substreams of one stream: their names and places, (up · down tasks + down), in ascending order."""

    names: list[str]
    places: Ints
    tuples: NDArray[np.float64]
    """Per batch with tuples."""
    apart: float = 1.0
    """Average number of batches from one with tuples to the next."""
    last: int = 0

    def take(self, number: int, places: Ints, rows: Ints) -> None:
        found = int(rows.sum())
        weight = min(MOST, found / (found + PLENTY * len(self.places))) if self.tuples.any() else 1.0
        tuples = (1 - weight) * self.tuples
        tuples[np.searchsorted(self.places, places)] += weight * rows
        self.tuples = tuples  # at once: planners read in threads of their own
        self.apart += weight * (number - self.last - self.apart)
        self.last = number


class Meter:
    """`take` the flows of every batch without missing tasks, and of no other; `rates` returns the average."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._seconds = pipeline.batch_seconds
        self._taken = 0
        topology = pipeline.topology()
        found: defaultdict[tuple[str, str], list[tuple[int, str, float]]] = defaultdict(list)
        for up, down, rate in derive(topology).substreams():
            source, target = topology.tasks[up], topology.tasks[down]
            ends = source.rpartition(".")[0], target.rpartition(".")[0]
            place = (up - topology.span[ends[0]].start) * len(topology.span[ends[1]]) + down - topology.span[ends[1]].start
            found[ends].append((place, f"{source}>{target}", rate * self._seconds))
        self._streams: dict[tuple[str, str], _Stream] = {}
        for ends, links in found.items():
            places, names, tuples = zip(*sorted(links), strict=True)
            self._streams[ends] = _Stream(list(names), np.array(places), np.array(tuples))

    def take(self, flows: Iterable[MeasuredFlow]) -> None:
        """Add the flows of a batch without missing tasks."""
        self._taken += 1
        carried: defaultdict[tuple[str, str], list[MeasuredFlow]] = defaultdict(list)
        for flow in flows:
            if len(flow.rows):
                carried[flow.stream.source, flow.stream.target].append(flow)
        for ends, parts in carried.items():
            places = np.concatenate([part.up * part.stream.down_tasks + part.down for part in parts])
            self._streams[ends].take(self._taken, places, np.concatenate([part.rows for part in parts]))

    def rates(self) -> dict[str, float]:
        """Tuples/s by substream, such as `"O1.1>O3.1"`; empty before the first batch, and without streams whose rate is
        unknown."""
        found: dict[str, float] = {}
        for metered in self._streams.values() if self._taken else ():
            if metered.tuples.any():
                seconds = max(metered.apart, self._taken - metered.last) * self._seconds
                found.update(zip(metered.names, (metered.tuples / seconds).tolist(), strict=True))
        return found
