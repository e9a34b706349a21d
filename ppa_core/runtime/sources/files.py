"""A directory of CSV, JSON-lines or Parquet files, those that are there and those that still arrive, as a live source.

A file counts once it is there under a name that fits the pattern, does not begin with '.' or '_' and does not end in '.part'
or '.tmp': so write it under another name, or elsewhere on the same disk, and rename it when it is complete. From then on it
must stay as it is until its batches are released; its name is not used for another file.
"""

from __future__ import annotations

import fnmatch
import json
import os
from base64 import b64decode, b64encode
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Self

import pyarrow as pa

from ppa_core.errors import BadInput
from ppa_core.names import check_run
from ppa_core.runtime.kinds import is_whole
from ppa_core.runtime.sources.converting import check_columns
from ppa_core.runtime.sources.formats import PATTERNS, Place, infer_schema, read_piece
from ppa_core.runtime.sources.journal import Journal
from ppa_core.runtime.sources.live import Changed, Refusals, dealt, is_new, missing_seal
from ppa_core.runtime.streams import is_key

STATE = ".ppa"
"""The journal's default place, inside the directory."""

_UNFINISHED = (".part", ".tmp")
_CONSUMED, _SCHEMA = "consumed", "schema"


@dataclass(frozen=True)
class Files:
    """Files as a live source; `open_files` makes it.

    A batch gets the rows that are there when it is sealed, by the files' names and then in order, `max_rows` at most. They are
    dealt over the tasks one by one, or by the hash of the column `key`. Columns that the schema does not name are left out; an
    empty value of CSV is null unless the column is text. What does not fit the schema is refused and counted (`refused`,
    `refused_so_far`), or, if `strict`, stops the seal. The journals of runs are in `state`, by default .ppa in the directory.
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
        sealed = self.journal.batches()
        if is_new(self.directory, batch, sealed):
            self.journal.add(batch, self._next(sealed))
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
        self.journal.set_note(_CONSUMED, {name: size for name, size in known.items() if name in here})
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

    def _consumed(self, batches: list[int]) -> dict[str, int]:
        """The files that released batches and these ones took rows from, with their sizes then."""
        sizes: dict[str, int] = self.journal.note(_CONSUMED) or {}
        for batch in batches:
            sizes |= {slice_["file"]: slice_["size"] for slice_ in self._entry(batch)["slices"]}
        return sizes

    def _next(self, sealed: list[int]) -> dict[str, Any]:
        """What the batch after those sealed gets."""
        start: dict[str, Any] = {"tail": None, "refused_so_far": 0}
        last = self._entry(sealed[-1]) if sealed else start
        slices: list[dict[str, Any]] = []
        room, refusals, tail = self.max_rows, Refusals(), None
        for name, place in self._waiting(self._consumed(sealed), last["tail"]):
            path = Path(self.directory) / name
            try:
                size = path.stat().st_size
                piece = read_piece(self.kind, path, self.schema, place, room)
            except FileNotFoundError:  # taken away before its turn came
                continue
            except OSError as error:
                raise BadInput(str(path), f"cannot be read: {error.strerror}") from error
            if self.strict and piece.refusals.count:
                worst = piece.refusals.first[0]
                raise BadInput(f"{path}: line {worst.line}", f"{worst.reason}; mend it, or leave `strict` out")
            slices.append(
                {
                    "file": name,
                    "size": size,
                    "start": place.start,
                    "line": place.line,
                    "stop": piece.stop,
                    "digest": piece.digest,
                }
            )
            refusals += piece.refusals
            room -= piece.table.num_rows + piece.refusals.count
            if not piece.ended:
                tail = {"file": name, "start": piece.after.start, "line": piece.after.line}
            if tail or room <= 0:
                break
        so_far = last["refused_so_far"] + refusals.count
        return {"slices": slices, "tail": tail, "refused": refusals.document(), "refused_so_far": so_far}

    def _waiting(self, consumed: dict[str, int], tail: dict[str, Any] | None) -> list[tuple[str, Place]]:
        """Where to read on: the file that was read in part, then the new ones. Files that changed since are refused."""
        names = self._names()
        for name in names:
            path = Path(self.directory) / name
            size = path.stat().st_size if name in consumed and path.exists() else None
            if size is not None and size != consumed[name]:
                reason = f"it had {consumed[name]} bytes when it was sealed and has {size} now; files must stay as they are"
                raise Changed(str(path), reason)
        new = [(name, Place()) for name in names if name not in consumed]
        if tail is None:
            return new
        if tail["file"] not in names:
            path = Path(self.directory) / tail["file"]
            raise Changed(str(path), f"it is gone, and was read only up to line {tail['line'] - 1}; put it back")
        return [(tail["file"], Place(tail["start"], tail["line"])), *new]


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
    if schema is None:
        if kind not in PATTERNS:
            raise BadInput(f"source {where!r}", f"{kind!r} is no kind of file; choose among {', '.join(PATTERNS)}")
        if journal.note(_SCHEMA) is None or not _in_use(journal):
            names = complete_files(where, options.get("pattern") or PATTERNS[kind])
            if not names:
                raise BadInput(where, "no file to take the columns from yet; give a schema, or put a first file there")
            found = infer_schema(kind, Path(where) / names[0])
            journal.set_note(_SCHEMA, {"schema": b64encode(found.serialize()).decode()}, replace=not _in_use(journal))
        kept = journal.note(_SCHEMA)
        assert kept is not None
        schema = pa.ipc.read_schema(pa.py_buffer(b64decode(kept["schema"])))
    return Files(where, kind, schema, tasks, state=journal.path, **options)


def _in_use(journal: Journal) -> bool:
    """Whether batches are sealed in it, or in that of a run beneath it."""
    return bool(journal.batches()) or any(path.is_dir() for path in Path(journal.path).glob("*"))


def complete_files(directory: str, pattern: str) -> list[str]:
    """The names of the files in a directory that are complete, in order."""
    try:
        with os.scandir(directory) as found:
            names = [entry.name for entry in found if entry.is_file()]
    except OSError as error:
        raise BadInput(directory, f"cannot be read: {error.strerror}; name a directory of files") from error
    except ValueError as error:
        raise BadInput(repr(directory), f"not the name of a directory: {error}") from error
    unfinished = {name for name in names if name.startswith((".", "_")) or name.endswith(_UNFINISHED)}
    return sorted(name for name in set(names) - unfinished if fnmatch.fnmatchcase(name, pattern))


@lru_cache(maxsize=4)
def _rows(source: Files, entry: bytes) -> pa.Table:
    """All rows of a batch; the tasks in this process share them."""
    tables = []
    for slice_ in json.loads(entry)["slices"]:
        path = Path(source.directory) / slice_["file"]
        try:
            place = Place(slice_["start"], slice_["line"])
            piece = read_piece(source.kind, path, source.schema, place, stop=slice_["stop"])
        except OSError as error:
            reason = f"it was sealed and cannot be read now: {error.strerror}; files stay until their batch is released"
            raise Changed(str(path), reason) from error
        if piece.digest != slice_["digest"]:
            raise Changed(str(path), "it was changed after it was sealed; files must stay as they are")
        tables.append(piece.table)
    return pa.concat_tables(tables) if tables else source.schema.empty_table()
