"""Encoding of tables as bytes, and their digest."""

from __future__ import annotations

from hashlib import blake2b
from typing import cast

import numpy as np
import pyarrow as pa


def encode(table: pa.Table) -> bytes:
    """A table as an Arrow IPC stream; the same bytes for tables with the same columns and values, however they are chunked."""
    columns = [_canonical(column.combine_chunks()) for column in table.columns]
    schema = pa.schema([field.remove_metadata() for field in table.schema])
    stream = pa.BufferOutputStream()
    with pa.ipc.new_stream(stream, schema) as writer:
        writer.write_table(pa.Table.from_arrays(columns, schema=schema))
    return cast(bytes, stream.getvalue().to_pybytes())


def _canonical(column: pa.Array) -> pa.Array:
    """The column without slice offsets and without values under its nulls, which would change the bytes."""
    if pa.types.is_primitive(column.type) and not pa.types.is_boolean(column.type) and not column.null_count:
        return column
    try:
        return column.take(pa.array(np.arange(len(column))))
    except pa.ArrowNotImplementedError:  # string views
        return pa.array(column.to_pylist(), column.type)


def decode(content: bytes) -> pa.Table:
    """The table encoded by `encode`, without copying the bytes."""
    with pa.ipc.open_stream(pa.py_buffer(content)) as reader:
        return reader.read_all()


def digest(content: bytes | memoryview) -> str:
    """The digest by which a segment is named."""
    return blake2b(content, digest_size=16).hexdigest()
