"""Published records, and their lossless JSON representation."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Generic, Protocol, TypeVar

import pyarrow as pa

ACCURATE = ("accurate", "correction")
CORRECTION = 2
"""The revision of a correction: a batch is published once, or first tentatively and then corrected once."""


class Published(Protocol):
    """The input of a sink: the output of a batch. A higher revision of the same batch replaces a lower one."""

    @property
    def batch(self) -> int: ...
    @property
    def revision(self) -> int: ...
    @property
    def status(self) -> str: ...
    @property
    def of(self) -> float: ...
    @property
    def missing(self) -> tuple[str, ...]: ...
    @property
    def table(self) -> pa.Table: ...
    @property
    def at(self) -> float: ...
    @property
    def epoch(self) -> int:
        """The number of the driver that published it, among those of the run."""


class Sink(Protocol):
    """Writes records; a record is durable when the call returns. If a (batch, revision) is written twice, the last one wins."""

    def __call__(self, record: Published) -> None: ...

    def close(self) -> None:
        """Close files and connections; a second call does nothing."""


@dataclass(frozen=True)
class SinkRecord:
    """A record read back."""

    batch: int
    revision: int
    status: str
    of: float
    missing: tuple[str, ...]
    table: pa.Table
    at: float = field(compare=False)
    epoch: int = field(default=1, compare=False)


class Mode(StrEnum):
    """What to read: the highest revision of each batch, or the accurate output of each batch that has one."""

    LATEST = "latest"
    ACCURATE = "accurate"


Place = TypeVar("Place")


class Newest(Generic[Place]):
    """The place of the valid record of each batch, of all that are noted.

    A later driver's record replaces an earlier one's. What a driver wrote of batches that a later one publishes does not count:
    it hung, and was woken when the other one had taken over.
    """

    def __init__(self, mode: Mode) -> None:
        self._mode = mode
        self._places: dict[int, tuple[tuple[int, int], Place]] = {}
        self._first: dict[int, int] = {}
        """The first batch of each driver, by its epoch."""

    def note(self, batch: int, revision: int, status: str, place: Place, epoch: int = 1) -> None:
        """Note a record; to be called in the order in which records were written."""
        if revision < CORRECTION:
            self._first[epoch] = min(batch, self._first.get(epoch, batch))
        if self._mode is Mode.ACCURATE and status not in ACCURATE:
            return
        if batch not in self._places or (epoch, revision) >= self._places[batch][0]:
            self._places[batch] = (epoch, revision), place

    def in_order(self) -> list[Place]:
        return [place for batch, ((epoch, _), place) in sorted(self._places.items()) if not self._is_stray(batch, epoch)]

    def _is_stray(self, batch: int, epoch: int) -> bool:
        return any(later > epoch and first <= batch for later, first in self._first.items())


def head(record: Published) -> dict[str, Any]:
    """All fields of a record except its tuples."""
    return {
        "batch": record.batch,
        "revision": record.revision,
        "status": record.status,
        "epoch": record.epoch,
        "of": float(record.of),
        "missing": list(record.missing),
        "at": float(record.at),
    }


def document(record: Published) -> dict[str, Any]:
    """The record with its tuples as JSON objects; `schema` is the serialised Arrow schema, for types that JSON lacks."""
    return head(record) | {"rows": tuples(record.table), "schema": schema_text(record.table.schema)}


def tuples(table: pa.Table) -> list[dict[str, Any]]:
    """The tuples as objects that JSON can hold."""
    columns = [_values(column) for column in table.columns]
    return [dict(zip(table.column_names, values, strict=True)) for values in zip(*columns, strict=True)]


def from_document(found: dict[str, Any]) -> SinkRecord:
    """The reverse of `document`."""
    schema = schema_from(found["schema"])
    rows = found["rows"]
    columns = [_column([row[column.name] for row in rows], column.type) for column in schema]
    return from_head(found, pa.Table.from_arrays(columns, schema=schema))


def from_head(found: dict[str, Any], table: pa.Table) -> SinkRecord:
    return SinkRecord(
        found["batch"],
        found["revision"],
        found["status"],
        found["of"],
        tuple(found["missing"]),
        table,
        found["at"],
        found.get("epoch", 1),
    )


def schema_text(schema: pa.Schema) -> str:
    """A schema, without its metadata, as text."""
    return b64encode(pa.schema([column.remove_metadata() for column in schema]).serialize()).decode()


def schema_from(text: str) -> pa.Schema:
    return pa.ipc.read_schema(pa.py_buffer(b64decode(text)))


def _values(column: pa.ChunkedArray) -> list[Any]:
    """Values for JSON; those without a JSON type become strings."""
    kind, types = column.type, pa.types
    if types.is_floating(kind):
        return [value if value is None or value - value == 0 else str(value) for value in column.to_pylist()]
    if types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind):
        return [None if value is None else b64encode(value).decode() for value in column.to_pylist()]
    if types.is_integer(kind) or types.is_boolean(kind) or types.is_string(kind) or types.is_large_string(kind):
        return list(column.to_pylist())
    try:
        return list(column.cast(pa.string()).to_pylist())
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid):  # nested types: as JSON, if possible
        return list(json.loads(json.dumps(column.to_pylist(), default=str)))


def _column(values: list[Any], kind: pa.DataType) -> pa.Array:
    types = pa.types
    if types.is_floating(kind):
        return pa.array([float(value) if isinstance(value, str) else value for value in values], kind)
    if types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind):
        return pa.array([None if value is None else b64decode(value) for value in values], kind)
    try:
        return pa.array(values, kind)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError):
        return pa.array(values, pa.string()).cast(kind)
