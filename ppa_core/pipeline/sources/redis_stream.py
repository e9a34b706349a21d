"""Redis streams as a live source: the user's own program calls `XADD key * column value …`, one entry per tuple.

The seals are in a hash on the same server. Sealed entries must not be trimmed before their batch is released: use a large
enough MAXLEN.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any, Self

import pyarrow as pa

from ppa_core.errors import BadInput
from ppa_core.pipeline.sources.converting import Bad, check_columns, convert
from ppa_core.pipeline.sources.limits import DEFAULT_LIMITS, Limits, size_of
from ppa_core.pipeline.sources.live import KEPT, Changed, RefusedRow, RefusedRows, is_new, missing_seal, partitioned
from ppa_core.pipeline.sources.metered import PAGE_BYTES, TooMuch
from ppa_core.pipeline.sources.server import NotReached, RedisServer
from ppa_core.pipeline.streams import is_key
from ppa_core.safety.names import check_run
from ppa_core.settings import current

_PAGE = 10_000
"""Maximum number of entries fetched at a time; fewer if they are large."""

_OVERHEAD = 128
"""Approximate memory overhead of a field."""

Entry = tuple[bytes, dict[bytes, bytes] | None]
"""An id and its fields; the fields are None if the entry is too large to be fetched."""


@dataclass(frozen=True)
class RedisStream:
    """A stream as a live source: entries with the schema's columns as fields, their values as text.

    With `per_task` each task has its own stream, `key:0`, `key:1`, …; otherwise the entries of the stream `key` are assigned to
    tasks round-robin, or by the hash of `partition_by`. An entry with a missing field, a value of another type, or above the
    `limits` is refused and counted. A batch gets at most `max_entries` of each stream. `run` is the name of the seals; a
    running pipeline sets its own.
    """

    server: RedisServer
    key: str
    schema: pa.Schema
    tasks: int
    per_task: bool = False
    partition_by: str | None = None
    max_entries: int = 100_000
    tuples_per_second: float = 1000.0
    """The expected rate of all tasks together, for the planner."""
    run: str = "run"
    limits: Limits = DEFAULT_LIMITS

    def __post_init__(self) -> None:
        place = f"source {self.key!r}"
        if not isinstance(self.server, RedisServer):
            raise BadInput(place, "its server is no Server(url)")
        object.__setattr__(self, "server", self.server.or_password(current().source_password))
        if self.tasks < 1 or self.max_entries < 1 or not self.tuples_per_second >= 0 or not self.key:
            given = f"{self.tasks} tasks, {self.max_entries} entries per batch, {self.tuples_per_second} tuples/s"
            raise BadInput(
                place, f"{given}; a key, at least one task and one entry are required, and the rate must not be negative"
            )
        if self.partition_by is not None and (self.per_task or not self._can_partition()):
            raise BadInput(
                place, f"cannot be partitioned by {self.partition_by!r}: this requires one stream and a key column of it"
            )
        check_columns(place, self.schema)

    @property
    def streams(self) -> tuple[str, ...]:
        return tuple(f"{self.key}:{task}" for task in range(self.tasks)) if self.per_task else (self.key,)

    @property
    def seals(self) -> str:
        return f"{self.server.address} {self._marks}"

    @property
    def place(self) -> str:
        return f"{self.server.address}#{self.key}"

    def named(self, run: str) -> Self:
        return replace(self, run=check_run(run))

    def begin(self) -> Callable[[], object]:
        token = secrets.token_hex(16)
        try:
            with self.server.calls() as client:
                new = not client.exists(self._marks) and client.set(self._owner, token, nx=True)
        except NotReached:
            return lambda: None  # the pipeline waits for the server; its seals are not deleted then
        if not new:
            reason = f"it has the seals of another run {self.run!r}, which is still running or whose nodes are gone"
            raise BadInput(self.place, f"{reason}; choose another name, or delete the keys {self._marks!r} and {self._owner!r}")
        return partial(self._forget, token)

    def _forget(self, token: str) -> None:
        with self.server.calls() as client:
            if client.get(self._owner) == token.encode():
                client.delete(self._marks, self._owner)

    def rate(self, task: int) -> float:
        return self.tuples_per_second / self.tasks

    def seal(self, batch: int) -> bool:
        try:
            sealed = self._sealed()
            if is_new(self.place, batch, sealed):
                mark = self._next(max(sealed, default=None))
                with self.server.calls() as client:
                    client.hsetnx(self._marks, batch, json.dumps(mark))
        except NotReached:
            return False
        return True

    def read(self, task: int, batch: int) -> pa.Table:
        mark = self._mark(batch)
        if mark is None:
            raise missing_seal(self.place, batch, self._sealed(), "start a new run")
        number = task if self.per_task else 0
        table, _ = _entries(self, number, json.dumps(json.loads(mark)["streams"][number]))
        return table if self.per_task else partitioned(table, task, self.tasks, self.partition_by)

    def release(self, before: int) -> None:
        old = sorted(self._sealed())[:-1]  # the last seal has the position to continue from
        old = [batch for batch in old if batch < before]
        if old:
            with self.server.calls() as client:
                client.hdel(self._marks, *old)

    def refused(self, batch: int) -> RefusedRows:
        mark = self._mark(batch)
        return RefusedRows() if mark is None else RefusedRows.from_document(json.loads(mark)["refused"])

    def refused_so_far(self) -> int:
        """The number of refused entries in all sealed batches, including released ones."""
        sealed = self._sealed()
        mark = self._mark(max(sealed)) if sealed else None
        return int(json.loads(mark)["refused_so_far"]) if mark else 0

    @property
    def _marks(self) -> str:
        """A hash from batch to seal (JSON)."""
        return f"ppa:source:{self.key}:{self.run}"

    @property
    def _owner(self) -> str:
        """A string with a random token: only the process that knows it may delete the seals."""
        return f"{self._marks}:owner"

    def _can_partition(self) -> bool:
        return self.partition_by in self.schema.names and is_key(self.schema.field(self.partition_by).type)

    def _sealed(self) -> list[int]:
        with self.server.calls() as client:
            return [int(batch) for batch in client.hkeys(self._marks)]

    def _mark(self, batch: int) -> bytes | None:
        with self.server.calls() as client:
            found: bytes | None = client.hget(self._marks, batch)
        return found

    def _next(self, last: int | None) -> dict[str, Any]:
        """The seal of the batch after `last`: for each stream, the range of ids and the number of entries."""
        kept = self._mark(last) if last is not None else None
        start: dict[str, Any] = {"streams": [{"to": "0-0"} for _ in self.streams], "refused_so_far": 0}
        before = json.loads(kept) if kept else start
        ranges, refusals = [], RefusedRows()
        for number, (stream, past) in enumerate(zip(self.streams, before["streams"], strict=True)):
            ids = self._ids(stream, past["to"])
            part = {"after": past["to"], "to": ids[-1] if ids else past["to"], "count": len(ids)}
            part |= {"line_bytes": self.limits.line_bytes, "columns": self.limits.columns}
            refusals += _entries(self, number, json.dumps(part))[1]
            ranges.append(part)
        so_far = before["refused_so_far"] + refusals.count
        return {"streams": ranges, "refused": refusals.document(), "refused_so_far": so_far}

    def _ids(self, stream: str, after: str) -> list[str]:
        found = fetch(self.server, stream, after, "+", self.max_entries, self.limits.batch_bytes)
        return [entry_id.decode() for entry_id, _ in found]


def fetch(server: RedisServer, stream: str, after: str, to: str, most: int, most_bytes: int | None = None) -> list[Entry]:
    """The entries of a stream after one id and up to another: at most `most`, fewer if they reach `most_bytes`."""
    found: list[Entry] = []
    count, size = _PAGE, 0
    with server.calls(metered=True) as client:
        while len(found) < most and (most_bytes is None or size < most_bytes):
            try:
                page: list[Entry] = client.xrange(stream, f"({after}", to, count=min(count, most - len(found)))
            except TooMuch as error:
                if count > 1:
                    count = max(1, min(count, most - len(found)) // 4)
                    continue
                if error.first_id is None:
                    raise Changed(f"{server.address}#{stream}", "its entries are too large to be fetched") from None
                page = [(error.first_id.encode(), None)]
            if not page:
                break
            found += page
            if most_bytes is not None:
                size += sum(entry_size(fields) + _OVERHEAD * len(fields or ()) for _, fields in page)
            after, count = page[-1][0].decode(), min(_PAGE, 2 * count)
    return found


def entry_size(fields: dict[bytes, bytes] | None) -> int:
    """The size of the names and values in bytes."""
    return len(b"".join(fields)) + len(b"".join(fields.values())) if fields else 0


def _unfit(fields: dict[bytes, bytes] | None, line_bytes: int, columns: int) -> str:
    """The reason if an entry is above the limits, else empty."""
    if fields is None or entry_size(fields) > line_bytes:
        return f"an entry of more than {size_of(min(line_bytes, PAGE_BYTES))}, the limit line_bytes"
    return f"{len(fields)} fields, above the limit columns of {columns}" if len(fields) > columns else ""


@lru_cache(maxsize=8)
def _entries(source: RedisStream, number: int, part: str) -> tuple[pa.Table, RefusedRows]:
    """The tuples of one stream in a batch; the tasks in this process share them."""
    wanted = json.loads(part)
    stream = source.streams[number]
    found = fetch(source.server, stream, wanted["after"], wanted["to"], wanted["count"] + 1) if wanted["count"] else []
    if len(found) != wanted["count"]:
        reason = f"{wanted['count']} entries were sealed, but only {len(found)} are left; use a larger MAXLEN"
        raise Changed(f"{source.server.address}#{stream}", reason)
    most, columns_ = wanted.get("line_bytes", source.limits.line_bytes), wanted.get("columns", source.limits.columns)
    bad: Bad = {row: reason for row, (_, fields) in enumerate(found) if (reason := _unfit(fields, most, columns_))}
    kept = [fields or {} for _, fields in found]
    columns = []
    for field in source.schema:
        name = field.name.encode()
        values = [fields.get(name) for fields in kept]
        lacking = {row: f"missing field {field.name!r}" for row, value in enumerate(values) if value is None}
        column, unfit = convert(pa.array(values, pa.binary()), field)
        columns.append(column)
        bad = unfit | lacking | bad
    table = pa.Table.from_arrays(columns, schema=source.schema)
    if bad:
        table = table.filter(pa.array([row not in bad for row in range(len(found))]))
    first = [RefusedRow(stream, found[row][0].decode(), bad[row]) for row in sorted(bad)[:KEPT]]
    return table, RefusedRows(len(bad), tuple(first))
