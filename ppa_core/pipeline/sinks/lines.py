"""Records in JSON-lines files: one line per record, files of limited size in a directory.

A line is valid once its newline is written. An incomplete line after a crash is ignored by readers and removed by the next
writer.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa

from ppa_core.errors import BadInput, Unavailable
from ppa_core.pipeline.sinks.records import Mode, Newest, Published, SinkRecord, document, from_document
from ppa_core.safety.owned import open_own

_NAME = re.compile(r"output-(\d{9})\.jsonl")
_HEAD = re.compile(rb'\{"batch": (\d+), "revision": (\d+), "status": "(\w+)"(?:, "epoch": (\d+))?')
"""The beginning of a line written by `JsonLines`."""


class JsonLines:
    """Writes records to files output-000000001.jsonl, … in a directory.

    A new file is started when the next record would make the last one larger than `max_bytes`. With `keep` only the newest
    `keep` files are kept. A later driver (`epoch`) starts a new file, so that nothing that an earlier one still does reaches
    what it writes.
    """

    def __init__(self, directory: str | Path, max_bytes: int = 64 << 20, keep: int | None = None, epoch: int = 1) -> None:
        if max_bytes < 1 or (keep is not None and keep < 1):
            raise BadInput(f"sink jsonl:{directory}", f"files of {max_bytes} bytes, {keep} of them; both must be at least 1")
        self.directory, self.max_bytes, self.keep = Path(directory), max_bytes, keep
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            last = _files(self.directory)[-1:]
            self._number = _number(last[0]) if last else 1
            self._file: Any = self._fresh() if last and epoch > 1 else self._opened()
            self._drop_torn_line()
        except OSError as error:
            raise BadInput(
                f"sink jsonl:{directory}", f"cannot be written: {error.strerror}; choose another directory"
            ) from error

    def __call__(self, record: Published) -> None:
        line = json.dumps(document(record), allow_nan=False).encode() + b"\n"
        try:
            if self._size and self._size + len(line) > self.max_bytes:
                self._next_file()
            self._write(line)
        except OSError as error:
            raise Unavailable(f"sink jsonl:{self.directory}: cannot be written: {error.strerror}; is the disk full?") from error

    def close(self) -> None:
        self._file.close()

    def _write(self, line: bytes) -> None:
        try:
            rest = memoryview(line)
            while rest:
                rest = rest[self._file.write(rest) :]
            os.fsync(self._file.fileno())
        except OSError:
            with suppress(OSError):
                self._file.truncate(self._size)  # the disk may be full; the next record must not continue this line
            raise
        self._size += len(line)

    def _path(self) -> Path:
        return self.directory / f"output-{self._number:09}.jsonl"

    def _opened(self, flags: int = 0) -> Any:
        """Open the last file for appending. Files of other users are refused, and links are not followed."""
        return os.fdopen(open_own(self._path(), os.O_RDWR | os.O_APPEND | os.O_CREAT | flags, 0o666), "ab+", buffering=0)

    def _fresh(self) -> Any:
        """Create the next file. Another driver may have created some meanwhile: these are its own."""
        while True:
            self._number += 1
            with suppress(FileExistsError):
                return self._opened(os.O_EXCL)

    def _next_file(self) -> None:
        self._file.close()
        self._file, self._size = self._fresh(), 0
        for old in _files(self.directory)[: -self.keep] if self.keep else []:
            old.unlink()

    def _drop_torn_line(self) -> None:
        end = size = self._file.seek(0, os.SEEK_END)
        while end:
            begin = max(0, end - (1 << 16))
            at = os.pread(self._file.fileno(), end - begin, begin).rfind(b"\n")
            if at >= 0:
                end = begin + at + 1
                break
            end = begin
        if end < size:
            self._file.truncate(end)
        self._size = end


def read_lines(directory: str | Path, mode: Mode) -> Iterator[SinkRecord]:
    """The valid record of each batch, in the order of batches; also works while they are being written."""
    found: Newest[tuple[Path, int]] = Newest(mode)
    for path in _files(Path(directory)):
        if not path.is_file():  # a pipe would be waited for
            raise BadInput(str(path), "not a regular file; remove it to read the others")
        with path.open("rb") as file:
            at = 0
            for line in file:
                head = _HEAD.match(line)
                if head and line.endswith(b"}\n"):
                    found.note(int(head[1]), int(head[2]), head[3].decode(), (path, at), int(head[4] or 1))
                at += len(line)
    for path, at in found.in_order():
        with path.open("rb") as file:
            file.seek(at)
            line = file.readline()
        try:
            record = from_document(json.loads(line))
        except (ValueError, KeyError, TypeError, pa.ArrowException) as error:
            number = path.read_bytes()[:at].count(b"\n") + 1
            raise BadInput(f"{path}: line {number}", f"damaged: {error}; remove the line to read the others") from None
        yield record


def _files(directory: Path) -> list[Path]:
    try:
        return sorted(path for path in directory.iterdir() if _NAME.fullmatch(path.name))
    except OSError as error:
        raise BadInput(str(directory), f"cannot be read: {error.strerror}; give the directory of a sink") from error


def _number(path: Path) -> int:
    match = _NAME.fullmatch(path.name)
    assert match
    return int(match[1])
