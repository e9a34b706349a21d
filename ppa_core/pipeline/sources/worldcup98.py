"""The 1998 World Cup site's access log: the binary format, its files, and the log as a source.

A record has 20 bytes, big-endian. Its `server` byte holds a region in the upper three bits and a number in the lower five.
"""

from __future__ import annotations

import gzip
import math
import re
import tempfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ppa_core.errors import BadInput
from ppa_core.pipeline.sources.limits import Unfit, open_regular, size_of

RECORD = np.dtype(
    [
        ("timestamp", ">u4"), ("client", ">u4"), ("object", ">u4"), ("size", ">u4"),
        ("method", "u1"), ("status", "u1"), ("type", "u1"), ("server", "u1"),
    ]
)  # fmt: skip

SCHEMA = pa.schema(
    {
        "timestamp": pa.int64(), "client": pa.int64(), "object": pa.int64(), "size": pa.int64(),
        "method": pa.int16(), "status": pa.int16(), "type": pa.int16(), "server": pa.int16(),
    }
)  # fmt: skip
"""The fields of a record. Signed, because Spark has no unsigned integers; an unknown size is null."""

UNKNOWN_SIZE = 0xFFFFFFFF

SERVERS = (
    *range(6), *range(33, 43), *range(64, 74), 98, 99, 101,
)  # fmt: skip
"""The 29 servers by their byte in the log; a server's index in this tuple is its slot."""

_FIRST_TIME, _LAST_TIME = 893_376_000, 901_929_600
"""1998-04-24 and 1998-08-01, UTC: the lifetime of the site, with a few days' margin."""

_MOST = {"method": 15, "type": 31}
"""Maximum valid codes; real records have methods up to 2 and types up to 12."""

_BLOCK = 1 << 14
"""Records per entry of the index; a batch reads whole blocks."""

UNPACKED_BYTES = 4 << 30
"""Maximum decompressed size of a file; the log's largest day has 1.5 GB, in eleven files."""

_CHUNK = _BLOCK << 6
"""Records read at a time, to limit memory."""

Records = NDArray[np.void]


@dataclass(frozen=True)
class LogFile:
    """A checked file: its number of records, first and last time of each block, and requests by server byte."""

    path: str
    records: int
    earliest: tuple[int, ...]
    latest: tuple[int, ...]
    servers: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class WorldCup98:
    """The log as a source; created by `open_log`.

    Batch b has the requests from `start + b·w` to before `start + (b + 1)·w` where w is `batch_seconds · speedup`: the log runs
    `speedup` times as fast as in reality. The log has whole seconds, so with w below 1 some batches are empty. Task i has the
    servers whose slot modulo `tasks` is i, in the order of the log. The files must not be changed.
    """

    files: tuple[LogFile, ...]
    tasks: int
    batch_seconds: float
    speedup: float
    start: int
    seconds: int
    """How much time the log spans."""

    @property
    def schema(self) -> pa.Schema:
        return SCHEMA

    @property
    def batches(self) -> int:
        """The number of batches in the log; later batches are empty."""
        return math.ceil(self.seconds / (self.batch_seconds * self.speedup))

    def rate(self, task: int) -> float:
        requests = sum(n for file in self.files for server, n in file.servers if slots(self.tasks)[server] == task)
        return requests / self.seconds * self.speedup

    def read(self, task: int, batch: int) -> pa.Table:
        return to_table(_partitioned(self, batch)[task])


