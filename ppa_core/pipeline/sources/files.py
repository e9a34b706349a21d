"""A directory of CSV, JSON-lines or Parquet files, those that are there and those that still arrive, as a live source.

A file counts once it is there under a name that fits the pattern, does not begin with '.' or '_' and does not end in '.part'
or '.tmp': so write it under another name, or elsewhere on the same disk, and rename it when it is complete. From then on it
must stay as it is until its batches are released; its name is not used for another file.

Anybody may put files there. A process of its own reads a file before anything else does. One that exceeds the limits or ends
that process, and whatever is no file but a link, a pipe or a device, is *passed over*: its name and the reason are in the
seal of the batch that came upon it, and count as a refusal there; it is not read again, and not touched.
"""

from __future__ import annotations

import json
import time
from base64 import b64decode, b64encode
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Self

import pyarrow as pa

from ppa_core.errors import BadInput
from ppa_core.pipeline.kinds import is_whole
from ppa_core.pipeline.sources.converting import check_columns
from ppa_core.pipeline.sources.directory import complete_files, first_schema, identity_of, size_now
from ppa_core.pipeline.sources.formats import PATTERNS, Extent, Place, read_piece
from ppa_core.pipeline.sources.journal import Journal
from ppa_core.pipeline.sources.limits import DEFAULT_LIMITS, Limits, Unfit, open_regular
from ppa_core.pipeline.sources.live import Changed, Refusals, Refused, dealt, is_new, missing_seal
from ppa_core.pipeline.sources.reading import examine
from ppa_core.pipeline.streams import is_key
from ppa_core.safety.names import check_run

STATE = ".ppa"
"""The journal's default place, inside the directory."""

_CONSUMED, _SCHEMA = "consumed", "schema"
_DEATHS = 2
"""A file that was being read when so many drivers died is passed over."""

_PATIENCE = 20.0
"""Seconds after which a batch takes no further file: many that are hard to read must not hold up those that are read by now."""

Consumed = dict[str, int | str]
"""Files that are not to be read, or not to be read on: with their size, or with the reason why they are passed over."""


