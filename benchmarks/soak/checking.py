"""What a soak's outputs are checked for: batches that are lost, duplicated, different, or never corrected."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields

from ppa_core.engine.run_events import OutputPublished, RunEvent, Starting

ReadDigest = Callable[[int, int], str | None]
"""The digest of what the sink has of a batch and revision; None if it has nothing."""


@dataclass(frozen=True)
class Verdict:
    """Batches that are not as they should be; `repeated` are harmless."""

    lost: tuple[int, ...]
    """No output, or none in the sink."""
    duplicated: tuple[int, ...]
    """Two first outputs or two corrections: by one driver, or with different content."""
    different: tuple[int, ...]
    """The accurate output, as reported or in the sink, is not that of a run without failures."""
    uncorrected: tuple[int, ...]
    """A tentative output without a correction."""
    repeated: tuple[int, ...]
    """The same output was reported again by the next driver: the one before was killed before its ledger said so."""

    @property
    def good(self) -> bool:
        return not any(getattr(self, field.name) for field in fields(self) if field.name != "repeated")


def check(events: Iterable[RunEvent], expected: Sequence[str], stored: ReadDigest) -> Verdict:
    """Compare the outputs of a run with the digests of the accurate ones, by batch."""
    found: dict[tuple[int, int], list[tuple[int, OutputPublished]]] = {}
    driver = 0
    for event in events:
        match event:
            case Starting():
                driver += 1
            case OutputPublished(batch=batch, revision=revision):
                found.setdefault((batch, revision), []).append((driver, event))
    batches = range(len(expected))
    accurate = {batch: output for _, output, batch in _last(found) if output.status != "tentative"}
    first = {batch for batch, _ in found}
    return Verdict(
        lost=tuple(b for b in batches if b not in first or (b in accurate and stored(b, accurate[b].revision) is None)),
        duplicated=_batches(key for key, outputs in found.items() if len(outputs) > 1 and not _is_repeated(outputs)),
        different=tuple(
            b
            for b in batches
            if b in accurate and {accurate[b].digest, stored(b, accurate[b].revision) or expected[b]} != {expected[b]}
        ),
        uncorrected=tuple(b for b in batches if b in first and b not in accurate),
        repeated=_batches(key for key, outputs in found.items() if len(outputs) > 1 and _is_repeated(outputs)),
    )


def _last(found: dict[tuple[int, int], list[tuple[int, OutputPublished]]]) -> Iterable[tuple[int, OutputPublished, int]]:
    """The last output of each batch and revision; corrections after first outputs."""
    return ((revision, outputs[-1][1], batch) for (batch, revision), outputs in sorted(found.items()))


def _is_repeated(outputs: Sequence[tuple[int, OutputPublished]]) -> bool:
    drivers = {driver for driver, _ in outputs}
    contents = {(output.status, output.digest) for _, output in outputs}
    return len(drivers) == len(outputs) and len(contents) == 1


def _batches(keys: Iterable[tuple[int, int]]) -> tuple[int, ...]:
    return tuple(sorted({batch for batch, _ in keys}))
