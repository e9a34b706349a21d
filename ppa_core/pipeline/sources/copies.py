"""Copies of the rows of sealed batches: later changes of the input files do not matter.

A copy is a file of segments, each an Arrow stream, written by the process that reads the input files. The seal contains the
name of the copy and the length and digest of each segment; a segment with another digest is never decoded.
"""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from ppa_core.errors import BadInput
from ppa_core.pipeline.sources.converting import brief
from ppa_core.pipeline.sources.live import Changed
from ppa_core.pipeline.tables import decode, digest
from ppa_core.safety.owned import written_whole

CopySegment = tuple[int, str]
"""Length and digest of a segment."""

_NAME = re.compile(r"\.?rows-(\d{9,})-[0-9a-f]{16}\.arrow")
"""The name of a copy, or the beginning of the name of a temporary file."""


@dataclass
class InputCopy:
    """A copy that is being written."""

    name: str
    handle: int
    segments: list[CopySegment] = field(default_factory=list)

    @property
    def length(self) -> int:
        return sum(length for length, _ in self.segments)

    def document(self) -> dict[str, Any]:
        return {"name": self.name, "segments": [list(segment) for segment in self.segments]}


@contextmanager
def new_copy(folder: Path, batch: int) -> Iterator[InputCopy]:
    """Write a copy atomically: durable and readable only by its owner when the block ends, or not created at all."""
    name = f"rows-{batch:09}-{secrets.token_hex(8)}.arrow"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with written_whole(folder / name, sync=True) as file:
            os.fchmod(file.fileno(), 0o600)
            copy = InputCopy(name, file.fileno())
            yield copy
            os.ftruncate(file.fileno(), copy.length)  # drop what a process wrote that died
    except OSError as error:
        raise BadInput(str(folder), f"cannot be written: {error.strerror}; choose another place with `state`") from error


def write_segment(handle: int, at: int, tables: list[pa.Table]) -> CopySegment:
    """Write the rows of the tables as one segment at this offset."""
    table = pa.concat_tables(tables)
    if len(tables) > 1:
        table = table.combine_chunks()
    stream = pa.BufferOutputStream()
    with pa.ipc.new_stream(stream, table.schema) as writer:
        writer.write_table(table)
    content = memoryview(stream.getvalue())
    done = 0
    while done < len(content):
        done += os.pwrite(handle, content[done:], at + done)
    return len(content), digest(content)


def read_copy(folder: Path, document: dict[str, Any], schema: pa.Schema) -> pa.Table:
    """The rows of a copy. Raises Changed if it is missing or its digest differs."""
    path = folder / Path(document["name"]).name
    try:
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
            parts = [file.read(length) for length, _ in document["segments"]]
    except OSError as error:
        raise Changed(str(path), f"the copy of a batch's rows cannot be read: {error.strerror}; start a new run") from error
    if [digest(part) for part in parts] != [expected for _, expected in document["segments"]]:
        raise Changed(str(path), "the copy of a batch's rows was changed; start a new run")
    tables = [decode(part) for part in parts]
    try:
        for table in tables:
            table.validate(full=True)
    except pa.ArrowInvalid as error:
        raise Changed(str(path), f"the copy of a batch's rows is damaged: {brief(error)}; start a new run") from None
    return pa.concat_tables(tables) if tables else schema.empty_table()


def remove_copies(folder: Path, before: int) -> None:
    """Remove the copies of all batches before this one, and temporary files of processes that died."""
    for path in folder.iterdir():
        found = _NAME.match(path.name)
        if found and int(found[1]) < before:
            path.unlink(missing_ok=True)
