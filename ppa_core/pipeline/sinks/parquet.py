"""Records in Parquet files, one file per record, named by batch and revision; the other fields are in the file's metadata."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from ppa_core.errors import BadInput, Unavailable
from ppa_core.pipeline.sinks.records import Mode, Newest, Published, SinkRecord, from_head, head, schema_from, schema_text
from ppa_core.safety.owned import DRAFT, written_whole

_NAME = re.compile(r"batch-(\d{9,})-r(\d{4,})(?:-e(\d{4,}))?\.parquet")
_LEFT = re.compile(r"\.batch-\d{9,}-r\d{4,}(-e\d{4,})?\.parquet(\.[0-9a-f]{16})?" + re.escape(DRAFT))
_KEY = b"ppa"


class ParquetFiles:
    """Writes records to files batch-000000012-r0001.parquet in a directory; each file is written atomically.

    The second driver of a run (epoch 2) adds -e0002 to the name, and so on.
    """

    def __init__(self, directory: str | Path) -> None:
        self.directory = Path(directory)
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            for left in self.directory.iterdir():  # temporary files of a writer that died
                if _LEFT.fullmatch(left.name):
                    left.unlink()
        except OSError as error:
            raise BadInput(
                f"sink parquet:{directory}", f"cannot be written: {error.strerror}; choose another directory"
            ) from error

    def __call__(self, record: Published) -> None:
        driver = f"-e{record.epoch:04}" if record.epoch > 1 else ""
        name = f"batch-{record.batch:09}-r{record.revision:04}{driver}.parquet"
        table = record.table.replace_schema_metadata(
            {_KEY: json.dumps(head(record) | {"schema": schema_text(record.table.schema)})}
        )
        try:
            with written_whole(self.directory / name, sync=True) as file:
                pq.write_table(table, file)
            handle = os.open(self.directory, os.O_RDONLY)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)
        except OSError as error:
            place = f"sink parquet:{self.directory}"
            raise Unavailable(f"{place}: cannot be written: {error.strerror or error}; is the disk full?") from error

    def close(self) -> None:
        """Nothing is open between records."""


def read_parquet(directory: str | Path, mode: Mode) -> Iterator[SinkRecord]:
    """The valid record of each batch, in the order of batches; also works while they are being written."""
    found: Newest[Path] = Newest(mode)
    try:
        named = [(match, path) for path in Path(directory).iterdir() if (match := _NAME.fullmatch(path.name))]
    except OSError as error:
        raise BadInput(str(directory), f"cannot be read: {error.strerror}; give the directory of a sink") from error
    for match, path in sorted(named, key=lambda entry: (int(entry[0][1]), int(entry[0][2]))):
        status = _head(path)["status"] if mode is Mode.ACCURATE else ""  # reading it costs opening the file
        found.note(int(match[1]), int(match[2]), status, path, int(match[3] or 1))
    for path in found.in_order():
        known = _head(path)
        try:
            table = pq.read_table(path, partitioning=None).cast(schema_from(known["schema"]))
        except (pa.ArrowException, OSError) as error:
            raise BadInput(str(path), f"damaged: {error}; remove the file to read the others") from None
        yield from_head(known, table)


def _head(path: Path) -> dict[str, str]:
    try:
        known: dict[str, str] = json.loads(pq.read_metadata(path).metadata[_KEY])
    except (pa.ArrowInvalid, OSError, KeyError, TypeError) as error:
        raise BadInput(str(path), "not a record of a sink, or damaged; remove the file") from error
    return known
