"""Live rates by substream: a moving average over batches, which begins with the declared rates.

Of a stream only the batches count in which it carried tuples, each for the time since the one before: a window that slides puts
out now and then, and its rate is not zero in between. A substream that carries nothing while others of its stream do fades.
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
"""The weight of a batch with plenty of tuples: OF is told right again a few batches after a load has moved."""
PLENTY = 30
"""Tuples for each substream. A batch with fewer weighs less, for what they tell is chance."""


@dataclass(frozen=True)
class MeasuredFlow:
    """What tasks of one partition took in from one stream in a batch: `rows[i]` from task `up[i]` to task `down[i]`, from 0."""

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
    """In a batch that carries some."""
    apart: float = 1.0
    """How many batches there are from one that carries some to the next."""
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
    """`take` what flowed in every whole batch; `rates` tells what flows. Others are passed over, as if they had not been."""

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
        """What flowed in a whole batch."""
        self._taken += 1
        carried: defaultdict[tuple[str, str], list[MeasuredFlow]] = defaultdict(list)
        for flow in flows:
            if len(flow.rows):
                carried[flow.stream.source, flow.stream.target].append(flow)
        for ends, parts in carried.items():
            places = np.concatenate([part.up * part.stream.down_tasks + part.down for part in parts])
            self._streams[ends].take(self._taken, places, np.concatenate([part.rows for part in parts]))

    def rates(self) -> dict[str, float]:
        """Tuples/s by substream, such as `"O1.1>O3.1"`; none before the first batch, or of streams that nothing is known of."""
        found: dict[str, float] = {}
        for metered in self._streams.values() if self._taken else ():
            if metered.tuples.any():
                seconds = max(metered.apart, self._taken - metered.last) * self._seconds
                found.update(zip(metered.names, (metered.tuples / seconds).tolist(), strict=True))
        return found
