"""Files that are small and take much, and a pipeline over a directory that anybody may put them into."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ppa_core.pipeline.definition import Pipeline
from ppa_core.pipeline.operators import count, tumbling
from ppa_core.pipeline.sources.files import Files, open_files

SCHEMA = pa.schema({"word": pa.string(), "n": pa.int64()})


MEASURED = """
import json, pickle, resource, sys
source, batches = pickle.load(sys.stdin.buffer)
found = []
for batch in range(batches):
    source.seal(batch)
    found.append(sorted(n for task in range(source.tasks) for n in source.read(task, batch)["n"].to_pylist()))
with open("/proc/self/status") as file:  # getrusage would count what pytest had before this program began
    own = next(int(line.split()[1]) for line in file if line.startswith("VmHWM"))
from ppa_core.pipeline.sources import reading
for reader in reading._current:
    reader.end()
theirs = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
print(json.dumps({"numbers": found, "own": own / 1024, "reader": theirs / 1024}))
"""
"""A driver that seals and reads batches of a source, and says what it found and what it took."""


def dictionary_bomb(path: Path, value_bytes: int = 1 << 20, rows: int = 10_000) -> Path:
    """A Parquet file of a few hundred bytes: one long text in its dictionary, and every row says so. By default 10 GB."""
    words = pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, np.int32)), pa.array(["x" * value_bytes]))
    table = pa.table({"word": words, "n": pa.array(np.zeros(rows, np.int64))})
    draft = path.with_name(f".{path.name}.part")
    pq.write_table(table, draft, compression="zstd", store_schema=False, write_statistics=False)
    assert draft.stat().st_size < 2000
    return draft.rename(path)


def wide_csv(path: Path, columns: int = 200_000) -> Path:
    draft = path.with_name(f".{path.name}.part")
    header = ",".join(["word", "n", *(f"c{i}" for i in range(columns - 2))])
    draft.write_text(f"{header}\nw1,1{',' * (columns - 2)}\n")
    return draft.rename(path)


def good(path: Path, numbers: Iterable[int]) -> Path:
    """A file as it should be; it arrives complete."""
    rows = [{"word": f"w{n}", "n": n} for n in numbers]
    draft = path.with_name(f".{path.name}.part")
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows, SCHEMA), draft)
    else:
        draft.write_text("word,n\n" + "".join(f"{row['word']},{row['n']}\n" for row in rows))
    return draft.rename(path)


def pipeline(folder: str) -> Pipeline:
    """Word counts of every batch, over the Parquet files in a directory."""
    source = open_files(folder, "parquet", 2, SCHEMA)
    each_batch = count(by="word", window=tumbling(1, "batches"))
    return Pipeline("words").source("in", 2, source).operator("counts", 2, {"in": ("full", "word")}, each_batch)


def numbers(source: Files, batch: int) -> list[int]:
    return sorted(n for task in range(source.tasks) for n in source.read(task, batch)["n"].to_pylist())


def reasons(source: Files, batch: int) -> dict[str, str]:
    """Why what was refused in a batch was, by the name of the file."""
    return {entry.file: entry.reason for entry in source.refused(batch).first}
