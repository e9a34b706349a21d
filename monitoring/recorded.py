"""A recorded run: the events of a pipeline that loses a rack and recovers. For tests and for trying out the monitor.

`python -m monitoring.recorded --directory FOLDER` writes one into the monitor of that folder. It does not start Spark or nodes.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from monitoring.collector import Collector
from monitoring.connection import URL_VARIABLE, Address
from monitoring.inputs import ReadTable
from monitoring.records import PHASES, NodeInfo, PipelineInfo, RunKey
from monitoring.server import start
from monitoring.task_records import inner_tasks
from monitoring.writer import Writer
from ppa_core.engine import run_events as e
from ppa_core.engine.event_fields import TaskFigures
from ppa_core.engine.run_events import RunEvent
from ppa_core.engine.standing import MeasuredRates, Standing
from ppa_core.errors import RequestError
from ppa_core.fidelity import compile_topology
from ppa_core.placement.nodes import Node
from ppa_core.placement.place import Placement, change_plan, place, rehome
from ppa_core.planners import plan
from ppa_core.queries.tree import tree
from ppa_core.settings import current
from ppa_core.terminal import program
from ppa_core.topology import Topology, derive, to_dict

CHECKPOINT_EVERY = 15


@dataclass(frozen=True)
class Scenario:
    """A run of `batches` batches. After batch `fail` a rack is lost; the next `tentative` batches are tentative."""

    name: str = "tree"
    run: str = "recorded"
    begin: float = 1_763_251_200.0
    batches: int = 120
    fail: int = 60
    tentative: int = 12
    budget: int = 5
    rack: str = "r1"


def accuracy(tentative: pa.Table, accurate: pa.Table) -> float:
    return tentative.num_rows / accurate.num_rows if accurate.num_rows else 1.0


def table_of(event: RunEvent) -> ReadTable | None:
    """Reads the output of an event: a table with the right number of rows."""
    return partial(_table, event.rows) if isinstance(event, e.OutputPublished) else None


def _table(rows: int) -> pa.Table:
    return pa.table({"row": np.arange(rows)})


class RecordedRun:
    """The events of a scenario, in order, and the run's `info`."""

    def __init__(self, scenario: Scenario | None = None) -> None:
        self.scenario = scenario or Scenario()
        self.topology: Topology = tree().topology()
        self.tasks = inner_tasks(self.topology)
        self.nodes = tuple(Node(f"n{i + 1}", f"r{i % 2 + 1}", "primary", f"redis://host:{7000 + i}") for i in range(4))
        self.nodes += tuple(Node(f"s{i + 1}", f"s{i % 2 + 1}", "standby", f"redis://host:{7004 + i}") for i in range(4))
        chosen = plan(self.topology, self.scenario.budget, "greedy")
        self.placement: Placement = place(self.tasks, self.nodes, chosen.tasks)
        self.info = PipelineInfo(
            self.scenario.name, self.scenario.run, "tree", to_dict(self.topology),
            tuple(NodeInfo(node.name, node.rack, node.role) for node in self.nodes), self.scenario.begin, 1.0, "greedy", "of",
            self.scenario.budget, tuple(chosen.tasks), chosen.of,
        )  # fmt: skip
        self.missing: tuple[str, ...] = ()
        self.lost: list[str] = []
        self.random = np.random.default_rng(7)

    @property
    def cause(self) -> str:
        """The id of the incident."""
        return f"{int(1000 * (self.scenario.begin + self.scenario.fail)):x}"

    def events(self, first: int = 0) -> Iterator[RunEvent]:
        """The events from batch `first` on."""
        scenario, end = self.scenario, self.scenario.fail + self.scenario.tentative
        yield self._placed(scenario.begin, -1)
        for batch in range(first, scenario.batches):
            at = scenario.begin + batch + 1
            if batch == scenario.fail + 1:
                yield from self._fail(at - 0.7, batch - 1)
            if batch == end - 3 and self.missing:
                yield from self._corrections(at - 0.5, scenario.fail + 1, batch - 1)
                yield e.Recovered(at - 0.4, batch - 1, self.missing, cause=self.cause)
                yield e.ReplayStarted(at - 0.3, batch, self.missing, batch, cause=self.cause)
            if batch == end + 1 and self.missing:
                yield from self._corrections(at - 0.5, end - 3, end)
                self.missing = ()
            if batch == end + 15:
                yield from self._node_back(at - 0.6, batch)
            if batch == end + 25:
                yield from self._new_plan(at - 0.6, batch)
            yield from self._batch(batch, at)

    def records(self) -> Iterator[Any]:
        """The records that the collector makes of the events."""
        collector = Collector(self.info, accuracy)
        yield from collector.begin(self.scenario.begin)
        for event in self.events():
            yield from collector.handle(event, table_of(event))
        yield from collector.end()

    def _placed(self, at: float, batch: int, cause: str = "") -> RunEvent:
        where = self.placement
        return e.Placed(at, batch, dict(where.primaries), dict(where.replicas), dict(where.checkpoints), cause=cause)

    def _standing(self, at: float, batch: int) -> RunEvent:
        """Primaries and replicas have the newest version of each task that is not missing; checkpoints are older."""
        where, nodes = self.placement, [node.name for node in self.nodes]
        number = {name: i for i, name in enumerate(nodes)}
        holders, copies = [], []
        for i, task in enumerate(self.tasks):
            held = {where.primaries[task], where.replicas.get(task, where.primaries[task])} - set(self.lost)
            age = (batch + i) % CHECKPOINT_EVERY
            holders.append(() if task in self.missing else tuple(sorted(number[node] for node in held)))
            copies.append(
                (*(item for node in holders[-1] for item in (node, batch)), number[where.checkpoints[task]], batch - age)
            )
        known = Standing(
            batch, tuple(nodes), self.tasks, tuple(number[where.primaries[task]] for task in self.tasks), tuple(holders),
            tuple(copies), (-1,) * len(self.tasks), (), tuple(i for i, task in enumerate(self.tasks) if task in self.missing),
            tuple(number[node] for node in self.lost),
        )  # fmt: skip
        return e.StandingChanged(at, batch, known)

    def _rates(self) -> dict[str, float]:
        names = self.topology.tasks
        return {f"{names[up]}>{names[down]}": float(rate) for up, down, rate in derive(self.topology).substreams()}

    def _fail(self, at: float, batch: int) -> Iterator[RunEvent]:
        missing: list[str] = []
        for node in (node for node in self.nodes if node.rack == self.scenario.rack):
            homes = tuple(task for task, home in self.placement.primaries.items() if home == node.name)
            gone = tuple(task for task in homes if task not in self.placement.plan)
            missing += gone
            self.missing = tuple(missing)
            self.lost.append(node.name)
            yield e.NodeLost(at, batch, node.name, "Connection refused", node.rack, cause=self.cause)
            yield e.FailedOver(at + 0.05, batch, node.name, homes, gone, self._fidelity(), cause=self.cause)
        self.placement = rehome(self.placement, self.lost)
        yield self._placed(at + 0.1, batch, self.cause)
        yield e.ReplayStarted(at + 0.2, batch, self.missing, batch - 10, cause=self.cause)

    def _corrections(self, at: float, first: int, last: int) -> Iterator[RunEvent]:
        yield e.ReplayFinished(at - 0.05, last, last - first + 1, 2.5, 30_000 * (last - first + 1), cause=self.cause)
        for batch in range(first, last + 1):
            moment = round(at + 0.001 * (batch - first), 3)
            yield e.OutputPublished(moment, batch, 2, "correction", 1.0, (), 1000, f"{batch:016x}", cause=self.cause)

    def _node_back(self, at: float, batch: int) -> Iterator[RunEvent]:
        for node in self.lost:
            yield e.NodeBack(at, batch, node)
        self.lost = []

    def _new_plan(self, at: float, batch: int) -> Iterator[RunEvent]:
        chosen = plan(self.topology, self.scenario.budget + 3, "greedy")
        self.placement = change_plan(self.placement, chosen.tasks)
        what, cause = f"set-budget {chosen.budget}", "c0ffee"
        yield e.CommandCarriedOut(at, batch, "operator", what, "done", "3 replicas added", cause=cause)
        yield e.PlanChanged(
            at + 0.1, batch, tuple(chosen.tasks), chosen.budget, "greedy", "of", chosen.of, self.info.of or 0.0,
            "budget changed by operator", cause=cause,
        )  # fmt: skip
        yield self._placed(at + 0.1, batch, cause)

    def _batch(self, batch: int, at: float) -> Iterator[RunEvent]:
        of, cause = self._fidelity(), self.cause if self.missing else ""
        noise = float(self.random.uniform(0.95, 1.05))
        rows = round(1000 * min(1.0, of * noise)) if self.missing else 1000
        status: Literal["accurate", "tentative"] = "tentative" if self.missing else "accurate"
        yield e.OutputPublished(round(at, 3), batch, 1, status, of, self.missing, rows, f"{batch:016x}", 0.5, cause=cause)
        ran = tuple(task for task in self.tasks if task not in self.missing)
        n = len(ran)
        stats = TaskFigures(
            ran, (int(1000 * noise),) * n, (int(500 * noise),) * n, (0.004 * noise,) * n, (240_000,) * n, (12_000,) * n
        )
        due = tuple(task for i, task in enumerate(self.tasks) if (batch + i) % CHECKPOINT_EVERY == 0 and task in ran)
        seconds = round(0.5 * noise + (0.4 if self.missing else 0.0), 3)
        yield e.BatchFinished(
            at + 0.01, batch, seconds, 2 if batch == self.scenario.fail + 1 else 1, 16_000, 30_000, state_bytes=3_600_000,
            checkpointed=due, synced=tuple(self.placement.replicas), stats=stats,
        )  # fmt: skip
        yield self._standing(at + 0.015, batch)
        if batch == 0:
            yield e.RatesMeasured(at + 0.016, batch, MeasuredRates(batch, self._rates()))
        phases = (1, 4, 12, 0, int(1000 * seconds), 9, int(1000 * seconds) + 40)
        durations = dict(zip(PHASES, phases, strict=True))
        yield e.BatchProgress(round(at + 0.02, 3), batch, 16_000, 16_000 / seconds, durations, 16_000 * noise)
        alive = tuple(node.name for node in self.nodes if node.name not in self.lost)
        yield e.Heartbeat(at + 0.03, batch, alive, dict.fromkeys(alive, 2_000_000))

    def _fidelity(self) -> float:
        if not self.missing:
            return 1.0
        alive = np.ones(len(self.topology.tasks), dtype=bool)
        alive[list(self.topology.numbers(self.missing))] = False
        return float(compile_topology(self.topology).value(alive))