@dataclass(frozen=True)
class Files:
    """Files as a live source; `open_files` makes it.

    A batch gets the rows that are there when it is sealed, by the files' names and then in order, `max_rows` at most. They are
    dealt over the tasks one by one, or by the hash of the column `key`. Columns that the schema does not name are left out; an
    empty value of CSV is null unless the column is text. What does not fit the schema is refused and counted (`refused`,
    `refused_so_far`), or, if `strict`, stops the seal; so is what exceeds the `limits`. The journals of runs are in `state`, by
    default .ppa in the directory.
    """

    directory: str
    kind: str
    schema: pa.Schema
    tasks: int
    max_rows: int = 100_000
    strict: bool = False
    key: str | None = None
    tuples_per_second: float = 1000.0
    """What the planner should expect of all tasks together."""
    state: str = ""
    pattern: str = ""
    limits: Limits = DEFAULT_LIMITS
    journal: Journal = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        place = f"source {self.directory!r}"
        if self.kind not in PATTERNS:
            raise BadInput(place, f"{self.kind!r} is no kind of file; choose among {', '.join(PATTERNS)}")
        if not (is_whole(self.tasks) and is_whole(self.max_rows)):
            raise BadInput(place, f"{self.tasks!r} tasks, {self.max_rows!r} rows a batch; both are whole numbers")
        if self.tasks < 1 or self.max_rows < 1 or not self.tuples_per_second >= 0:
            given = f"{self.tasks} tasks, {self.max_rows} rows a batch, {self.tuples_per_second} tuples/s"
            raise BadInput(place, f"{given}; there is at least one task and one row, and no negative rate")
        if self.key is not None and (self.key not in self.schema.names or not is_key(self.schema.field(self.key).type)):
            raise BadInput(place, f"key {self.key!r} is no column of whole numbers, texts, bytes, dates, times or booleans")
        if not isinstance(self.limits, Limits):
            raise BadInput(place, f"limits {self.limits!r}; give Limits(line_bytes=…, columns=…)")
        if self.kind == "csv":
            check_columns(place, self.schema)
        object.__setattr__(self, "journal", Journal(self.state or str(Path(self.directory) / STATE)))

    def named(self, run: str) -> Self:
        return replace(self, state=str(Path(self.journal.path) / check_run(run)))

    @property
    def seals(self) -> str:
        return self.journal.path

    def begin(self) -> Callable[[], object]:
        return self.journal.begin(f"seals of run {Path(self.journal.path).name}").remove

    def rate(self, task: int) -> float:
        return self.tuples_per_second / self.tasks

    def seal(self, batch: int) -> bool:
        self.journal.check_owner()
        sealed = self.journal.batches()
        if is_new(self.directory, batch, sealed):
            try:
                self.journal.add(batch, self._next(sealed))
            finally:
                self.journal.unmark()
        return True

    def read(self, task: int, batch: int) -> pa.Table:
        entry = self.journal.entry(batch)
        if entry is None:
            remedy = "a new run has seals of its own"
            raise missing_seal(self.directory, batch, self.journal.batches(), remedy)
        return dealt(_rows(self, entry), task, self.tasks, self.key)

    def release(self, before: int) -> None:
        sealed = self.journal.batches()
        old = [batch for batch in sealed[:-1] if batch < before]  # the last seal says where to go on
        if not old:
            return
        here, known = set(self._names()), self._consumed(old)
        self.journal.set_note(_CONSUMED, {name: what for name, what in known.items() if name in here})
        self.journal.remove(old)

    def refused(self, batch: int) -> Refusals:
        entry = self.journal.entry(batch)
        return Refusals() if entry is None else Refusals.from_document(json.loads(entry)["refused"])

    def refused_so_far(self) -> int:
        """Refused rows of all batches sealed, released ones too."""
        sealed = self.journal.batches()
        return int(self._entry(sealed[-1])["refused_so_far"]) if sealed else 0

    def _names(self) -> list[str]:
        return complete_files(self.directory, self.pattern or PATTERNS[self.kind])

    def _entry(self, batch: int) -> dict[str, Any]:
        entry = self.journal.entry(batch)
        assert entry is not None, "only `release` removes entries, and never the last one"
        found: dict[str, Any] = json.loads(entry)
        return found

    def _consumed(self, batches: list[int]) -> Consumed:
        """The files that released batches and these ones took rows from or passed over."""
        known: Consumed = self.journal.note(_CONSUMED) or {}
        for batch in batches:
            entry = self._entry(batch)
            known |= {slice_["file"]: slice_["size"] for slice_ in entry["slices"]} | entry.get("passed over", {})
        return known

    def _next(self, sealed: list[int]) -> dict[str, Any]:
        """What the batch after those sealed gets."""
        start: dict[str, Any] = {"tail": None, "refused_so_far": 0}
        last = self._entry(sealed[-1]) if sealed else start
        slices: list[dict[str, Any]] = []
        passed_over: dict[str, str] = {}
        room, size, refusals, tail = self.max_rows, self.limits.batch_bytes, Refusals(), None
        died_at, until = self.journal.marked(), time.monotonic() + _PATIENCE
        for name, place in self._waiting(self._consumed(sealed), last["tail"]):
            read_on = place.start > 0
            try:
                slice_, found = self._examined(name, place, room, died_at)
            except FileNotFoundError:  # taken away before its turn came
                if read_on:
                    raise self._gone(name, place) from None
                continue
            except BlockingIOError:  # somebody writes it still
                if not read_on:
                    continue
                passed_over[name], found = "another program keeps it for itself", None
            except Unfit as error:
                passed_over[name], found = error.reason, None
            new = Refusals.of([Refused(name, place.line, passed_over[name])]) if found is None else found.refusals
            if self.strict and new.count:
                worst = new.first[0]
                place_ = f"{Path(self.directory) / name}: line {worst.line}"
                raise BadInput(place_, f"{worst.reason}; mend it, or leave `strict` out")
            refusals += new
            room -= new.count
            if found is not None:
                slices.append(slice_)
                room, size = room - found.rows, size - found.bytes
                tail = None if found.ended else {"file": name, "start": found.after.start, "line": found.after.line}
            if tail or room <= 0 or size <= 0 or time.monotonic() > until:
                break
        so_far = last["refused_so_far"] + refusals.count
        entry = {"slices": slices, "tail": tail, "refused": refusals.document(), "refused_so_far": so_far}
        return entry | {"passed over": passed_over, "limits": self.limits.document()}

    def _examined(self, name: str, place: Place, most: int, died_at: dict[str, Any]) -> tuple[dict[str, Any], Extent]:
        """A piece of a file as its seal has it, and what the seal says of it. Unfit if the file is to be passed over."""
        path = Path(self.directory) / name
        try:
            with open_regular(path) as file:
                identity = identity_of(file)
                reading = {"file": name, "start": place.start, "identity": identity}
                deaths = died_at["deaths"] + 1 if reading.items() <= died_at.items() else 0
                if deaths >= _DEATHS:
                    raise Unfit(f"{deaths} drivers died while it was being read")
                self.journal.mark(reading | {"deaths": deaths})
                found = examine(self.kind, file, name, self.schema, place, self.limits, most)
        except (FileNotFoundError, BlockingIOError):
            raise
        except OSError as error:
            raise BadInput(str(path), f"cannot be read: {error.strerror}") from error
        where = {"file": name, "size": identity[0], "identity": identity, "start": place.start, "line": place.line}
        return where | {"stop": found.stop, "digest": found.digest}, found

    def _waiting(self, consumed: Consumed, tail: dict[str, Any] | None) -> list[tuple[str, Place]]:
        """Where to read on: the file that was read in part, then the new ones. Files that changed since are refused."""
        names = self._names()
        for name in names:
            path = Path(self.directory) / name
            size = size_now(path) if isinstance(consumed.get(name), int) else None
            if size is not None and size != consumed[name]:
                reason = f"it had {consumed[name]} bytes when it was sealed and has {size} now; files must stay as they are"
                raise Changed(str(path), reason)
        new = [(name, Place()) for name in names if name not in consumed]
        if tail is None:
            return new
        place = Place(tail["start"], tail["line"])
        if tail["file"] not in names:
            raise self._gone(tail["file"], place)
        return [(tail["file"], place), *new]

    def _gone(self, name: str, place: Place) -> Changed:
        path = Path(self.directory) / name
        return Changed(str(path), f"it is gone, and was read only up to line {place.line - 1}; put it back")


