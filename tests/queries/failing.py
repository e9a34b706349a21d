"""Runs a query's batches in this process, whole and with tasks missing from some batch on."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from statistics import fmean

import pyarrow as pa

from ppa_core.drills.local import Local
from ppa_core.fidelity import compile_topology
from ppa_core.queries import Query
from tests.support.local import rates


@dataclass
class Trial:
    """Runs `query` without failure up to batch `until`; then `without` runs it again from any batch, less some tasks."""

    query: Query
    until: int
    outputs: dict[int, pa.Table] = field(default_factory=dict)
    rates: dict[int, dict[str, float]] = field(default_factory=dict)
    attempts: int = 1

    def __post_init__(self) -> None:
        self.local = Local(self.query.pipeline, partitions=2)
        for batch in range(self.until):
            result = self.local.run(self.local.order(batch))
            self.outputs[batch] = self._sink(result.sinks)
            self.rates[batch] = rates(result, self.query.pipeline.batch_seconds)

    def without(self, lost: Collection[str], since: int) -> dict[int, pa.Table]:
        """The tentative outputs from batch `since` on: what is lost is lost with its state, the others go on from theirs."""
        self.attempts += 1
        alive = [task for task in self.local.tasks if task not in lost]
        found = {}
        for batch in range(since, self.until):
            before = 1 if batch == since else self.attempts
            result = self.local.run(self.local.order(batch, self.attempts, tasks=alive, before=before))
            found[batch] = self._sink(result.sinks)
        return found

    def accuracy(self, lost: Collection[str], since: int) -> float:
        """The mean over the batches in which there is something to compare."""
        tentative = self.without(lost, since)
        found = [self.query.accuracy(table, self.outputs[batch]) for batch, table in tentative.items()]
        return fmean(share for share in found if share is not None)

    def fidelity(self, lost: Collection[str]) -> float:
        """OF by the declared rates."""
        compiled = compile_topology(topology := self.query.pipeline.topology())
        return compiled.value(compiled.mask({i for i, task in enumerate(topology.tasks) if task not in lost}))

    def _sink(self, sinks: list[tuple[str, int, pa.Table]]) -> pa.Table:
        schema = self.query.pipeline.operators[-1].schema
        return pa.concat_tables([schema.empty_table(), *(table for _, _, table in sorted(sinks, key=lambda sink: sink[0]))])
