"""A host with real nodes and no Spark, whose batches are run by the test."""

from __future__ import annotations

from typing import Any, cast

from ppa_core.driver.controls import Controls
from ppa_core.driver.host import Host
from ppa_core.driver.jobs import JobResult
from ppa_core.driver.records import PublishedOutput, Settings
from ppa_core.engine.events import BatchReady, RunBatch
from ppa_core.engine.intent import PlanRequest
from ppa_core.engine.run_events import RunEvent
from ppa_core.queries.tree import tree

PIPELINE = tree(tasks=(4, 2, 1))
INNER = frozenset({"O1.1", "O1.2", "O2.1"})


class World:
    """A host whose batches are run here: every task of every order did what it was told to."""

    def __init__(self, nodes: Any, plan: frozenset[str] = frozenset(), run_id: str = "parts", **settings: Any) -> None:
        self.seen: list[PublishedOutput | RunEvent] = []
        cluster = tuple(nodes.cluster.nodes)
        self.host = Host(cast(Any, None), PIPELINE, cluster, plan, Settings(**settings), self.seen.append, run_id)
        self.host.decisions.start_replay = lambda replay: None
        self.host.decisions.cancel = lambda attempt: None
        self.host.resume()
        self.host.started.set()
        self.controls = Controls(self.host, PlanRequest(0, "greedy"))

    def begin(self) -> RunBatch:
        """Start a batch: its job is in flight until `end`."""
        self.host.decisions.handle(BatchReady(self.host.machine.head + 1, patient=False))
        run = self.host.decisions.take_run()
        assert run is not None
        return run

    def end(self, run: RunBatch) -> None:
        assert self.host.decisions.batch_done(run, JobResult())

    def batch(self) -> None:
        self.end(self.begin())

    def told(self, kind: type) -> list[Any]:
        self.host.outbox.flush()
        return [event for event in self.seen if isinstance(event, kind)]

    def close(self) -> None:
        self.host.outbox.flush(5.0)
        for store in self.host.stores.values():
            store.close()
