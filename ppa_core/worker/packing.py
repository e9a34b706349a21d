"""Packing: data crosses an exchange as one blob per pair of partitions and batch, however many tasks there are.

A `Parcel` holds the rows of one stream from some upstream tasks to some downstream tasks, sorted by (downstream, upstream),
with the length of each run of rows of the same pair. A downstream task's input is thus one slice of each parcel. A blob is

    for each parcel: runs (3 × n int32: up, down, rows), Arrow IPC stream of the rows, each at a multiple of 64 bytes
    index (int64): for each parcel its stream, the offset and number of its runs, the offset and length of its rows
    number of parcels (int64)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ppa_core.pipeline.streams import Ints, Stream, route
from ppa_core.worker.layout import Layout

_ALIGN = 64


@dataclass(frozen=True)
class Blob:
    """The data that partition `source` sends to partition `target` in one batch."""

    source: int
    target: int
    batch: int
    data: bytes


@dataclass(frozen=True)
class Parcel:
    """Rows of one stream sorted by (downstream task, upstream task); run i has `rows[i]` rows from `up[i]` to `down[i]`."""

    table: pa.Table
    up: Ints
    down: Ints
    rows: Ints

    @cached_property
    def _starts(self) -> Ints:
        return np.append(0, np.cumsum(self.rows))

    def between(self, first: int, last: int) -> Parcel:
        """The part for the downstream tasks `first` … `last − 1`."""
        low, high = np.searchsorted(self.down, (first, last))
        start, end = int(self._starts[low]), int(self._starts[high])
        own = slice(low, high)
        return Parcel(self.table.slice(start, end - start), self.up[own], self.down[own], self.rows[own])


def sort(stream: Stream, outputs: Mapping[int, pa.Table], schema: pa.Schema, running: NDArray[np.bool_]) -> Parcel:
    """The parcel of the upstream tasks' outputs, without rows for downstream tasks that are not `running`."""
    tasks = sorted(outputs)
    table = pa.concat_tables([schema.empty_table(), *(outputs[task] for task in tasks)])
    up = np.repeat(np.array(tasks, np.int64), [outputs[task].num_rows for task in tasks])
    down = route(table, stream, up)
    wanted = running[down]
    if not wanted.all():
        table, up, down = table.filter(pa.array(wanted)), up[wanted], down[wanted]
    if (down[1:] < down[:-1]).any():
        order = np.argsort(down.astype(np.uint16) if stream.down_tasks <= 0xFFFF else down, kind="stable")
        table, up, down = table.combine_chunks().take(pa.array(order)), up[order], down[order]
    changes = (down[1:] != down[:-1]) | (up[1:] != up[:-1])
    starts = np.append(0, np.flatnonzero(changes) + 1)[: len(down)]
    return Parcel(table, up[starts], down[starts], np.diff(np.append(starts, len(down))))


def gather(parcels: Iterable[Parcel], task: int, schema: pa.Schema) -> Parcel:
    """The input of one downstream task from all parcels, in the order of the upstream tasks."""
    parts = [part for parcel in parcels if len((part := parcel.between(task, task + 1)).rows)]
    parts.sort(key=lambda part: int(part.up[0]))
    if not parts:
        nothing = np.zeros(0, np.int64)
        return Parcel(schema.empty_table(), nothing, nothing, nothing)
    table = pa.concat_tables([part.table for part in parts]).combine_chunks()
    return Parcel(table, *(np.concatenate([getattr(part, name) for part in parts]) for name in ("up", "down", "rows")))


class Packer:
    """Collects the parcels that leave a partition in one batch, and packs them for each target partition."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._parcels: dict[int, list[tuple[int, Parcel]]] = {}

    def add(self, stream: int, parcel: Parcel) -> None:
        """Add a parcel of stream number `stream`; each part goes to the partition that runs its tasks."""
        target = self._layout.pipeline.streams[stream].target
        for partition in range(self._layout.partitions):
            tasks = self._layout.tasks(target, partition)
            part = parcel.between(tasks.start, tasks.stop)
            if len(part.rows):
                self._parcels.setdefault(partition, []).append((stream, part))

    def blobs(self, source: int, batch: int) -> list[Blob]:
        """One blob for each partition that receives rows."""
        return [Blob(source, target, batch, pack(parcels)) for target, parcels in sorted(self._parcels.items())]


def pack(parcels: Sequence[tuple[int, Parcel]]) -> bytes:
    """Parcels with the numbers of their streams as one blob."""
    sink = pa.BufferOutputStream()
    index: list[int] = []
    for stream, parcel in parcels:
        runs = _align(sink)
        sink.write(np.stack([parcel.up, parcel.down, parcel.rows]).astype(np.int32).tobytes())
        rows = _align(sink)
        with pa.ipc.new_stream(sink, parcel.table.schema) as writer:
            writer.write_table(parcel.table)
        index += [stream, runs, len(parcel.rows), rows, sink.tell() - rows]
    _align(sink)
    sink.write(np.array([*index, len(parcels)], np.int64).tobytes())
    return bytes(sink.getvalue())


def unpack(data: bytes) -> list[tuple[int, Parcel]]:
    """The reverse of `pack`; the tables are views of `data`."""
    count = int(np.frombuffer(data[-8:], np.int64)[0])
    index = np.frombuffer(data[len(data) - 8 * (5 * count + 1) : -8], np.int64).reshape(count, 5)
    buffer = pa.py_buffer(data)
    parcels = []
    for stream, runs, number, rows, length in index.tolist():
        up, down, counts = np.frombuffer(buffer, np.int32, 3 * number, runs).reshape(3, number).astype(np.int64)
        table = pa.ipc.open_stream(buffer.slice(rows, length)).read_all()
        parcels.append((stream, Parcel(table, up, down, counts)))
    return parcels


def _align(sink: pa.NativeFile) -> int:
    """Pad to the next multiple of 64 bytes; the new position."""
    sink.write(bytes(-sink.tell() % _ALIGN))
    return int(sink.tell())
