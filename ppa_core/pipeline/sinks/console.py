"""Records on standard output, for people: one line per record, and its first tuples."""

from __future__ import annotations

import json
import sys
from typing import Any, TextIO

from ppa_core.pipeline.sinks.records import Published, tuples


class Console:
    """Prints records; tuples are printed as JSON, which escapes control characters."""

    def __init__(self, most_rows: int = 5, out: TextIO | None = None) -> None:
        self.most_rows, self.out = most_rows, out

    def __call__(self, record: Published) -> None:
        out: Any = self.out or sys.stdout
        rows = record.table.num_rows
        missing = f", missing {', '.join(record.missing)}" if record.missing else ""
        lines = [
            f"batch {record.batch} revision {record.revision}: {record.status}, OF {record.of:.4f}{missing}, {rows:,} rows"
        ]
        lines += [f"  {json.dumps(row)}" for row in tuples(record.table.slice(0, self.most_rows))]
        if rows > self.most_rows:
            lines.append(f"  … {rows - self.most_rows:,} more")
        out.write("\n".join(lines) + "\n")
        out.flush()

    def close(self) -> None:
        """Standard output stays open."""
