"""A directory of CSV, JSON-lines or Parquet files as a live source: existing files, and new ones as they arrive.

A file is complete if its name matches the pattern, does not begin with '.' or '_' and does not end in '.part' or '.tmp': write
it under another name, or elsewhere on the same disk, and rename it when it is complete. Do not reuse the name of an existing
file. The rows of a batch are copied when it is sealed: later changes of a file do not change the batch.

The files are not trusted, so only a separate process reads them. A file that exceeds the limits, crashes that process or is
changed when only part of it was read, and anything that is not a regular file (a link, a pipe, a device), is *skipped*: its
name and the reason are in the seal of the batch that found it and count as a refused row there. It is neither read again nor
touched.
"""

from __future__ import annotations

import json
import logging
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
from ppa_core.pipeline.sources.copies import new_copy, read_copy, remove_copies
from ppa_core.pipeline.sources.directory import changed_since, complete_files, first_schema
from ppa_core.pipeline.sources.filling import Filling, Waiting
from ppa_core.pipeline.sources.formats import PATTERNS, Place
from ppa_core.pipeline.sources.journal import Journal, is_full, place_for
from ppa_core.pipeline.sources.limits import DEFAULT_LIMITS, Limits
from ppa_core.pipeline.sources.live import RefusedRows, is_new, missing_seal, partitioned
from ppa_core.pipeline.streams import is_key
from ppa_core.safety.names import check_run

_log = logging.getLogger(__name__)

_CONSUMED, _SCHEMA = "consumed", "schema"
_LOOKED_AT = 10_000
"""How many of the files that were read are checked for growth when a batch is sealed: round-robin if there are more."""

Consumed = dict[str, int | str]
"""Files that were read, with their size, or skipped, with the reason."""


@dataclass(frozen=True)
class Files:
    """Files as a live source; created by `open_files`.

    A batch gets the rows that exist when it is sealed, ordered by file name and position, `max_rows` at most. They are assigned
    to tasks round-robin, or by the hash of the column `key`. Columns that are not in the schema are ignored; an empty CSV value
    is null unless the column is a string. Rows that do not match the schema or exceed the `limits` are refused and counted
    (`refused`, `refused_so_far`) or, if `strict`, are an error. The journals of runs are in `state`, by default .ppa in the
    directory.
    """

    directory: str
    kind: str
    schema: pa.Schema
    tasks: int
    max_rows: int = 100_000
    strict: bool = False
    key: str | None = None
    tuples_per_second: float = 1000.0
    """The expected rate of all tasks together, for the planner."""
    state: str = ""
    pattern: str = ""
    limits: Limits = DEFAULT_LIMITS
    journal: Journal = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        place = f"source {self.directory!r}"
        if self.kind not in PATTERNS:
            raise BadInput(place, f"unknown file format {self.kind!r}; choose one of {', '.join(PATTERNS)}")
        if not (is_whole(self.tasks) and is_whole(self.max_rows)):
            raise BadInput(place, f"{self.tasks!r} tasks, {self.max_rows!r} rows per batch; both must be whole numbers")
        if self.tasks < 1 or self.max_rows < 1 or not self.tuples_per_second >= 0:
            given = f"{self.tasks} tasks, {self.max_rows} rows per batch, {self.tuples_per_second} tuples/s"
            raise BadInput(place, f"{given}; tasks and rows must be at least 1, and the rate must not be negative")
        if self.key is not None and (self.key not in self.schema.names or not is_key(self.schema.field(self.key).type)):
            raise BadInput(place, f"key {self.key!r} is not a column of integers, strings, bytes, dates, times or booleans")
        if not isinstance(self.limits, Limits):
            raise BadInput(place, f"invalid limits {self.limits!r}; use Limits(line_bytes=…, columns=…)")
        if self.kind == "csv":
            check_columns(place, self.schema)
        object.__setattr__(self, "journal", Journal(self.state or str(place_for(Path(self.directory)))))

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
        try:
            if is_new(self.directory, batch, sealed):
                self._seal_next(batch, sealed)
        except BadInput as error:
            if is_full(error):
                _log.warning("batch %d of %r cannot be sealed yet: %s", batch, self.directory, error)
                return False
            raise
        return True

    def _seal_next(self, batch: int, sealed: list[int]) -> None:
        try:
            entry = self._next(sealed)
            self.journal.add(batch, entry)
            if entry["copy"] and self._entry(batch)["copy"] != entry["copy"]:  # another process was first
                (Path(self.journal.path) / entry["copy"]["name"]).unlink(missing_ok=True)
        finally:
            self.journal.unmark()

    def read(self, task: int, batch: int) -> pa.Table:
        entry = self.journal.entry(batch)
        if entry is None:
            remedy = "start a new run"
            raise missing_seal(self.directory, batch, self.journal.batches(), remedy)
        return partitioned(_rows(self, entry), task, self.tasks, self.key)

    def release(self, before: int) -> None:
        sealed = self.journal.batches()
        old = [batch for batch in sealed[:-1] if batch < before]  # the last seal has the position to continue from
        if not old:
            return
        here, known = set(self._names()), self._consumed(old)
        try:
            self.journal.set_note(_CONSUMED, {name: what for name, what in known.items() if name in here})
        except BadInput as error:
            if is_full(error):
                _log.warning("batches of %r cannot be released yet: %s", self.directory, error)
                return
            raise
        self.journal.remove(old)
        remove_copies(Path(self.journal.path), old[-1] + 1)

    def refused(self, batch: int) -> RefusedRows:
        entry = self.journal.entry(batch)
        return RefusedRows() if entry is None else RefusedRows.from_document(json.loads(entry)["refused"])

    def refused_so_far(self) -> int:
        """The number of refused rows in all sealed batches, including released ones."""
        sealed = self.journal.batches()
        return int(self._entry(sealed[-1])["refused_so_far"]) if sealed else 0

    def _names(self) -> list[str]:
        return complete_files(self.directory, self.pattern or PATTERNS[self.kind])

    def _entry(self, batch: int) -> dict[str, Any]:
        entry = self.journal.entry(batch)
        assert entry is not None, "only `release` removes entries, and never the last one"
        found: dict[str, Any] = json.loads(entry)
        if "copy" not in found:
            raise BadInput(self.journal.path, "sealed by an earlier version, which kept no copies; start a new run")
        return found

    def _consumed(self, batches: list[int]) -> Consumed:
        """The files that were read or skipped by released batches and by these."""
        known: Consumed = self.journal.note(_CONSUMED) or {}
        for batch in batches:
            entry = self._entry(batch)
            known |= entry["files"] | entry["passed over"]
        return known

    def _next(self, sealed: list[int]) -> dict[str, Any]:
        """The seal of the next batch."""
        batch = sealed[-1] + 1 if sealed else 0
        start: dict[str, Any] = {"tail": None, "refused_so_far": 0}
        last = self._entry(sealed[-1]) if sealed else start
        directory, folder, names = Path(self.directory), Path(self.journal.path), self._names()
        filling = Filling(directory, self.kind, self.schema, self.limits, self.strict, self.journal, self.max_rows)
        consumed, tail, document = self._consumed(sealed), last["tail"], None
        waiting = [Waiting(name) for name in names if name not in consumed]
        if tail is not None:
            waiting.insert(0, Waiting(tail["file"], Place(tail["start"], tail["line"]), tail["identity"]))
            consumed.pop(tail["file"], None)
        if waiting:
            with new_copy(folder, batch) as copy:
                filling.take(waiting, copy)
                document = copy.document()
        for name, reason in changed_since(directory, names, consumed, batch * _LOOKED_AT, _LOOKED_AT):
            filling.skip(name, 1, reason)
        return {
            "copy": document,
            "files": filling.files,
            "passed over": filling.skipped,
            "tail": filling.tail,
            "refused": filling.refusals.document(),
            "refused_so_far": last["refused_so_far"] + filling.refusals.count,
        }