def open_log(
    paths: str | Path | Sequence[str | Path], tasks: int, batch_seconds: float = 1.0, speedup: float = 1.0
) -> WorldCup98:
    """The log in these files and directories, in the order of `log_files`, as a source with `tasks` tasks.

    Every record is checked. Raises BadInput with file and byte offset if one is invalid.
    """
    if tasks < 1 or not (batch_seconds > 0 and speedup > 0):
        reason = f"{tasks} tasks, batches of {batch_seconds} s, speed-up {speedup}"
        raise BadInput("source 'worldcup98'", f"{reason}; at least one task is required, the others must be positive")
    named = [paths] if isinstance(paths, str | Path) else list(paths)
    files = tuple(_index(path) for path in log_files(named))
    files = tuple(file for file in files if file.records)
    if not files:
        raise BadInput(", ".join(map(str, named)), "it contains no requests; give a log such as wc_day66_1")
    start = min(min(file.earliest) for file in files)
    end = max(max(file.latest) for file in files) + 1
    return WorldCup98(files, tasks, batch_seconds, speedup, start, end - start)


def log_files(paths: Sequence[str | Path]) -> list[Path]:
    """The files in `paths`; a directory stands for its files wc_day*, ordered by day and part."""
    found: list[Path] = []
    for path in map(Path, paths):
        try:
            inside = [p for p in path.iterdir() if p.name.startswith("wc_day") and not p.is_dir()] if path.is_dir() else [path]
        except OSError as error:
            raise BadInput(str(path), f"cannot be read: {error.strerror}") from error
        except ValueError as error:
            raise BadInput(repr(str(path)), f"not a valid file name: {error}") from error
        if not inside:
            raise BadInput(str(path), "no file named wc_day* in this directory; give the log files themselves")
        found += sorted(inside, key=lambda p: [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", p.name)])
    return found


@lru_cache(maxsize=64)
def slots(tasks: int) -> NDArray[np.int64]:
    """The task of each server byte. A byte that is not one of the 29 servers is its own slot."""
    slot = np.arange(256)
    slot[list(SERVERS)] = np.arange(len(SERVERS))
    return slot % tasks


def to_table(records: Records) -> pa.Table:
    """Records as a table of `SCHEMA`."""
    columns = [pa.array(records[field.name].astype(field.type.to_pandas_dtype())) for field in SCHEMA]
    size = SCHEMA.get_field_index("size")
    columns[size] = pa.array(records["size"].astype(np.int64), mask=records["size"] == UNKNOWN_SIZE)
    return pa.Table.from_arrays(columns, schema=SCHEMA)


def chunks(path: Path) -> Iterator[Records]:
    """The records of a file in chunks, all of them checked."""
    records = _open(str(path))
    for first in range(0, len(records), _CHUNK):
        chunk = records[first : first + _CHUNK]
        _check(path, first, chunk)
        yield chunk


def _index(path: Path) -> LogFile:
    earliest: list[int] = []
    latest: list[int] = []
    total, servers = 0, np.zeros(256, np.int64)
    for chunk in chunks(path):
        times, begins = chunk["timestamp"].astype(np.int64), np.arange(0, len(chunk), _BLOCK)
        earliest += np.minimum.reduceat(times, begins).tolist()
        latest += np.maximum.reduceat(times, begins).tolist()
        servers += np.bincount(chunk["server"], minlength=256)
        total += len(chunk)
    seen = tuple((int(server), int(servers[server])) for server in np.flatnonzero(servers))
    return LogFile(str(path.absolute()), total, tuple(earliest), tuple(latest), seen)


@lru_cache(maxsize=2)
def _partitioned(source: WorldCup98, batch: int) -> list[Records]:
    """The requests of each task in a batch; cached for all tasks in this process."""
    window = source.batch_seconds * source.speedup
    begin, end = (source.start + math.ceil(b * window) for b in (batch, batch + 1))
    found = np.concatenate([_between(file, begin, end) for file in source.files])
    tasks = slots(source.tasks)[found["server"]]
    order = np.argsort(tasks, kind="stable")
    return np.split(found[order], np.searchsorted(tasks[order], np.arange(1, source.tasks)))


def _between(file: LogFile, begin: int, end: int) -> Records:
    """The records of a file from `begin` to before `end`; the log is not completely sorted, so several ranges may have some."""
    blocks = np.flatnonzero((np.array(file.latest) >= begin) & (np.array(file.earliest) < end))
    if not len(blocks):
        return np.zeros(0, RECORD)
    records = _open(file.path)
    if len(records) != file.records:
        reason = (
            f"it had {file.records} records when the source was opened and has {len(records)} now; a log must not be changed"
        )
        raise BadInput(file.path, reason)
    pieces = []
    for run in np.split(blocks, np.flatnonzero(np.diff(blocks) > 1) + 1):
        stretch = records[run[0] * _BLOCK : (run[-1] + 1) * _BLOCK]
        times = stretch["timestamp"]
        pieces.append(stretch[(times >= begin) & (times < end)])
    return np.concatenate(pieces)


def _open(path: str) -> Records:
    """All records of a file, memory-mapped; a .gz file is decompressed into an unnamed temporary file."""
    try:
        stat = Path(path).lstat()
        return _mapped(path, stat.st_size, stat.st_mtime_ns)
    except OSError as error:
        raise BadInput(path, f"cannot be read: {error.strerror or error}") from error
    except ValueError as error:
        raise BadInput(repr(path), f"not a valid file name: {error}") from error


@lru_cache(maxsize=4)
def _mapped(path: str, size: int, changed: int) -> Records:
    try:
        opened = open_regular(Path(path))
    except Unfit as error:
        raise BadInput(path, f"{error.reason}; give a log such as wc_day66_1, or a directory of logs") from None
    with opened as raw:
        packed = raw.read(2) == b"\x1f\x8b"
        raw.seek(0)
        if not packed:
            return _map(path, raw)
        with tempfile.TemporaryFile() as unpacked:
            try:
                _unpack(path, raw, unpacked)
            except (EOFError, gzip.BadGzipFile, zlib.error) as error:
                place = f"{path}: byte {raw.tell()}"
                raise BadInput(place, f"the compressed file is damaged or truncated ({error}); download it again") from error
            return _map(path, unpacked)


def _unpack(path: str, packed: BinaryIO, unpacked: BinaryIO) -> None:
    source = gzip.GzipFile(fileobj=packed)
    while content := source.read(1 << 20):
        unpacked.write(content)
        if unpacked.tell() > UNPACKED_BYTES:
            raise BadInput(
                path, f"it decompresses to more than {size_of(UNPACKED_BYTES)}, which is more than any part of the log"
            )


def _map(path: str, file: Any) -> Records:
    size = file.seek(0, 2)
    if size % RECORD.itemsize:
        rest = size % RECORD.itemsize
        reason = f"truncated: {rest} bytes follow the last complete record of {RECORD.itemsize}; download the file again"
        raise BadInput(f"{path}: byte {size - rest}", reason)
    if not size:
        return np.zeros(0, RECORD)
    return np.memmap(file, RECORD, mode="r")


def _check(path: Path, first: int, records: Records) -> None:
    """Refuse invalid records; `first` is the number of the first record in `records`."""
    times = records["timestamp"]
    wrong = (times < _FIRST_TIME) | (times >= _LAST_TIME)
    for name, most in _MOST.items():
        wrong |= records[name] > most
    if not wrong.any():
        return
    at = int(wrong.argmax())
    found, reason = records[at], ""
    if _FIRST_TIME <= found["timestamp"] < _LAST_TIME:
        reason = next(f"{name} {found[name]} is not a valid code" for name, most in _MOST.items() if found[name] > most)
    else:
        moment = f"time {found['timestamp']}"
        with suppress(OverflowError, OSError, ValueError):
            moment += f" ({np.datetime64(int(found['timestamp']), 's')})"
        reason = f"{moment} is outside the lifetime of the site, April to July 1998"
    raise BadInput(
        f"{path}: byte {(first + at) * RECORD.itemsize}",
        f"{reason}; this is not a World Cup log, or it is damaged: download it again",
    )
