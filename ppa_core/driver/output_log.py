"""The published outputs of a run as Arrow files. Each is written under a temporary name first, so every file is complete."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from ppa_core.driver.records import PublishedOutput
from ppa_core.engine.run_events import OutputPublished
from ppa_core.pipeline.tables import decode, digest, encode
from ppa_core.safety.owned import written_whole


@dataclass(frozen=True)
class OutputLog:
    """The outputs of the last `keep` batches, or all. Only one thread may write."""

    folder: Path
    keep: int | None = None

    def write(self, output: PublishedOutput) -> OutputPublished:
        """Write an output's table; the event that reports it."""
        self.folder.mkdir(parents=True, exist_ok=True)
        content = encode(output.table)
        with written_whole(self.path(output.batch, output.revision)) as file:
            file.write(content)
        if self.keep is not None:
            for old in self.folder.glob(f"{output.batch - self.keep:08d}-[0-9]*.arrow"):
                old.unlink(missing_ok=True)
        return OutputPublished(
            output.at, output.batch, output.revision, output.status, output.of, output.missing, output.table.num_rows,  # type: ignore[arg-type]
            digest(content), output.delay, cause=output.cause,
        )  # fmt: skip

    def read(self, batch: int, revision: int) -> pa.Table:
        return decode(self.path(batch, revision).read_bytes())

    def path(self, batch: int, revision: int) -> Path:
        return self.folder / f"{batch:08d}-{revision}.arrow"
