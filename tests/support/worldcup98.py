"""World Cup log files for tests."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from ppa_core.pipeline.sources.worldcup98 import RECORD, SCHEMA, UNKNOWN_SIZE


def from_table(table: pa.Table) -> bytes:
    """The bytes of the log for a table of `SCHEMA`: the reverse of `to_table`."""
    records = np.zeros(table.num_rows, RECORD)
    for name in SCHEMA.names:
        column = table[name].fill_null(UNKNOWN_SIZE) if name == "size" else table[name]
        records[name] = column.to_numpy()
    return records.tobytes()
