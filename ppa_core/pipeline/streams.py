"""Streams: routing of tuples to tasks. Vectorised, and the same in all processes, machines and versions."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ppa_core.topology import Partitioning

Ints = NDArray[np.int64]
Hashes = NDArray[np.uint64]

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_NULL = np.uint64(0x6E756C6C)


@dataclass(frozen=True)
class Stream:
    """The stream from the `up_tasks` tasks of `source` to the `down_tasks` tasks of `target`, partitioned by `key`."""

    source: str
    target: str
    partitioning: Partitioning
    key: str | None
    up_tasks: int
    down_tasks: int

    def downstream(self, up: int) -> range:
        """The tasks of `target` that task `up` of `source` can send to (both counted from 0)."""
        match self.partitioning:
            case Partitioning.FULL:
                return range(self.down_tasks)
            case Partitioning.SPLIT:
                return range(_ceil(up * self.down_tasks, self.up_tasks), _ceil((up + 1) * self.down_tasks, self.up_tasks))
            case _:
                first = up * self.down_tasks // self.up_tasks
                return range(first, first + 1)

    def upstream(self, down: int) -> range:
        """The tasks of `source` that can send to task `down` of `target`."""
        match self.partitioning:
            case Partitioning.FULL:
                return range(self.up_tasks)
            case Partitioning.SPLIT:
                first = down * self.up_tasks // self.down_tasks
                return range(first, first + 1)
            case _:
                return range(_ceil(down * self.up_tasks, self.down_tasks), _ceil((down + 1) * self.up_tasks, self.down_tasks))


def route(table: pa.Table, stream: Stream, up: Ints) -> Ints:
    """The task of `stream.target` that each row goes to; `up` is the task of `stream.source` that each row comes from.

    Keys are spread by ranges of their hash: `full` takes task ⌊h·N2⌋ for a hash h in [0, 1), `split` takes the next digits
    of the same hash, frac(h·N1), within the tasks that the row's upstream task feeds. So `full` and then `split` by the
    same key put a key where `full` alone would, spread it evenly all the same, and meet it there in a join.
    """
    n1, n2 = np.uint64(stream.up_tasks), np.uint64(stream.down_tasks)
    if stream.partitioning in (Partitioning.ONE_TO_ONE, Partitioning.MERGE):
        return up * stream.down_tasks // stream.up_tasks
    assert stream.key is not None
    fraction = hash_column(table.column(stream.key)) >> np.uint64(32)
    if stream.partitioning is Partitioning.FULL:
        return _scale(fraction, n2)
    starts = -(-np.arange(stream.up_tasks + 1, dtype=np.int64) * stream.down_tasks // stream.up_tasks)
    digits = (fraction * n1) & np.uint64(0xFFFFFFFF)
    return starts[up] + _scale(digits, np.diff(starts)[up].astype(np.uint64))


def is_key(kind: pa.DataType) -> bool:
    """Whether a column of this type can be a key."""
    return _is_text(kind) or _is_time(kind) or bool(pa.types.is_integer(kind) or pa.types.is_boolean(kind))


def hash_column(column: pa.ChunkedArray) -> Hashes:
    """A stable 64-bit hash of each value; equal values of any integer type have equal hashes, and so have all nulls."""
    kind = column.type
    if _is_text(kind):
        encoded = column.combine_chunks().dictionary_encode()
        if isinstance(encoded, pa.ChunkedArray):
            encoded = pa.concat_arrays(encoded.chunks) if encoded.num_chunks else pa.array([], kind).dictionary_encode()
        hashes = np.append(_hash_texts(encoded.dictionary.cast(pa.large_binary())), mix(_NULL.reshape(1)))
        return np.asarray(hashes[encoded.indices.fill_null(len(hashes) - 1).to_numpy(zero_copy_only=False)])
    if _is_time(kind) and kind.bit_width == 32:
        column = column.cast(pa.int32())
    numbers = column.cast(pa.int64(), safe=False)
    hashes = mix(numbers.fill_null(0).to_numpy().astype(np.int64, copy=False).view(np.uint64))
    if column.null_count:
        hashes[pc.is_null(column).to_numpy()] = mix(_NULL.reshape(1))[0]
    return hashes


def mix(numbers: Hashes) -> Hashes:
    """The finaliser of splitmix64: every bit of a number changes about half the bits of its hash."""
    z = numbers + _GOLDEN
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(z ^ (z >> np.uint64(31)))


def _hash_texts(texts: pa.LargeBinaryArray) -> Hashes:
    """Multilinear hash: each byte times a random number that its position gives, summed modulo 2⁶⁴, mixed with the length."""
    if not len(texts):
        return np.zeros(0, np.uint64)
    _, ends, content = texts.buffers()
    offsets = np.frombuffer(ends, np.int64)[texts.offset : texts.offset + len(texts) + 1]
    data = np.frombuffer(content or b"", np.uint8)[offsets[0] : offsets[-1]]
    starts, lengths = offsets[:-1] - offsets[0], np.diff(offsets)
    positions = np.arange(len(data), dtype=np.int64) - np.repeat(starts, lengths)
    sums = np.append(np.uint64(0), np.cumsum((data + np.uint64(1)) * mix(positions.view(np.uint64)), dtype=np.uint64))
    return mix((sums[starts + lengths] - sums[starts]) ^ lengths.view(np.uint64))


def _scale(fraction: Hashes, n: Hashes | np.uint64) -> Ints:
    """⌊fraction · n⌋ of a fraction in units of 2⁻³²."""
    return ((fraction * n) >> np.uint64(32)).astype(np.int64)


def _is_text(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_binary(kind) or types.is_large_binary(kind))


def _is_time(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(types.is_date(kind) or types.is_time(kind) or types.is_timestamp(kind) or types.is_duration(kind))


def _ceil(a: int, b: int) -> int:
    return -(-a // b)
