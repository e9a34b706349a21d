"""PPA: the work on a test bed of three hosts, each with a Spark worker and nodes; one host fails with all of it."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack

from benchmarks.peers import work
from benchmarks.peers.measure import FAIL_AT, Seen
from benchmarks.peers.work import Row
from ppa_core.drills.drill import Failing
from ppa_core.drills.failures import PlannedFailure
from ppa_core.drills.report import Seen as Events
from ppa_core.driver.config import Config
from ppa_core.driver.host import new_run_id
from ppa_core.driver.output_log import OutputLog
from ppa_core.driver.records import Settings
from ppa_core.engine.run_events import OutputPublished
from ppa_core.errors import Unavailable
from ppa_core.nodes.embedded import launch
from ppa_core.planners import plan
from ppa_core.process.testbed import launch_testbed
from ppa_core.safety.owned import temporary

BED = (3, 3)
BUDGET = work.TASKS // 2
AFTER = 25
"""Batches after the failure."""
FIRST, ACCURATE = "first, may be tentative", "accurate"
QUERY = f"{work.__file__}:windows"


def run(how: str, say: Callable[[str], None]) -> tuple[dict[str, Seen], float]:
    """A run in which a host is killed or hangs; its results, as they first came and as they are in the end."""
    chosen = plan(work.windows().topology(), BUDGET)
    with temporary("ppa-peers-") as folder, ExitStack() as stack:
        try:
            bed = stack.enter_context(launch_testbed(*BED))
            failure = PlannedFailure("host:h2", FAIL_AT - 1, how)
        except Unavailable as error:
            say(f"no test bed, so only a node fails and no executor: {error}")
            bed, failure = None, PlannedFailure("node:n1", FAIL_AT - 1, how)
        places = bed or stack.enter_context(launch(4, 4, 2, 1024))
        failing = Failing(places, [failure], stack, lambda event: None)
        config = Config(
            QUERY, {}, failing.nodes, chosen.tasks, Settings(batches=FAIL_AT + AFTER), new_run_id(), folder / "run",
            bed.master if bed else None, BUDGET,
        )  # fmt: skip
        config.folder.mkdir()
        failing.drive(config)
        return outputs(failing.seen, OutputLog(config.folder / "outputs")), time.time()


def outputs(events: Events, log: OutputLog) -> dict[str, Seen]:
    """The results as they first came, and as they are in the end. Batch 0 is the window that ends at second 1.

    An output without rows, the last resort at a deadline, counts as none: it would end a silence in name only.
    """
    timed = [output for output in events.first_outputs() if output.delay is not None]
    zero = timed[-1].at - (timed[-1].delay or 0.0) - (timed[-1].batch + 1)
    published = [output for output in events.outputs() if output.rows]
    first = {output.batch: output for output in reversed(published)}
    final = {output.batch: output for output in published if output.status != "tentative"}
    return {name: _seen(zero, found, log, events) for name, found in ((FIRST, first), (ACCURATE, final))}


def _seen(zero: float, found: dict[int, OutputPublished], log: OutputLog, events: Events) -> Seen:
    seen = Seen(zero)
    for output in found.values():
        table = log.read(output.batch, output.revision)
        columns = (table[name].to_pylist() for name in ("key", "count", "total"))
        seen.rows += [Row(output.at, output.batch + 1, *row) for row in zip(*columns, strict=True)]
        seen.appeared[output.batch + 1] = output.at
    seen.failed_at, seen.last = events.failed_at[0], FAIL_AT
    return seen
