"""What a drill must come to: every batch run in this process, without Spark and without failures."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from ppa_core.drills.drill import Setup
from ppa_core.drills.local import Local
from ppa_core.drills.report import Seen
from ppa_core.driver.jobs import JobResult
from ppa_core.driver.publisher import joined
from ppa_core.engine.run_events import OutputPublished
from ppa_core.pipeline.definition import Pipeline
from ppa_core.pipeline.tables import digest, encode
from ppa_core.queries import load_query


def without_spark(setup: Setup) -> Seen:
    """The outputs of a drill's input."""
    pipeline, seen = load_query(setup.query, **setup.options).pipeline, Seen()
    assert setup.settings.batches is not None
    for batch, table in enumerate(tables(pipeline, setup.settings.batches)):
        output = OutputPublished(0.0, batch, 1, "accurate", 1.0, (), table.num_rows, digest(encode(table)))
        seen.events.append(output)
    return seen


def tables(pipeline: Pipeline, batches: int) -> Iterator[pa.Table]:
    """The output of each batch; only the state of the last one is kept."""
    local = Local(pipeline)
    for batch in range(batches):
        yield joined(pipeline, JobResult([local.run(local.order(batch))]), batch)
        for store in local.memory.values():
            store.forget_before(batch)
