"""Incremental windows: a slide costs one new slice and one old slice, however long the window is.

Names and contents of segments depend only on the tuples of the window, never on when the task was started or on earlier tuples.
Empty segments are not written: a missing segment is an empty one.

The state of a window between two slides:

- `batch.<b>`: the partial of each batch of the slice that is not yet complete;
- if all parts are exact, `slice.<i>`: the partials of the slices, and `total`: their merged partial. A new slice is added to
  the total and the oldest one subtracted;
- otherwise `node.<level>.<j>`: the partials of slices j·2^level to (j+1)·2^level − 1. A minimum cannot be subtracted, nor a
  floating-point number exactly. A window is merged from at most 2·log₂ nodes, always in the same order. The left half of a node
  is dropped when the node is created, because no later window contains only that half. So each slide writes about one node, and
  the nodes take no more space than the slices.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pyarrow as pa

from ppa_core.pipeline.operators.partials import Partials
from ppa_core.pipeline.operators.windows import Slices


class Segments:
    """A task's segments under names that begin with `prefix`, with the changes of this batch."""

    def __init__(self, state: Mapping[str, pa.Table], prefix: str = "") -> None:
        self._state, self._prefix = state, prefix
        self.add: dict[str, pa.Table] = {}
        self.drop: list[str] = []

    def get(self, name: str) -> pa.Table | None:
        """A segment, or None if it does not exist."""
        name = self._prefix + name
        if name in self.add:
            return self.add[name]
        return self._state[name] if name in self._state and name not in self.drop else None

    def put(self, name: str, table: pa.Table) -> None:
        """Add or replace a segment; an empty one is removed."""
        if table.num_rows:
            self.add[self._prefix + name] = table
        else:
            self.remove(name)

    def remove(self, name: str) -> None:
        """Drop a segment if it exists."""
        name = self._prefix + name
        self.add.pop(name, None)
        if name in self._state:
            self.drop.append(name)

    def take(self, name: str) -> pa.Table | None:
        """Return and drop a segment."""
        found = self.get(name)
        self.remove(name)
        return found


def slide(partials: Partials, slices: Slices, batch: int, new: pa.Table, segments: Segments) -> pa.Table | None:
    """The partial of the window that ends with `batch`, None if none does; `new` is the partial of that batch."""
    if not slices.closes(batch):
        segments.put(f"batch.{batch}", new)
        return None
    earlier = [segments.take(f"batch.{b}") for b in range(batch + 1 - slices.slide, batch)]
    new = _merged(partials, [*earlier, new], new)
    if slices.count == 1:
        return new
    last = batch // slices.slide
    return (_slide_total if partials.exact else _slide_tree)(partials, last, slices.count, new, segments)


def _slide_total(partials: Partials, last: int, count: int, new: pa.Table, segments: Segments) -> pa.Table:
    window = _merged(partials, [segments.get("total"), new], new)
    old = segments.take(f"slice.{last + 1 - count}")
    segments.put(f"slice.{last}", new)
    segments.put("total", window if old is None else partials.without(window, old))
    return window


def _slide_tree(partials: Partials, last: int, count: int, new: pa.Table, segments: Segments) -> pa.Table:
    levels = (count - 1).bit_length()  # a node is not longer than what the next window has of the slices so far
    segments.put(f"node.0.{last}", new)
    for level in range(1, levels):
        if (last + 1) % 2**level:
            break
        right = last >> (level - 1)
        halves = [segments.take(f"node.{level - 1}.{right - 1}"), segments.get(f"node.{level - 1}.{right}")]
        segments.put(f"node.{level}.{right >> 1}", _merged(partials, halves, new))
    nodes = [segments.get(name) for name in _nodes(max(last + 1 - count, 0), last, levels)]
    window = _merged(partials, nodes, new)
    for level in range(levels):
        if (last + 1 - count) % 2**level == 0:
            segments.remove(f"node.{level}.{(last + 1 - count) >> level}")
    return window


def _nodes(first: int, last: int, levels: int) -> Iterator[str]:
    """The largest nodes that slices `first` to `last` consist of, oldest first."""
    while first <= last:
        level = max(n for n in range(levels) if first % 2**n == 0 and first + 2**n <= last + 1)
        yield f"node.{level}.{first >> level}"
        first += 2**level


def _merged(partials: Partials, slices: list[pa.Table | None], like: pa.Table) -> pa.Table:
    """The partial of slices, of which those that are None are empty; if all are, an empty one with the columns of `like`."""
    there = [one for one in slices if one is not None and one.num_rows]
    return partials.merged(there) if there else like.slice(0, 0)
