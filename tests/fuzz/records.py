"""Records of every source format: mutated ones among well-formed ones, all of which arrive, as they are and in their order.

What is well-formed is written by the standard library, from values chosen to be awkward; a source never sees these values.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ppa_core.errors import BadInput
from ppa_core.pipeline.sources.files import open_files
from ppa_core.pipeline.sources.live import LiveSource
from ppa_core.pipeline.sources.worldcup98 import RECORD, SERVERS, open_log
from tests.fuzz.mutating import mutant
from tests.fuzz.target import must

SCHEMA = pa.schema(
    [
        pa.field("n", pa.int64(), False),
        ("word", pa.string()),
        ("x", pa.float64()),
        ("on", pa.bool_()),
        ("at", pa.timestamp("us")),
    ]
)
Row = tuple[int, str, float | None, bool | None, datetime | None]

_WORDS = (
    "a",
    " ",
    "a b ",
    "a,b",
    'say "no"',
    "'",
    "é",
    "\U0001f3b2",
    "null",
    "NaN",
    "0x1F",
    "-",
    "#",
    "\t",
    "\\",
    "\\n",
    "{}",
    "=1+1",
    "\x1b[2J",
)
_WELL_FORMED, _MUTANTS = 20, 60


def row_of(random: Random) -> Row:
    """A record that must be accepted."""
    return (
        random.choice((0, -1, 7, 2**63 - 1, -(2**63), random.getrandbits(40))),
        random.choice(_WORDS) + random.choice(("", str(random.getrandbits(20)))),
        random.choice((None, 0.0, -1.5, 1e300, 5e-324, random.random())),
        random.choice((None, True, False)),
        random.choice((None, datetime(1998, 6, 30, 12, 30, 1, tzinfo=UTC).replace(tzinfo=None))),
    )


def shuffled(lines: Sequence[bytes], odd: Sequence[bytes], random: Random) -> list[bytes]:
    """The lines in their order, with the others anywhere among them."""
    found = list(lines)
    for one in odd:
        found.insert(random.randrange(len(found) + 1), one)
    return found


def check_batch(source: LiveSource, wanted: Sequence[Row], refused_at_least: int = 0) -> tuple[int, int]:
    """Seal and read a batch: all wanted rows are in it, in their order. Answers how many rows it has, and how many refused."""
    assert source.seal(0)
    table = source.read(0, 0)
    assert table.schema == SCHEMA, table.schema
    table.validate(full=True)
    moments = table["at"].cast(pa.int64())  # a mutant may have one that Python's calendar does not reach
    rows = iter(zip(*(table[name].to_pylist() for name in SCHEMA.names[:4]), moments.to_pylist(), strict=True))
    for row in wanted:
        moment = round(row[4].replace(tzinfo=UTC).timestamp() * 1e6) if row[4] else None
        assert (*row[:4], moment) in rows, f"{row!r} is lost"
    refused = source.refused(0)
    assert refused.count >= refused_at_least
    for one in refused.first:
        assert one.reason
    return table.num_rows, refused.count


def csv_line(row: Row) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(["" if value is None else value for value in row])
    return text.getvalue().encode()


def json_line(row: Row) -> bytes:
    at = row[4].isoformat(" ") if row[4] else None
    return json.dumps(dict(zip(SCHEMA.names, (*row[:4], at), strict=True))).encode() + b"\n"


class Texts:
    """CSV and JSON lines: a record is a line, whatever is in it, so every line that is not blank is a row or refused."""

    def __init__(self, folder: Path, kind: str) -> None:
        self.folder, self.kind, self.number = folder, kind, count()

    def round(self, random: Random) -> int:
        rows = [row_of(random) for _ in range(_WELL_FORMED)]
        line = csv_line if self.kind == "csv" else json_line
        odd = [mutant(line(row_of(random)).rstrip(b"\n"), random) + b"\n" for _ in range(_MUTANTS)]
        body = b"".join(shuffled([line(row) for row in rows], odd, random))
        header = b",".join(name.encode() for name in SCHEMA.names) + b"\n" if self.kind == "csv" else b""
        directory = self.folder / f"{self.kind}{next(self.number)}"
        directory.mkdir()
        (directory / f"a.{self.kind}").write_bytes(header + body)
        (directory / f"b.{self.kind}").write_bytes(mutant(header + body, random))
        try:
            alone = open_files(directory, self.kind, 1, SCHEMA, self.folder / f"{directory.name}.alone", pattern="a.*")
            found, refused = check_batch(alone, rows)
            lines = [one for one in body.split(b"\n") if one.strip(b"\r")]
            assert found + refused == len(lines), f"{found} rows and {refused} refused of {len(lines)} lines"
            both = open_files(directory, self.kind, 1, SCHEMA, self.folder / f"{directory.name}.both")
            check_batch(both, rows)
        finally:
            for left in self.folder.glob(f"{directory.name}*"):
                shutil.rmtree(left)
        return _MUTANTS + 1


class Parquet:
    """Parquet files: a mutated one is read or refused, and those beside it are read."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.number, made = folder, count(), Random("Parquet files")
        self.sound = [_parquet(made, other_types=False) for _ in range(30)]
        self.other = [_parquet(made, other_types=True) for _ in range(30)]

    def round(self, random: Random) -> int:
        directory = self.folder / f"parquet{next(self.number)}"
        directory.mkdir()
        wanted: list[Row] = []
        for name in range(_MUTANTS):
            rows, content = random.choice(self.other if random.random() < 0.3 else self.sound)
            content = mutant(content, random)
            if name % 6 == 0:
                rows, content = random.choice(self.sound)
                wanted += rows
            (directory / f"{name:02}.parquet").write_bytes(content)
        try:
            check_batch(open_files(directory, "parquet", 1, SCHEMA), wanted)
        finally:
            shutil.rmtree(directory)
        return _MUTANTS - _MUTANTS // 6