def open_files(
    directory: str | Path, kind: str, tasks: int, schema: pa.Schema | None = None, state: str | Path = "", **options: Any
) -> Files:
    """The files in a directory as a source; `options` are further fields of `Files`.

    Without a schema, it is inferred from the first file and kept in the journal while a run needs it.
    """
    where = str(Path(directory).absolute())
    if Path(where).is_file():
        raise BadInput(f"source {where!r}", "it is a file; give the directory that contains it")
    journal = Journal(str(Path(state).absolute() if state else place_for(Path(where))))
    journal.check_owner()
    if schema is None:
        if kind not in PATTERNS:
            raise BadInput(f"source {where!r}", f"unknown file format {kind!r}; choose one of {', '.join(PATTERNS)}")
        if journal.note(_SCHEMA) is None or not _in_use(journal):
            names = complete_files(where, options.get("pattern") or PATTERNS[kind])
            if not names:
                raise BadInput(where, "no file to infer the columns from; give a schema, or add a first file")
            found = first_schema(kind, [Path(where) / name for name in names], options.get("limits", DEFAULT_LIMITS))
            journal.set_note(_SCHEMA, {"schema": b64encode(found.serialize()).decode()}, replace=not _in_use(journal))
        kept = journal.note(_SCHEMA)
        assert kept is not None
        schema = pa.ipc.read_schema(pa.py_buffer(b64decode(kept["schema"])))
    return Files(where, kind, schema, tasks, state=journal.path, **options)


def _in_use(journal: Journal) -> bool:
    """Whether batches are sealed in it, or in the journal of a run below it."""
    return bool(journal.batches()) or any(path.is_dir() for path in Path(journal.path).glob("*"))


@lru_cache(maxsize=4)
def _rows(source: Files, entry: bytes) -> pa.Table:
    """All rows of a batch; the tasks in this process share them."""
    copy = json.loads(entry)["copy"]
    return read_copy(Path(source.journal.path), copy, source.schema) if copy else source.schema.empty_table()
