"""The publisher: puts the outputs and events of a run into the outbox, in order."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from ppa_core.driver.deadlines import Deadlines
from ppa_core.driver.jobs import JobResult
from ppa_core.driver.outbox import Outbox
from ppa_core.driver.records import PublishedOutput, Watch
from ppa_core.engine import run_events
from ppa_core.engine.event_fields import TaskFigures
from ppa_core.engine.events import Emit
from ppa_core.engine.machine import Machine
from ppa_core.engine.meter import Meter
from ppa_core.engine.predictions import fidelity
from ppa_core.engine.run_events import RunEvent
from ppa_core.engine.standing import MeasuredRates, Standing
from ppa_core.pipeline.definition import Pipeline
from ppa_core.pipeline.sinks.records import CORRECTION
from ppa_core.placement.place import Placement
from ppa_core.topology import Topology

RATES_EVERY = 10
"""The rates are checked, and published if they have changed, every this many batches."""
MOST_RATES = 20_000
"""Maximum number of substreams; for a larger topology, rates are not published, and predictions use the declared ones."""


@dataclass
class Publisher:
    """Reports to `watch`, through the outbox. The placement, the standing and the rates are reported only if they have
    changed."""

    pipeline: Pipeline
    machine: Machine
    outbox: Outbox
    watch: Watch
    deadlines: Deadlines
    epoch: int = 1
    meter: Meter = field(init=False)
    _tables: dict[tuple[int, int], pa.Table] = field(default_factory=dict)
    _placed: Placement | None = None
    _standing: Standing | None = None
    _rates: MeasuredRates | None = None

    def __post_init__(self) -> None:
        self.meter = Meter(self.pipeline)

    def event(self, event: RunEvent) -> None:
        """Report that something happened."""
        self.outbox.put(lambda: self.watch(event), publishes=False)

    # ------------------------------------------------------------------------------------------------------------ outputs

    def keep_output(self, result: JobResult, batch: int, attempt: int) -> None:
        """Keep the sinks' output of a batch, as computed by an attempt, until it is emitted."""
        self._tables[batch, attempt] = joined(self.pipeline, result, batch)

    def emit(self, emit: Emit) -> None:
        """Publish an output that was kept, or an empty one."""
        kept = self._tables.pop((emit.batch, emit.attempt)) if emit.attempt else joined(self.pipeline, JobResult(), emit.batch)
        revision = CORRECTION if emit.status == "correction" else 1
        about = (emit.batch, revision, emit.status, self.fidelity(emit.missing), tuple(sorted(emit.missing)), kept)

        def publish() -> None:
            now = time.time()
            delay = now - self.deadlines.due(emit.batch) if self.deadlines.known and revision == 1 else None
            self.watch(PublishedOutput(*about, now, emit.cause, delay, self.epoch))
            self.deadlines.published(emit.batch)

        self.outbox.put(publish)

    # ----------------------------------------------------------------------------------------------- what the machine knows

    def publish_changes(self) -> None:
        """Report where tasks and copies are, if that has changed."""
        machine, now = self.machine, time.time()
        if machine.placement != self._placed:
            self._placed = placed = machine.placement
            places = (placed.primaries, placed.replicas, placed.checkpoints)
            self.event(run_events.Placed(now, machine.head, *places, cause=machine.cause))
        standing = machine.standing()
        if standing != self._standing:
            self._standing = standing
            self.event(run_events.StandingChanged(now, machine.head, standing, cause=machine.cause))

    def publish_rates(self, batch: int) -> None:
        """Report the measured rates every RATES_EVERY batches, if they have changed."""
        if batch % RATES_EVERY:
            return
        rates = MeasuredRates(batch, self.meter.rates())
        if 0 < len(rates.tuples) <= MOST_RATES and rates.differs(self._rates):
            self._rates = rates
            self.event(run_events.RatesMeasured(time.time(), batch, rates))

    def fidelity(self, missing: frozenset[str]) -> float:
        """OF with these tasks missing, with the measured rates."""
        return fidelity(self.measured_topology(), missing) if missing else 1.0

    def measured_topology(self) -> Topology:
        """The topology with the measured rates."""
        return self.pipeline.topology(self.meter.rates())


def joined(pipeline: Pipeline, result: JobResult, batch: int) -> pa.Table:
    """The sinks' output of a batch as one table, with a column for the task; empty if every sink is missing."""
    sinks = [operator for operator in pipeline.operators if not pipeline.outputs[operator.name]]
    tables = [operator.schema.empty_table().append_column("_sink", pa.array([], pa.string())) for operator in sinks]
    for task, table in result.sinks(batch):
        tables.append(table.append_column("_sink", pa.array([task] * table.num_rows, pa.string())))
    return pa.concat_tables(tables, promote_options="permissive").combine_chunks()


def task_figures(result: JobResult) -> TaskFigures:
    """The figures of a job's tasks, as columns."""
    stats = [stats for part in result.parts for stats in part.stats]

    def column(name: str) -> Sequence[object]:
        return tuple(getattr(one, name) for one in stats)

    return TaskFigures(*map(column, TaskFigures.__struct_fields__))  # type: ignore[arg-type]