def record(address: Address, scenario: Scenario | None = None, extra: Callable[[Writer], Any] = lambda writer: None) -> RunKey:
    """Write the run of a scenario into the monitor at `address`; returns its key."""
    recorded = RecordedRun(scenario)
    writer = Writer(address, recorded.info)
    for made in recorded.records():
        writer.write(made)
    extra(writer)
    writer.close(30.0)
    return recorded.info.pipeline


def main(argv: Sequence[str] | None = None) -> int:
    """Write a recorded run and return the exit code: 0, 1 (failed), 2 (bad input) or 130 (interrupted)."""
    return program.run(_parser, argv)


def _parser() -> program.Parser:
    parser = program.Parser(
        prog="python -m monitoring.recorded",
        description="Write a recorded run, which loses a rack and recovers, into a monitor.",
    )
    target = parser.add_mutually_exclusive_group(required=True)
    target.add_argument("--directory", type=Path, metavar="FOLDER", help="folder of an embedded monitor")
    target.add_argument("--environment", action="store_true", help=f"the Redis server of {URL_VARIABLE}")
    parser.set_defaults(command=_write)
    return parser


def _write(arguments: argparse.Namespace) -> None:
    begin = round(time.time() - 125.0)
    scenario = Scenario(run=f"recorded{begin}", begin=begin)
    if arguments.directory is not None:
        with start(arguments.directory) as server:
            print(record(server.address, scenario))
    elif url := current().monitor_url:
        print(record(Address(url), scenario))
    else:
        raise RequestError(URL_VARIABLE, "not set; set it to the URL of the monitor's Redis server")


if __name__ == "__main__":
    sys.exit(main())
