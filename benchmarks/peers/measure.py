"""What a run came to: the longest silence, rows lost, repeated or wrong, and how long latency was above normal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median

from benchmarks.peers.work import Row, exact

FAIL_AT = 32
"""Something fails once the result of this window is there, or of a later one: the windows of 30 s are full."""
BEFORE, STEADY = 10, 5
"""So many windows say what was normal before, and so many in a row that it is so again."""
TOLERANCE = 1.1
EVEN = 2.0
"""Seconds by which latency may vary for a system to count as warm; while it catches up, latency falls by more."""


@dataclass
class Seen:
    """The results of a run so far, in the order in which they were seen."""

    zero: float
    """The time, in seconds since 1970, at which the first window began."""
    rows: list[Row] = field(default_factory=list)
    appeared: dict[int, float] = field(default_factory=dict)
    """When the last row of each window was there."""
    failed_at: float | None = None
    last: int = 0
    """The newest window when something failed."""
    _keys: dict[int, set[int]] = field(default_factory=dict)

    def add(self, rows: Iterable[Row]) -> None:
        for row in rows:
            self.rows.append(row)
            keys = self._keys.setdefault(row.window, set())
            keys.add(row.key)
            if row.window not in self.appeared and len(keys) >= len(exact(row.window)):
                self.appeared[row.window] = row.at

    @property
    def newest(self) -> int:
        """The newest complete window; 0 if there is none yet."""
        return max(self.appeared, default=0)

    def fail(self, at: float) -> None:
        """Something has failed."""
        self.failed_at, self.last = at, self.newest

    def steady(self) -> bool:
        """Whether windows are full, and the last ones have come about evenly: the system has warmed up."""
        last = self.latencies(self.newest - BEFORE + 1, self.newest + 1)
        return self.newest >= FAIL_AT and len(last) == BEFORE and max(last) - min(last) <= EVEN

    def latencies(self, first: int, end: int) -> list[float]:
        """Seconds from the end of each of these windows until its result was there; windows without one are left out."""
        return [self.appeared[window] - self.zero - window for window in range(first, end) if window in self.appeared]


@dataclass(frozen=True)
class Figures:
    """The measurements of one run."""

    silence: float
    lost: int
    duplicated: int
    wrong: int
    back: float | None
    """Seconds from the failure until latency is within 10 % of before; None: not while the run was watched."""
    latency: float
    """Seconds from the end of a window to its result, before the failure: the median."""


def figures(seen: Seen, end: float) -> Figures:
    """The figures of a run that was watched until `end`."""
    lost, duplicated, wrong = against_exact(seen.rows, seen.newest)
    return Figures(longest_silence(seen, end), lost, duplicated, wrong, back(seen), normal(seen))


def longest_silence(seen: Seen, end: float) -> float:
    """The longest time between the results of two windows in a row, from some windows before the failure on; the normal
    interval is part of it. If nothing came any more, until `end`."""
    times = [seen.appeared[window] for window in sorted(seen.appeared) if window > seen.last - BEFORE]
    if not times:
        return end - seen.zero
    last = [end] if back(seen) is None else []
    return max((b - a for a, b in pairwise([*times, *last])), default=0.0)


def normal(seen: Seen) -> float:
    """The median latency of the windows before the failure."""
    return median(seen.latencies(seen.last - BEFORE + 1, seen.last + 1))


def back(seen: Seen) -> float | None:
    """Seconds from the failure to the first result whose latency, and the median of whose five, is within 10 % of before."""
    if seen.failed_at is None:
        return None
    limit = normal(seen) * TOLERANCE
    for window in range(seen.last + 1, seen.newest - STEADY + 2):
        five = seen.latencies(window, window + STEADY)
        if window in seen.appeared and five[0] <= limit and median(five) <= limit:
            return max(0.0, seen.appeared[window] - seen.failed_at)
    return None


def against_exact(rows: Sequence[Row], last: int) -> tuple[int, int, int]:
    """Rows that are missing, repeated, and in the end not what they should be, in the windows up to `last`."""
    found: dict[tuple[int, int], tuple[int, int]] = {}
    duplicated = 0
    for row in rows:
        if row.window <= last:
            duplicated += (row.window, row.key) in found
            found[row.window, row.key] = row.count, row.total
    expected = {(window, key): value for window in range(1, last + 1) for key, value in exact(window).items()}
    lost = len(expected.keys() - found.keys())
    return lost, duplicated, sum(expected.get(place) != value for place, value in found.items())
