"""Fills a batch, while it is being sealed, with rows of the waiting files until it is full or the time limit is reached."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from ppa_core.errors import BadInput
from ppa_core.pipeline.sources.copies import InputCopy
from ppa_core.pipeline.sources.directory import identity_of
from ppa_core.pipeline.sources.formats import Extent, Place
from ppa_core.pipeline.sources.journal import Journal
from ppa_core.pipeline.sources.limits import Limits, Unfit, check_size, open_regular
from ppa_core.pipeline.sources.live import RefusedRow, RefusedRows
from ppa_core.pipeline.sources.reader import MOST_FILES
from ppa_core.pipeline.sources.reading import ReadRequest, read_files, start

PATIENCE = 2.0
"""Seconds after which a batch opens no further file: the remaining files wait for the next batch."""

FILES = 10_000
"""Maximum number of files in a batch, however small they are."""

_SMALL = 1 << 16
"""Maximum size of a file that is read together with others."""

_DEATHS = 2
"""A file that was being read when this many drivers died is skipped."""


_BEGINNING = Place()


@dataclass(frozen=True)
class Waiting:
    """A file to read from a place on; `identity` is that of the file when a part of it was read, if any."""

    name: str
    place: Place = _BEGINNING
    identity: list[int] | None = None


@dataclass
class Filling:
    """A batch that is being sealed."""

    directory: Path
    kind: str
    schema: pa.Schema
    limits: Limits
    strict: bool
    journal: Journal
    room: int
    files: dict[str, int] = field(default_factory=dict)
    """Files that rows were read from, with their sizes."""
    skipped: dict[str, str] = field(default_factory=dict)
    refusals: RefusedRows = field(default_factory=RefusedRows)
    tail: dict[str, Any] | None = None
    """Where the next batch continues."""

    def skip(self, name: str, line: int, reason: str) -> None:
        self.skipped[name] = reason
        self._refuse(name, RefusedRows.of([RefusedRow(name, line, reason)]))

    def take(self, waiting: list[Waiting], copy: InputCopy) -> None:
        """Read rows of the files in order, until the batch is full or the time limit is reached."""
        start()
        died_at, until = self.journal.marked(), time.monotonic() + PATIENCE
        together = 1 if died_at else MOST_FILES  # one at a time, to find out which file it was
        size, tried = self.limits.batch_bytes, 0
        queue = iter(waiting)
        again: list[tuple[Waiting, ReadRequest]] = []
        with ExitStack() as stack:
            while self.room > 0 and size > 0 and not self.tail and (not tried or time.monotonic() < until):
                group = again[:together]
                again = again[together:]
                if not group:
                    stack.close()
                    group, again = self._group(queue, stack, together, died_at, until), []
                if not group:
                    break
                self._mark(group, died_at)
                seconds = max(0.0, until - time.monotonic())
                found = read_files(self.kind, [asked for _, asked in group], self.schema, self.limits, self.room, copy, seconds)
                if not found:
                    together = 1
                for (each, asked), outcome in zip(group, found, strict=False):
                    size -= outcome.bytes if isinstance(outcome, Extent) else 0
                    self._took(each, asked, outcome)
                tried += len(found)
                again = group[len(found) :] + again

    def _group(
        self, queue: Iterator[Waiting], stack: ExitStack, together: int, died_at: dict[str, Any], until: float
    ) -> list[tuple[Waiting, ReadRequest]]:
        """Open the next file, and those after it if all are small."""
        group: list[tuple[Waiting, ReadRequest]] = []
        most = FILES - len(self.files) - len(self.skipped)
        for each in queue if most > 0 else ():
            asked = self._opened(each, stack, died_at)
            if asked is not None:
                group.append((each, asked))
                if len(group) >= min(together, most) or identity_of(asked.file)[0] > _SMALL:
                    break
            elif self.room <= 0 or time.monotonic() > until:
                break
        return group

    def _opened(self, each: Waiting, stack: ExitStack, died_at: dict[str, Any]) -> ReadRequest | None:
        """Open a file; None if it is skipped, or has to wait."""
        read_on = each.identity is not None
        try:
            file = stack.enter_context(open_regular(self.directory / each.name))
            check_size(file, self.limits)
            identity = identity_of(file)
            if read_on and identity != each.identity:
                raise Unfit(f"it was changed after it was read up to line {each.place.line - 1}; the rest is not read")
            if self._reading(each, identity).items() <= died_at.items() and died_at["deaths"] + 1 >= _DEATHS:
                raise Unfit(f"{died_at['deaths'] + 1} drivers died while it was being read")
        except FileNotFoundError:  # removed before it was read
            if read_on:
                self.skip(each.name, each.place.line, f"it was removed after it was read up to line {each.place.line - 1}")
        except BlockingIOError:  # another program has a lease on it
            if read_on:
                self.skip(each.name, each.place.line, "another program holds a lock on it")
        except Unfit as error:
            self.skip(each.name, each.place.line, error.reason)
        except OSError as error:
            raise BadInput(str(self.directory / each.name), f"cannot be read: {error.strerror}") from error
        else:
            return ReadRequest(file, each.name, each.place)
        return None

    def _mark(self, group: list[tuple[Waiting, ReadRequest]], died_at: dict[str, Any]) -> None:
        """Record which files are being read, in case this process dies while reading them."""
        each, asked = group[0]
        reading = self._reading(each, identity_of(asked.file)) | {"files": len(group)}
        deaths = died_at["deaths"] + 1 if reading.items() <= died_at.items() else 0
        self.journal.mark(reading | {"deaths": deaths})

    def _reading(self, each: Waiting, identity: list[int]) -> dict[str, Any]:
        return {"file": each.name, "start": each.place.start, "identity": identity, "files": 1}

    def _took(self, each: Waiting, asked: ReadRequest, outcome: Extent | Unfit | OSError) -> None:
        if isinstance(outcome, Unfit):
            self.skip(each.name, each.place.line, outcome.reason)
        elif isinstance(outcome, OSError):
            raise BadInput(str(self.directory / each.name), f"cannot be read: {outcome.strerror}") from outcome
        else:
            identity = each.identity or identity_of(asked.file)
            self.files[each.name] = identity[0]
            self.room -= outcome.rows
            if not outcome.ended:
                after = outcome.after
                self.tail = {"file": each.name, "start": after.start, "line": after.line, "identity": identity}
            self._refuse(each.name, outcome.refusals)

    def _refuse(self, name: str, new: RefusedRows) -> None:
        if self.strict and new.count:
            worst = new.first[0]
            place = f"{self.directory / name}: line {worst.line}"
            raise BadInput(place, f"{worst.reason}; fix it, or do not use `strict`")
        self.refusals += new
        self.room -= new.count
