"""Live sources: their content arrives while the pipeline runs, so a batch is sealed before it is read.

PpaError
├── NotSealed      a batch is read that was not sealed, or was released
└── BadInput
    └── Changed    what belongs to a sealed batch is no longer what it was
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any, Protocol, Self, runtime_checkable

import numpy as np
import pyarrow as pa

from ppa_core.errors import BadInput, PpaError
from ppa_core.pipeline.definition import Pipeline, Source
from ppa_core.pipeline.streams import hash_column
from ppa_core.safety.names import check_run
from ppa_core.safety.printable import printable

_log = logging.getLogger(__name__)

KEPT = 100
"""So many refusals of a batch are kept with their reasons; all are counted."""

_LONGEST = 300
"""Characters of a name or a reason in a refusal."""


@runtime_checkable
class LiveSource(Source, Protocol):
    """A source whose batches are fixed one after the other, durably, in the source's own medium.

    After `seal(batch)`, `read(task, batch)` is a function until `release`, in every process and after every crash. Seals belong
    to a run: another run begins with what is there then.
    """

    def named(self, run: str) -> Self:
        """The same source with the seals of that run."""

    @property
    def seals(self) -> str:
        """Where the seals are: sources that read the same share them."""

    def begin(self) -> Callable[[], object]:
        """Begin the seals of a run that is new: BadInput if there are seals of that name. What is given back lets go of what
        was made here, and of nothing else; it is called when the run is over and nobody can go on with it."""

    def seal(self, batch: int) -> bool:
        """Fix what belongs to a batch, from what is there by now; once, however often and by whomever it is called.

        Called on the driver before the batch is run, for one batch after the other. False if the medium does not answer at the
        moment: nothing is sealed, ask again.
        """

    def release(self, before: int) -> None:
        """Batches before that one will never be read again: what was kept for them may go."""

    def refused(self, batch: int) -> RefusedRows:
        """What came into a sealed batch and could not be read."""


def of_run(pipeline: Pipeline, run: str) -> Pipeline:
    """The pipeline with the seals of that run in its live sources."""
    check_run(run)
    made = (
        replace(each, source=each.source.named(run)) if isinstance(each.source, LiveSource) else each
        for each in pipeline.operators
    )
    return replace(pipeline, operators=tuple(made))


@contextmanager
def passing_run(pipeline: Pipeline, run: str) -> Iterator[None]:
    """A run that nobody can go on with after the block: its seals are begun and let go of; what cannot be reached stays."""
    with ExitStack() as stack:
        sources = [each.source for each in of_run(pipeline, run).operators if isinstance(each.source, LiveSource)]
        for source in {source.seals: source for source in sources}.values():
            stack.callback(_let_go, source.begin())
        yield


def _let_go(forget: Callable[[], object]) -> None:
    try:
        forget()
    except PpaError:
        _log.warning("a source could not forget a run that is over", exc_info=True)


@dataclass(frozen=True)
class RefusedRow:
    """Input that could not be read: where it stands (a file or stream, and a line or an id), and why; all of it printable."""

    file: str
    line: int | str
    reason: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "file", printable(self.file, _LONGEST))
        object.__setattr__(self, "reason", printable(self.reason, _LONGEST))


@dataclass(frozen=True)
class RefusedRows:
    """How much was refused, and the first of it with reasons."""

    count: int = 0
    first: tuple[RefusedRow, ...] = ()

    @classmethod
    def of(cls, refused: Iterable[RefusedRow]) -> Self:
        every = tuple(refused)
        return cls(len(every), every[:KEPT])

    def __add__(self, other: RefusedRows) -> RefusedRows:
        return RefusedRows(self.count + other.count, (self.first + other.first)[:KEPT])

    def document(self) -> dict[str, Any]:
        """As JSON has it; `from_document` is the reverse."""
        return {"count": self.count, "first": [[entry.file, entry.line, entry.reason] for entry in self.first]}

    @classmethod
    def from_document(cls, document: dict[str, Any]) -> Self:
        return cls(document["count"], tuple(RefusedRow(*entry) for entry in document["first"]))


class NotSealed(PpaError):
    """A batch that no `seal` has fixed, or whose seal is released."""

    def __init__(self, place: str, batch: int, reason: str) -> None:
        super().__init__(f"{place}: batch {batch}: {reason}")
        self.place, self.batch, self.reason = place, batch, reason

    def __reduce__(self) -> tuple[type[NotSealed], tuple[str, int, str]]:
        return NotSealed, (self.place, self.batch, self.reason)


class Changed(BadInput):
    """Input that was changed or taken away after it was sealed."""

    def __reduce__(self) -> tuple[type[Changed], tuple[str, str]]:
        return Changed, (self.place, self.reason)


def is_new(place: str, batch: int, sealed: Iterable[int]) -> bool:
    """Whether a batch is the next to seal, given those whose seals are kept; False if it is sealed. Others are refused."""
    kept = sorted(sealed)
    if batch < 0 or batch > (kept[-1] + 1 if kept else 0):
        last = f"the last one sealed is {kept[-1]}" if kept else "none is sealed; if some were, their seals are gone"
        raise NotSealed(place, batch, f"cannot be sealed: {last}")
    return not kept or batch > kept[-1]


def missing_seal(place: str, batch: int, sealed: Iterable[int], remedy: str) -> NotSealed:
    """The error for a batch that has no seal."""
    if any(batch < other for other in sealed):
        return NotSealed(place, batch, f"it is released, and read no more; {remedy}")
    return NotSealed(place, batch, "it is not sealed")


def partitioned(table: pa.Table, task: int, tasks: int, key: str | None) -> pa.Table:
    """The rows of one task: every `tasks`-th, or those whose key's hash says so. Tables in one batch are partitioned whole."""
    if key is None:
        return table.take(pa.array(np.arange(task, table.num_rows, tasks)))
    return table.filter(pa.array(hash_column(table[key]) % np.uint64(tasks) == task))
