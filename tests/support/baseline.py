"""What a drill must come to: every batch run in this process, by no Spark and with no failure."""

from __future__ import annotations

from ppa_core.drills.drill import Setup
from ppa_core.drills.report import Seen
from ppa_core.driver.jobs import JobResult
from ppa_core.driver.publisher import joined
from ppa_core.engine.run_events import OutputPublished
from ppa_core.pipeline.tables import digest, encode
from ppa_core.queries import load_query
from tests.support.local import Local


def without_spark(setup: Setup) -> Seen:
    pipeline, seen = load_query(setup.query, **setup.options).pipeline, Seen()
    local = Local(pipeline)
    assert setup.settings.batches is not None
    for batch in range(setup.settings.batches):
        table = joined(pipeline, JobResult([local.run(local.order(batch))]), batch)
        output = OutputPublished(0.0, batch, 1, "accurate", 1.0, (), table.num_rows, digest(encode(table)))
        seen.events.append(output)
    return seen
