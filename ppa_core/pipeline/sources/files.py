"""A directory of CSV, JSON-lines or Parquet files, those that are there and those that still arrive, as a live source.

A file counts once it is there under a name that fits the pattern, does not begin with '.' or '_' and does not end in '.part'
or '.tmp': so write it under another name, or elsewhere on the same disk, and rename it when it is complete. Its name is not
used for another file while it is there. The rows of a batch are copied into the journal when it is sealed: nothing that becomes
of a file afterwards changes the batch.

Anybody may put files there. A process of its own reads them, and nothing else does. A file that exceeds the limits or ends
that process, that is changed when only some of it was read, and whatever is no file but a link, a pipe or a device, is
*passed over*: its name and the reason are in the seal of the batch that came upon it, and count as a refusal there; it is not
read again, and not touched.
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
"""So many of the files that were read are looked at when a batch is sealed, whether they grew: in turn, if there are more."""

Consumed = dict[str, int | str]
"""Files that are not to be read, or not to be read on: with their size, or with the reason why they are passed over."""


@dataclass(frozen=True)
class Files:
    """Files as a live source; `open_files` makes it.

    A batch gets the rows that are there when it is sealed, by the files' names and then in order, `max_rows` at most. They go
    to the tasks in turn, or by the hash of the column `key`. Columns that the schema does not name are left out; an
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
                _log.warning("batch %d of %r waits: %s", batch, self.directory, error)
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
            remedy = "a new run has seals of its own"
            raise missing_seal(self.directory, batch, self.journal.batches(), remedy)
        return partitioned(_rows(self, entry), task, self.tasks, self.key)

    def release(self, before: int) -> None:
        sealed = self.journal.batches()
        old = [batch for batch in sealed[:-1] if batch < before]  # the last seal says where to go on
        if not old:
            return
        here, known = set(self._names()), self._consumed(old)
        try:
            self.journal.set_note(_CONSUMED, {name: what for name, what in known.items() if name in here})
        except BadInput as error:
            if is_full(error):
                _log.warning("batches of %r are released later: %s", self.directory, error)
                return
            raise
        self.journal.remove(old)
        remove_copies(Path(self.journal.path), old[-1] + 1)

    def refused(self, batch: int) -> RefusedRows:
        entry = self.journal.entry(batch)
        return RefusedRows() if entry is None else RefusedRows.from_document(json.loads(entry)["refused"])

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
        if "copy" not in found:
            raise BadInput(self.journal.path, "sealed by an earlier version, which kept no copies; begin a new run")
        return found

    def _consumed(self, batches: list[int]) -> Consumed:
        """The files that released batches and these ones took rows from or passed over."""
        known: Consumed = self.journal.note(_CONSUMED) or {}
        for batch in batches:
            entry = self._entry(batch)
            known |= entry["files"] | entry["passed over"]
        return known

    def _next(self, sealed: list[int]) -> dict[str, Any]:
        """What the batch after those sealed gets."""
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
            filling.pass_over(name, 1, reason)
        return {
            "copy": document,
            "files": filling.files,
            "passed over": filling.passed_over,
            "tail": filling.tail,
            "refused": filling.refusals.document(),
            "refused_so_far": last["refused_so_far"] + filling.refusals.count,
        }


def open_files(
    directory: str | Path, kind: str, tasks: int, schema: pa.Schema | None = None, state: str | Path = "", **options: Any
) -> Files:
    """The files in a directory as a source; `options` are further fields of `Files`.

    Without a schema it is the one that the first file suggests; the journal keeps it while a run needs it.
    """
    where = str(Path(directory).absolute())
    if Path(where).is_file():
        raise BadInput(f"source {where!r}", "it is a file; name the directory that it is in")
    journal = Journal(str(Path(state).absolute() if state else place_for(Path(where))))
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
    copy = json.loads(entry)["copy"]
    return read_copy(Path(source.journal.path), copy, source.schema) if copy else source.schema.empty_table()