def _parquet(random: Random, other_types: bool) -> tuple[list[Row], bytes]:
    """Rows, and a file with them."""
    rows = [row_of(random) for _ in range(4)]
    columns = [pa.array(column, field.type) for column, field in zip(zip(*rows, strict=True), SCHEMA, strict=True)]
    table = pa.Table.from_arrays(columns, schema=SCHEMA)
    stream = io.BytesIO()
    options: dict[str, Any] = {
        "compression": random.choice(("none", "snappy", "zstd")), "use_dictionary": random.random() < 0.5,
        "data_page_version": random.choice(("1.0", "2.0")), "row_group_size": random.choice((1, 100)),
    }  # fmt: skip
    pq.write_table(_of_other_types(table, random) if other_types else table, stream, **options)
    return rows, stream.getvalue()


def _of_other_types(table: pa.Table, random: Random) -> pa.Table:
    """The same values, as another program would have written them."""
    others = {"n": (pa.string(), pa.float64()), "word": (pa.large_string(), pa.binary()), "x": (pa.string(), pa.float32()),
              "on": (pa.string(), pa.int8()), "at": (pa.string(), pa.int64(), pa.timestamp("s"), pa.date32())}  # fmt: skip
    kinds = [random.choice((field.type, *others[field.name])) for field in SCHEMA]
    return pa.table({name: table[name].cast(kind, safe=False) for name, kind in zip(SCHEMA.names, kinds, strict=True)})


class Logs:
    """Files of the World Cup log, packed or not: wholly read if every record can be one, else refused at the first bad one."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.number = folder, count()

    def round(self, random: Random) -> int:
        records = np.zeros(random.randrange(1, 40), RECORD)
        records["timestamp"] = 898_000_000 + np.array([random.randrange(5) for _ in records])
        records["server"] = random.choice(SERVERS)
        records["size"] = random.choice((0, 17, 0xFFFFFFFF))
        for _ in range(_MUTANTS):
            content = records.tobytes()
            packed = random.random() < 0.3
            content = mutant(gzip.compress(content, 1), random) if packed else mutant(content, random)
            path = self.folder / f"wc_day{next(self.number)}_1"
            path.write_bytes(content)
            try:
                self.check(path, None if packed or content[:2] == b"\x1f\x8b" else len(content))
            finally:
                path.unlink()
        return _MUTANTS

    def check(self, path: Path, size: int | None) -> None:
        try:
            log = open_log(path, 2, batch_seconds=1e6)
        except BadInput as error:
            must(str(path) in error.place, error)
            return
        rows = sum(log.read(task, batch).num_rows for task in range(2) for batch in range(log.batches))
        assert rows == sum(file.records for file in log.files)
        assert size is None or rows * RECORD.itemsize == size, f"{rows} rows of {size} bytes"


@contextmanager
def csv_records(folder: Path) -> Iterator[Texts]:
    yield Texts(folder, "csv")


@contextmanager
def json_records(folder: Path) -> Iterator[Texts]:
    yield Texts(folder, "jsonl")


@contextmanager
def parquet_records(folder: Path) -> Iterator[Parquet]:
    yield Parquet(folder)


@contextmanager
def log_records(folder: Path) -> Iterator[Logs]:
    yield Logs(folder)
