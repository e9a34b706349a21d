"""Live sources: their content arrives while the pipeline runs, so a batch is sealed before it is read.

PpaError
├── NotSealed      a batch is read that is not sealed, or was released
└── BadInput
    └── Changed    the content of a sealed batch was changed or removed
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
"""Number of refused rows of a batch that are kept with their reasons; all are counted."""

_LONGEST = 300
"""Maximum length of the name and the reason of a refused row."""


@runtime_checkable
class LiveSource(Source, Protocol):
    """A source whose batches are sealed one after the other, durably, beside the source.

    Between `seal(batch)` and `release`, `read(task, batch)` always returns the same rows, in every process and after every
    crash. Seals belong to a run: another run starts with the content that is there then.
    """

    def named(self, run: str) -> Self:
        """The same source, with the seals of this run."""

    @property
    def seals(self) -> str:
        """Where the seals are stored: sources that read the same input share them."""

    def begin(self) -> Callable[[], object]:
        """Create the seals of a new run. Raises BadInput if there are seals of that name. The result is a function that removes
        what was created here, and nothing else; it is called when the run has ended and cannot be resumed."""

    def seal(self, batch: int) -> bool:
        """Fix the content of a batch, from the input available now. Idempotent, also across processes.

        Called on the driver before the batch runs, for one batch after the other. Returns False if the source does not respond:
        nothing is sealed, try again.
        """

    def release(self, before: int) -> None:
        """Delete what is stored for batches before this one: they will never be read again."""

    def refused(self, batch: int) -> RefusedRows:
        """The refused rows of a sealed batch."""


def of_run(pipeline: Pipeline, run: str) -> Pipeline:
    """The pipeline, whose live sources use the seals of this run."""
    check_run(run)
    made = (
        replace(each, source=each.source.named(run)) if isinstance(each.source, LiveSource) else each
        for each in pipeline.operators
    )
    return replace(pipeline, operators=tuple(made))


@contextmanager
def passing_run(pipeline: Pipeline, run: str) -> Iterator[None]:
    """The seals of a run that cannot be resumed: created now, and deleted at the end of the block if the source responds."""
    with ExitStack() as stack:
        sources = [each.source for each in of_run(pipeline, run).operators if isinstance(each.source, LiveSource)]
        for source in {source.seals: source for source in sources}.values():
            stack.callback(_delete, source.begin())
        yield


def _delete(delete_seals: Callable[[], object]) -> None:
    try:
        delete_seals()
    except PpaError:
        _log.warning("the seals of an ended run could not be deleted", exc_info=True)


@dataclass(frozen=True)
class RefusedRow:
    """A refused row: its place (a file or stream, and a line or an id) and the reason, both printable."""

    file: str
    line: int | str
    reason: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "file", printable(self.file, _LONGEST))
        object.__setattr__(self, "reason", printable(self.reason, _LONGEST))


@dataclass(frozen=True)
class RefusedRows:
    """The number of refused rows, and the first ones with reasons."""

    count: int = 0
    first: tuple[RefusedRow, ...] = ()

    @classmethod
    def of(cls, refused: Iterable[RefusedRow]) -> Self:
        every = tuple(refused)
        return cls(len(every), every[:KEPT])

    def __add__(self, other: RefusedRows) -> RefusedRows:
        return RefusedRows(self.count + other.count, (self.first + other.first)[:KEPT])

    def document(self) -> dict[str, Any]:
        """As a JSON document; `from_document` is the reverse."""
        return {"count": self.count, "first": [[entry.file, entry.line, entry.reason] for entry in self.first]}

    @classmethod
    def from_document(cls, document: dict[str, Any]) -> Self:
        return cls(document["count"], tuple(RefusedRow(*entry) for entry in document["first"]))


class NotSealed(PpaError):
    """A batch that is not sealed, or was released."""

    def __init__(self, place: str, batch: int, reason: str) -> None:
        super().__init__(f"{place}: batch {batch}: {reason}")
        self.place, self.batch, self.reason = place, batch, reason

    def __reduce__(self) -> tuple[type[NotSealed], tuple[str, int, str]]:
        return NotSealed, (self.place, self.batch, self.reason)


class Changed(BadInput):
    """Input that was changed or removed after it was sealed."""

    def __reduce__(self) -> tuple[type[Changed], tuple[str, str]]:
        return Changed, (self.place, self.reason)


def is_new(place: str, batch: int, sealed: Iterable[int]) -> bool:
    """Whether a batch is the next one to seal; False if it is already sealed. Raises NotSealed for any other batch."""
    kept = sorted(sealed)
    if batch < 0 or batch > (kept[-1] + 1 if kept else 0):
        last = f"the last sealed batch is {kept[-1]}" if kept else "no batch is sealed, or the seals were lost"
        raise NotSealed(place, batch, f"cannot be sealed: {last}")
    return not kept or batch > kept[-1]


def missing_seal(place: str, batch: int, sealed: Iterable[int], remedy: str) -> NotSealed:
    """The error for a batch that has no seal."""
    if any(batch < other for other in sealed):
        return NotSealed(place, batch, f"it was already released; {remedy}")
    return NotSealed(place, batch, "it is not sealed")


def partitioned(table: pa.Table, task: int, tasks: int, key: str | None) -> pa.Table:
    """The rows of one task: every `tasks`-th row, or by the hash of the key."""
    if key is None:
        return table.take(pa.array(np.arange(task, table.num_rows, tasks)))
    return table.filter(pa.array(hash_column(table[key]) % np.uint64(tasks) == task))
