"""Tracks an incident from the first failure to the last correction. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from monitoring.records import Incident

Spans = tuple[tuple[int, int], ...]
MAX_SPANS = 1_000


def with_batch(spans: Spans, batch: int) -> Spans:
    """The ranges with one more batch; adjacent ranges are merged."""
    if spans and spans[-1][0] <= batch <= spans[-1][1] + 1:  # the next one, nearly always
        return (*spans[:-1], (spans[-1][0], max(batch, spans[-1][1])))
    joined: list[tuple[int, int]] = []
    for first, last in sorted([*spans, (batch, batch)]):
        if joined and first <= joined[-1][1] + 1:
            joined[-1] = (joined[-1][0], max(last, joined[-1][1]))
        else:
            joined.append((first, last))
    return tuple(joined[-MAX_SPANS:])


def batches_in(spans: Spans, most: int = 100_000) -> set[int]:
    """The batches in the ranges."""
    found: set[int] = set()
    for first, last in spans:
        found.update(range(first, min(last, first + most) + 1))
    return found


def count(spans: Spans) -> int:
    return sum(last - first + 1 for first, last in spans)


class IncidentTracker:
    """Follows one incident at a time. `incident` is the open one if `open` is true, else the last one.

    Its id is the cause that the driver reports; without one it is made from the time of the first failure. After all tentative
    batches are corrected, the next batch may still be tentative; only an accurate batch ends the incident.
    """

    def __init__(self, previous: Incident | None = None) -> None:
        self.incident = previous
        self.open = previous is not None and previous.until is None
        self.outstanding = batches_in(previous.tentative) - batches_in(previous.corrected) if previous and self.open else set()
        """Tentative batches that are not corrected yet."""
        self.missing: frozenset[str] = frozenset(previous.failed) if previous and self.outstanding else frozenset()

    @property
    def cause(self) -> str:
        """The id of the open incident; empty if none is open."""
        return self.incident.id if self.incident and self.open else ""

    def ended_by(self, cause: str) -> bool:
        """Whether a report with this cause begins another incident: all tentative batches of the open one are corrected."""
        known = self.incident
        if known is None or not self.open or cause in ("", known.id):
            return False
        return not self.outstanding and known.last_correction is not None

    def lost(self, node: str, reason: str, at: float, batch: int, cause: str = "") -> bool:
        """A node was lost. Whether that begins an incident."""
        began = not self.open and self._begin(at, batch, reason, cause)
        assert self.incident is not None
        self.incident = replace(self.incident, nodes=_added(self.incident.nodes, [node]))
        return began

    def failed_over(self, moved: Iterable[str], missing: Iterable[str], at: float, batch: int, cause: str = "") -> None:
        """Some tasks continue on the node of their replica; others are missing."""
        if not self.open:
            self._begin(at, batch, "", cause)
        assert self.incident is not None
        gone = list(missing)
        self.missing |= set(gone)
        taken = tuple(task for task in _added(self.incident.taken_over, moved) if task not in self.missing)
        self.incident = replace(self.incident, failed=_added(self.incident.failed, gone), taken_over=taken)

    def tentative(self, batch: int, of: float, missing: Iterable[str], at: float, cause: str = "") -> bool:
        """A tentative output was published. Whether that begins an incident."""
        began = not self.open and self._begin(at, batch, "", cause)
        assert self.incident is not None
        known = self.incident
        self.missing = frozenset(missing) or self.missing
        self.outstanding.add(batch)
        self.incident = replace(
            known,
            failed=_added(known.failed, self.missing),
            tentative=with_batch(known.tentative, batch),
            predicted=of if known.predicted is None else min(of, known.predicted),
            first_tentative=known.first_tentative if known.first_tentative is not None else at,
        )
        return began

    def corrected(self, batch: int, accuracy: float | None, at: float) -> None:
        """A tentative batch was replaced by its accurate output."""
        self.outstanding.discard(batch)
        if self.incident is None or not self.open:
            return
        known = self.incident
        mean, measured = known.accuracy, known.measured
        if accuracy is not None:
            mean = ((mean or 0.0) * measured + accuracy) / (measured + 1)
            measured += 1
        corrected = with_batch(known.corrected, batch)
        self.incident = replace(known, corrected=corrected, accuracy=mean, measured=measured, last_correction=at)

    def recovered(self, at: float) -> None:
        """The failed tasks have reached the batch at which they failed."""
        if self.incident is not None and self.open and self.incident.recovered is None:
            self.incident = replace(self.incident, recovered=at)

    def accurate(self, at: float) -> bool:
        """A batch was accurate, or the run ended. Whether that ends the incident; its end is its last correction."""
        if not self.open or self.outstanding or self.incident is None:
            return False
        self.missing, self.open = frozenset(), False
        last = self.incident.last_correction
        self.incident = replace(self.incident, until=at if last is None else last)
        return True

    def _begin(self, at: float, batch: int, reason: str, cause: str) -> bool:
        """Begin an incident, or reopen the last one if the driver reports its cause. Whether it is a new one."""
        self.open, self.outstanding, self.missing = True, set(), frozenset()
        known = self.incident
        if known is not None and known.id == cause:
            self.incident = replace(known, until=None)
            return False
        self.incident = Incident(cause or f"{int(at * 1000):x}", at, batch, reason=reason)
        return True


def _added(before: tuple[str, ...], more: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys([*before, *sorted(more)]))
