"""Runs one step batch after batch, its state stored as bytes in between; and random streams for it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from ppa_core.pipeline.definition import Context, Step
from ppa_core.pipeline.operators import Window
from ppa_core.pipeline.tables import decode, digest, encode

SCHEMA = pa.schema({"k": pa.string(), "j": pa.int32(), "n": pa.int64(), "x": pa.float64()})
Batches = Sequence[Sequence[pa.Table]]
"""For each batch the table of each input."""


class Stored(Mapping[str, pa.Table]):
    """A state as a worker that knows nothing yet reads it."""

    def __init__(self, segments: Mapping[str, bytes]) -> None:
        self.segments = dict(segments)

    def __getitem__(self, name: str) -> pa.Table:
        return decode(self.segments[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self.segments)

    def __len__(self) -> int:
        return len(self.segments)


@dataclass
class Ran:
    """What came of each batch: the output, and the version: manifest and output as bytes."""

    outputs: dict[int, pa.Table] = field(default_factory=dict)
    versions: dict[int, tuple[dict[str, str], bytes]] = field(default_factory=dict)
    written: dict[int, list[str]] = field(default_factory=dict)

    def since(self, batch: int) -> dict[int, tuple[dict[str, str], bytes]]:
        return {b: version for b, version in self.versions.items() if b >= batch}


def run(step: Step, batches: Batches, start: int = 0, batch_seconds: float = 1.0) -> Ran:
    """Run a step from an empty state, beginning with batch `start`."""
    ran, segments = Ran(), dict[str, bytes]()
    for batch in range(start, len(batches)):
        result = step(Context("o", 0, batch, batch_seconds), Stored(segments), batches[batch])
        segments = {name: data for name, data in segments.items() if name not in result.drop}
        segments |= {name: encode(table) for name, table in result.add.items()}
        ran.outputs[batch] = result.output
        ran.versions[batch] = {name: digest(data) for name, data in segments.items()}, encode(result.output)
        ran.written[batch] = list(result.add)
    return ran


def in_pieces(batches: Batches) -> Batches:
    """The same tables, each column in chunks of two rows."""
    return [
        [pa.concat_tables([t.schema.empty_table(), *(t.slice(i, 2) for i in range(0, len(t), 2))]) for t in tables]
        for tables in batches
    ]


ROWS = st.tuples(
    st.sampled_from(["a", "b", "c", "", None]),
    st.sampled_from([0, 1, None]),
    st.one_of(st.none(), st.integers(-5, 5), st.integers(-(2**40), 2**40)),
    st.one_of(st.none(), st.floats(-1e6, 1e6, width=32), st.just(float("nan"))),
)
TABLES = st.lists(ROWS, max_size=7).map(
    lambda rows: pa.table(dict(zip(SCHEMA.names, columns(rows), strict=True)), schema=SCHEMA)
)
STREAMS = st.lists(TABLES.map(lambda table: [table]), min_size=1, max_size=14)


def columns(rows: Sequence[tuple[object, ...]]) -> list[list[object]]:
    return [[row[i] for row in rows] for i in range(len(SCHEMA))]


@st.composite
def windows(draw: st.DrawFn, slices: int = 9) -> Window:
    """Tumbling and sliding ones, of slices of up to three batches."""
    every = draw(st.integers(1, 3))
    return Window(every * draw(st.integers(1, slices)), every)


def random_table(seed: tuple[int, ...], rows: int = 8) -> pa.Table:
    """Like those of `TABLES`, and made faster; about every third is empty."""
    random = np.random.default_rng(seed)
    size = random.integers(0, rows) * (random.random() < 0.7)
    values = [
        random.choice(["a", "b", "c", ""], size),
        random.integers(0, 2, size),
        random.integers(-(2**40), 2**40, size) >> random.integers(0, 39, size),
        random.normal(0, 10.0 ** random.integers(0, 9, size)),
    ]
    arrays = [pa.array(column, mask=random.random(size) < 0.2).cast(f.type) for column, f in zip(values, SCHEMA, strict=True)]
    return pa.Table.from_arrays(arrays, schema=SCHEMA)


def content(batches: Batches, window: Window, batch: int, number: int = 0) -> list[dict[str, object]] | None:
    """The tuples of an input in the window that ends with a batch, None if none ends."""
    assert window.every is not None
    if (batch + 1) % window.every:
        return None
    first = max(0, batch + 1 - int(window.length))
    return [row for tables in batches[first : batch + 1] for row in tables[number].to_pylist()]
