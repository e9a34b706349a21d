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

from ppa_core.runtime.pipeline import Pipeline
from ppa_core.runtime.streams import Ints
from ppa_core.runtime.work import Flow
from ppa_core.topology import derive

HALF_LIFE = 1
"""Batches after which what was seen before counts half: chance evens out a little, and OF is told right again soon after a
load has moved."""
_KEEP = 0.5 ** (1 / HALF_LIFE)


@dataclass
class _Stream:
    """The substreams of one stream: their names and places, (up · down tasks + down), in ascending order."""

    names: list[str]
    places: Ints
    tuples: NDArray[np.float64]
    """In a batch that carries some."""
    apart: float = 1.0
    """How many batches there are from one that carries some to the next."""
    last: int = -1

    def take(self, batch: int, places: Ints, rows: Ints) -> None:
        tuples = _KEEP * self.tuples
        tuples[np.searchsorted(self.places, places)] += (1 - _KEEP) * rows
        self.tuples = tuples  # at once: planners read in threads of their own
        self.apart = _KEEP * self.apart + (1 - _KEEP) * (batch - self.last)
        self.last = batch


class Meter:
    """`take` what flowed in every whole batch; `rates` tells what flows."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._seconds = pipeline.batch_seconds
        self._batch = -1
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

    def take(self, batch: int, flows: Iterable[Flow]) -> None:
        """What flowed in a whole batch. The first one may be any: a run goes on where it stopped."""
        if self._batch < 0:
            for metered in self._streams.values():
                metered.last = batch - 1
        self._batch = batch
        carried: defaultdict[tuple[str, str], list[Flow]] = defaultdict(list)
        for flow in flows:
            if len(flow.rows):
                carried[flow.stream.source, flow.stream.target].append(flow)
        for ends, parts in carried.items():
            places = np.concatenate([part.up * part.stream.down_tasks + part.down for part in parts])
            self._streams[ends].take(batch, places, np.concatenate([part.rows for part in parts]))

    def rates(self) -> dict[str, float]:
        """Tuples/s by substream, such as `"O1.1>O3.1"`; empty before the first batch."""
        if self._batch < 0:
            return {}
        found: dict[str, float] = {}
        for metered in self._streams.values():
            seconds = max(metered.apart, self._batch - metered.last) * self._seconds
            found.update(zip(metered.names, (metered.tuples / seconds).tolist(), strict=True))
        return found
