"""An incident as it unfolds: from the first failure to the last correction, under one id. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from monitoring.records import Incident

Spans = tuple[tuple[int, int], ...]
MOST_SPANS = 1_000


def with_batch(spans: Spans, batch: int) -> Spans:
    """The spans with one more batch, joined where they touch."""
    if spans and spans[-1][0] <= batch <= spans[-1][1] + 1:  # the next one, nearly always
        return (*spans[:-1], (spans[-1][0], max(batch, spans[-1][1])))
    joined: list[tuple[int, int]] = []
    for first, last in sorted([*spans, (batch, batch)]):
        if joined and first <= joined[-1][1] + 1:
            joined[-1] = (joined[-1][0], max(last, joined[-1][1]))
        else:
            joined.append((first, last))
    return tuple(joined[-MOST_SPANS:])


def batches_in(spans: Spans, most: int = 100_000) -> set[int]:
    """The batches that spans stand for."""
    found: set[int] = set()
    for first, last in spans:
        found.update(range(first, min(last, first + most) + 1))
    return found


def count(spans: Spans) -> int:
    return sum(last - first + 1 for first, last in spans)


class Tracker:
    """Follows one incident at a time. `incident` is the one that goes on, or the last; `open` says which.

    Its id is the cause that the driver reports; where it reports none, one is made from the time of the first failure. What is
    corrected up to the last tentative batch may turn tentative again before an accurate batch comes: only that ends it.
    """

    def __init__(self, before: Incident | None = None) -> None:
        self.incident = before
        self.open = before is not None and before.until is None
        self.outstanding = batches_in(before.tentative) - batches_in(before.corrected) if before and self.open else set()
        """Tentative batches that are not corrected."""
        self.missing: frozenset[str] = frozenset(before.failed) if before and self.outstanding else frozenset()

    @property
    def cause(self) -> str:
        """The id that goes through everything of the incident; empty while there is none."""
        return self.incident.id if self.incident and self.open else ""

    def ended_by(self, cause: str) -> bool:
        """Whether a driver that reports another cause has begun another incident: all that was tentative is corrected."""
        known = self.incident
        if known is None or not self.open or cause in ("", known.id):
            return False
        return not self.outstanding and known.last_correction is not None

    def lost(self, node: str, reason: str, at: float, batch: int, cause: str = "") -> bool:
        """A node is lost; whether that begins an incident."""
        began = not self.open and self._begin(at, batch, reason, cause)
        assert self.incident is not None
        self.incident = replace(self.incident, nodes=_added(self.incident.nodes, [node]))
        return began

    def failed_over(self, moved: Iterable[str], missing: Iterable[str], at: float, batch: int, cause: str = "") -> None:
        """Tasks went on where their replica is; others are missing from now on."""
        if not self.open:
            self._begin(at, batch, "", cause)
        assert self.incident is not None
        gone = list(missing)
        self.missing |= set(gone)
        taken = tuple(task for task in _added(self.incident.taken_over, moved) if task not in self.missing)
        self.incident = replace(self.incident, failed=_added(self.incident.failed, gone), taken_over=taken)

    def tentative(self, batch: int, of: float, missing: Iterable[str], at: float, cause: str = "") -> bool:
        """A tentative output was published; whether that begins an incident."""
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
        """The failed tasks are back at the batch they failed after."""
        if self.incident is not None and self.open and self.incident.recovered is None:
            self.incident = replace(self.incident, recovered=at)

    def accurate(self, at: float) -> bool:
        """A batch came out accurate at once, or the run is over; whether that ends the incident: at its last correction."""
        if not self.open or self.outstanding or self.incident is None:
            return False
        self.missing, self.open = frozenset(), False
        last = self.incident.last_correction
        self.incident = replace(self.incident, until=at if last is None else last)
        return True

    def _begin(self, at: float, batch: int, reason: str, cause: str) -> bool:
        """Begin an incident, or go on with the last one if the driver says it is that one still; whether it is a new one."""
        self.open, self.outstanding, self.missing = True, set(), frozenset()
        known = self.incident
        if known is not None and known.id == cause:
            self.incident = replace(known, until=None)
            return False
        self.incident = Incident(cause or f"{int(at * 1000):x}", at, batch, reason=reason)
        return True


def _added(before: tuple[str, ...], more: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys([*before, *sorted(more)]))