def open_files(
    directory: str | Path, kind: str, tasks: int, schema: pa.Schema | None = None, state: str | Path = "", **options: Any
) -> Files:
    """The files in a directory as a source; `options` are further fields of `Files`.

    Without a schema it is the one that the first file suggests; the journal keeps it while a run needs it.
    """
    where = str(Path(directory).absolute())
    if Path(where).is_file():
        raise BadInput(f"source {where!r}", "it is a file; name the directory that it is in")
    journal = Journal(str(Path(state).absolute()) if state else str(Path(where) / STATE))
    journal.check_owner()
    if schema is None:
        if kind not in PATTERNS:
            raise BadInput(f"source {where!r}", f"{kind!r} is no kind of file; choose among {', '.join(PATTERNS)}")
        if journal.note(_SCHEMA) is None or not _in_use(journal):
            names = complete_files(where, options.get("pattern") or PATTERNS[kind])
            if not names:
                raise BadInput(where, "no file to take the columns from yet; give a schema, or put a first file there")
            found = first_schema(kind, [Path(where) / name for name in names], options.get("limits", DEFAULT_LIMITS))
            journal.set_note(_SCHEMA, {"schema": b64encode(found.serialize()).decode()}, replace=not _in_use(journal))
        kept = journal.note(_SCHEMA)
        assert kept is not None
        schema = pa.ipc.read_schema(pa.py_buffer(b64decode(kept["schema"])))
    return Files(where, kind, schema, tasks, state=journal.path, **options)


def _in_use(journal: Journal) -> bool:
    """Whether batches are sealed in it, or in that of a run beneath it."""
    return bool(journal.batches()) or any(path.is_dir() for path in Path(journal.path).glob("*"))


@lru_cache(maxsize=4)
def _rows(source: Files, entry: bytes) -> pa.Table:
    """All rows of a batch; the tasks in this process share them."""
    sealed = json.loads(entry)
    limits = Limits.from_document(sealed["limits"]) if "limits" in sealed else source.limits
    tables = [_slice(source, slice_, limits) for slice_ in sealed["slices"]]
    return pa.concat_tables(tables) if tables else source.schema.empty_table()


def _slice(source: Files, sealed: dict[str, Any], limits: Limits) -> pa.Table:
    """The rows of a file that a seal names. What is not the very file that was sealed is examined again before it is read."""
    path = Path(source.directory) / Path(sealed["file"]).name
    place, stop = Place(sealed["start"], sealed["line"]), sealed["stop"]
    changed = Changed(str(path), "it was changed after it was sealed; files must stay as they are")
    try:
        with open_regular(path) as file:
            if identity_of(file) != sealed.get("identity"):
                found = examine(source.kind, file, path.name, source.schema, place, limits, stop=stop)
                if found.digest != sealed["digest"]:
                    raise changed
            piece = read_piece(source.kind, file, path.name, source.schema, place, limits, stop=stop)
    except Unfit:
        raise changed from None
    except OSError as error:
        reason = f"it was sealed and cannot be read now: {error.strerror}; files stay until their batch is released"
        raise Changed(str(path), reason) from error
    if piece.extent.digest != sealed["digest"]:
        raise changed
    return piece.table
