"""Ingest: the pipeline's sources as a Spark streaming data source, one batch per trigger, at the batch interval."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from ppa_core.driver.jobs import TASK, columns_of, source_tasks
from ppa_core.worker.layout import Layout

_log = logging.getLogger(__name__)


def stream_schema(layout: Layout) -> pa.Schema:
    """The columns of all sources side by side; a row has values in those of its own source."""
    fields = [pa.field(TASK, pa.int32())]
    for operator in layout.pipeline.operators:
        if operator.source is not None:
            names = columns_of(layout, operator.name)
            fields += [pa.field(name, column.type) for name, column in zip(names, operator.schema, strict=True)]
    return pa.schema(fields)


CATCH_UP = 60
"""A driver that is restarted catches up with at most this many batches; after a longer time the schedule begins anew."""


class Slice(InputPartition):
    """The sources of one physical partition in one batch."""

    def __init__(self, partition: int, batch: int) -> None:
        super().__init__(partition)
        self.partition = partition
        self.batch = batch


class BatchReader(DataSourceStreamReader):
    """Batch b is due b intervals after the schedule began; late batches are read as fast as possible.

    The schedule begins when the first batch is done: in that batch, Spark warms up. The driver learns it from the offsets, and
    saves it, so that one that is restarted soon continues it (`began`), and catches up.
    """

    def __init__(self, layout: Layout, interval: float, batches: int | None, first: int = 0, began: float = 0.0) -> None:
        self.layout = layout
        self.interval = interval
        self.batches = batches
        self.first, self.began = first, began
        self.asked = False

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        return {"batch": self.first, "began": 0.0}

    def latestOffset(self, start: dict[str, Any], limit: Any = None) -> dict[str, Any]:  # noqa: N802
        now, following = time.time(), int(start["batch"])
        if not self.asked:
            self.asked = True
            overdue = now - (self.began + following * self.interval)
            self.began = self.began if -self.interval <= overdue < CATCH_UP * self.interval else 0.0
        elif not self.began:
            self.began = now - (following - 1) * self.interval
        ended = self.batches is not None and following >= self.batches
        due = now >= self.began + following * self.interval
        return {"batch": following + 1, "began": self.began} if due and not ended else start

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[Slice]:
        return [Slice(p, batch) for batch in range(start["batch"], end["batch"]) for p in range(self.layout.partitions)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Slice)
        schema, first = stream_schema(self.layout), source_tasks(self.layout)
        for name, number in first.items():
            source = self.layout.pipeline.by_name[name].source
            assert source is not None
            for task in self.layout.tasks(name, partition.partition):
                try:
                    table = source.read(task, partition.batch)
                except Exception:  # noqa: BLE001 - Spark would retry; the stage reads it again and reports the error
                    about = {"batch": partition.batch}
                    _log.warning("%s could not be read; trying again", f"{name}.{task}", exc_info=True, extra=about)
                    yield _unread(schema, number + task)
                    continue
                columns: dict[str, Any] = dict(zip(columns_of(self.layout, name), table.columns, strict=True))
                rows = table.num_rows
                columns[TASK] = pa.array(np.full(rows, number + task, np.int32))
                filled = [columns[field.name] if field.name in columns else pa.nulls(rows, field.type) for field in schema]
                yield from pa.table(filled, schema=schema).combine_chunks().to_batches()


def _unread(schema: pa.Schema, task: int) -> pa.RecordBatch:
    """A marker row: the tuples of this source task could not be read here. Its task number t is written as -1 - t."""
    columns = [pa.array([-1 - task], pa.int32()) if field.name == TASK else pa.nulls(1, field.type) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def schedule(offsets: Path, batch: int) -> float | None:
    """When the schedule of a run began, from Spark's offsets of a batch; None if that is not known (yet)."""
    with suppress(OSError):
        found = re.search(r'"began":\s*([0-9.e+]+)', (offsets / "offsets" / str(batch)).read_text(encoding="utf-8"))
        return float(found[1]) or None if found else None
    return None


class EmptyReader(BatchReader):
    """Batches without rows, to warm up: nothing is read."""

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        yield from stream_schema(self.layout).empty_table().to_batches()


def data_source(layout: Layout, interval: float, batches: int | None) -> type[DataSource]:
    """The data source of a pipeline, as a class that Spark pickles together with the pipeline."""

    class PipelineSource(DataSource):
        @classmethod
        def name(cls) -> str:
            return "ppa"

        def schema(self) -> StructType:
            return from_arrow_schema(stream_schema(layout))

        def streamReader(self, schema: StructType) -> BatchReader:  # noqa: N802
            if "empty" in self.options:
                return EmptyReader(layout, 0.0, None)
            return BatchReader(layout, interval, batches, int(self.options["first"]), float(self.options["began"]))

    return PipelineSource
