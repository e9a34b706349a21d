"""A recorded run: what a host would tell of a pipeline that loses a rack and recovers. For tests, and for trying things out.

`python -m monitoring.recorded --directory FOLDER` writes one into the monitor of that folder, and into no other. Nothing here
runs Spark or a node.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from monitoring.collector import Collector
from monitoring.connection import URL_VARIABLE, Address
from monitoring.inputs import Noted, Published
from monitoring.records import NodeInfo, PipelineInfo, Progress, RunKey, inner_tasks
from monitoring.server import start
from monitoring.writer import Writer
from ppa_core.engine.standing import MeasuredRates, Standing
from ppa_core.errors import BadInput, PpaError, RequestError
from ppa_core.fidelity import compile_topology
from ppa_core.placement.nodes import Node
from ppa_core.placement.place import Placement, change_plan, place, rehome
from ppa_core.planners import plan
from ppa_core.queries.tree import tree
from ppa_core.settings import current
from ppa_core.topology import Topology, derive, to_dict

CHECKPOINT_EVERY = 15


@dataclass(frozen=True)
class Note:
    """As the host's."""

    kind: str
    at: float
    batch: int
    figures: dict[str, object] = field(default_factory=dict)


@dataclass(frozen=True)
class Rows:
    """A table of which only the number of rows matters here."""

    num_rows: int
    nbytes: int = 0


@dataclass(frozen=True)
class Record:
    """As the host's."""

    batch: int
    revision: int
    status: str
    of: float
    missing: tuple[str, ...]
    table: Rows
    at: float


@dataclass(frozen=True)
class Stats:
    """As the runtime's `TaskStats`."""

    task: str
    batch: int
    rows_in: int
    rows_out: int
    seconds: float
    state_bytes: int
    checkpoint_bytes: int


Told = Published | Noted | Progress


@dataclass(frozen=True)
class Script:
    """How the run goes: so many batches; after batch `fail` a rack is lost; tentative for `tentative` batches."""

    name: str = "tree"
    run: str = "recorded"
    begin: float = 1_763_251_200.0
    batches: int = 120
    fail: int = 60
    tentative: int = 12
    budget: int = 5
    rack: str = "r1"


def accuracy(tentative: Rows, accurate: Rows) -> float:
    return tentative.num_rows / accurate.num_rows if accurate.num_rows else 1.0


class Play:
    """A script, played: `info`, and everything that is told, in its order."""

    def __init__(self, script: Script | None = None) -> None:
        self.script = script or Script()
        self.topology: Topology = tree().topology()
        self.tasks = inner_tasks(self.topology)
        self.nodes = tuple(Node(f"n{i + 1}", f"r{i % 2 + 1}", "primary", f"redis://host:{7000 + i}") for i in range(4))
        self.nodes += tuple(Node(f"s{i + 1}", f"s{i % 2 + 1}", "standby", f"redis://host:{7004 + i}") for i in range(4))
        chosen = plan(self.topology, self.script.budget, "greedy")
        self.placement: Placement = place(self.tasks, self.nodes, chosen.tasks)
        self.info = PipelineInfo(
            self.script.name, self.script.run, "tree", to_dict(self.topology),
            tuple(NodeInfo(node.name, node.rack, node.role) for node in self.nodes), self.script.begin, 1.0, "greedy", "of",
            self.script.budget, tuple(chosen.tasks), chosen.of,
        )  # fmt: skip
        self.missing: tuple[str, ...] = ()
        self.lost: list[str] = []
        self.random = np.random.default_rng(7)

    def told(self, first: int = 0) -> Iterator[Told]:
        """What is told from batch `first` on."""
        script, end = self.script, self.script.fail + self.script.tentative
        yield self._placed(script.begin, -1)
        for batch in range(first, script.batches):
            at = script.begin + batch + 1
            if batch == script.fail + 1:
                yield from self._fail(at - 0.7, batch - 1)
            if batch == end - 3 and self.missing:
                yield from self._corrections(at - 0.5, script.fail + 1, batch - 1)
                yield Note("recovered", at - 0.4, batch - 1, {"tasks": list(self.missing)})
                yield Note("replaying", at - 0.3, batch, {"tasks": list(self.missing), "first": batch, "last": batch})
            if batch == end + 1 and self.missing:
                yield from self._corrections(at - 0.5, end - 3, end)
                self.missing = ()
            if batch == end + 15:
                yield from self._node_back(at - 0.6, batch)
            if batch == end + 25:
                yield from self._new_plan(at - 0.6, batch)
            yield from self._batch(batch, at)

    def _placed(self, at: float, batch: int) -> Note:
        where = self.placement
        figures: dict[str, object] = {"homes": where.primaries, "replicas": where.replicas, "checkpoints": where.checkpoints}
        return Note("placed", at, batch, figures)

    def _standing(self, at: float, batch: int) -> Note:
        """Homes and replicas have the newest version of what is not missing, and checkpoints are as old as they are."""
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
        return Note("standing", at, batch, {"standing": known})

    def _rates(self) -> dict[str, float]:
        names = self.topology.tasks
        return {f"{names[up]}>{names[down]}": float(rate) for up, down, rate in derive(self.topology).substreams()}

    def _fail(self, at: float, batch: int) -> Iterator[Note]:
        missing: list[str] = []
        for node in (node for node in self.nodes if node.rack == self.script.rack):
            homes = [task for task, home in self.placement.primaries.items() if home == node.name]
            gone = [task for task in homes if task not in self.placement.plan]
            self.lost.append(node.name)
            yield Note("node lost", at, batch, {"node": node.name, "reason": "Connection refused"})
            yield Note("failover", at + 0.05, batch, {"node": node.name, "lost": homes, "missing": gone})
            missing += gone
        self.missing = tuple(missing)
        self.placement = rehome(self.placement, self.lost)
        yield self._placed(at + 0.1, batch)
        figures: dict[str, object] = {"tasks": missing, "first": batch - 10, "last": batch}
        yield Note("replaying", at + 0.2, batch, figures)

    def _corrections(self, at: float, first: int, last: int) -> Iterator[Told]:
        yield Note("replayed", at - 0.05, last, {"batches": last - first + 1, "seconds": 2.5})
        for batch in range(first, last + 1):
            yield Record(batch, 2, "correction", 1.0, (), Rows(1000), round(at + 0.001 * (batch - first), 3))

    def _node_back(self, at: float, batch: int) -> Iterator[Note]:
        for node in self.lost:
            yield Note("node back", at, batch, {"node": node})
        self.lost = []

    def _new_plan(self, at: float, batch: int) -> Iterator[Note]:
        chosen = plan(self.topology, self.script.budget + 3, "greedy")
        self.placement = change_plan(self.placement, chosen.tasks)
        yield Note("command", at, batch, {"cause": "c0ffee", "who": "operator", "what": f"set-budget {chosen.budget}"})
        figures: dict[str, object] = {
            "plan": list(chosen.tasks), "budget": chosen.budget, "planner": "greedy", "of": chosen.of,
            "reason": "budget changed by operator", "cause": "c0ffee",
        }  # fmt: skip
        yield Note("plan changed", at + 0.1, batch, figures)
        yield self._placed(at + 0.1, batch)

    def _batch(self, batch: int, at: float) -> Iterator[Told]:
        of = self._fidelity()
        noise = float(self.random.uniform(0.95, 1.05))
        rows = round(1000 * min(1.0, of * noise)) if self.missing else 1000
        yield Record(batch, 1, "tentative" if self.missing else "accurate", of, self.missing, Rows(rows), round(at, 3))
        stats = [
            Stats(task, batch, int(1000 * noise), int(500 * noise), 0.004 * noise, 240_000, 12_000)
            for task in self.tasks if task not in self.missing
        ]  # fmt: skip
        due = [task for i, task in enumerate(self.tasks) if (batch + i) % CHECKPOINT_EVERY == 0 and task not in self.missing]
        seconds = round(0.5 * noise + (0.4 if self.missing else 0.0), 3)
        figures: dict[str, object] = {
            "seconds": seconds, "attempts": 2 if batch == self.script.fail + 1 else 1, "source_rows": 16_000,
            "rows_in": 30_000, "state_bytes": 3_600_000, "stats": stats, "checkpointed": due,
            "synced": list(self.placement.replicas),
        }  # fmt: skip
        yield Note("batch", at + 0.01, batch, figures)
        yield self._standing(at + 0.015, batch)
        if batch == 0:
            yield Note("rates", at + 0.016, batch, {"rates": MeasuredRates(batch, self._rates())})
        phases = (1, 4, 12, 0, int(1000 * seconds), 9, int(1000 * seconds) + 40)
        yield Progress(batch, round(at + 0.02, 3), 16_000, round(16_000 * noise, 1), round(16_000 / seconds, 1), phases)
        alive = [node.name for node in self.nodes if node.name not in self.lost]
        yield Note("heartbeat", at + 0.03, batch, {"alive": alive, "memory": dict.fromkeys(alive, 2_000_000)})

    def _fidelity(self) -> float:
        if not self.missing:
            return 1.0
        alive = np.ones(len(self.topology.tasks), dtype=bool)
        alive[list(self.topology.numbers(self.missing))] = False
        return float(compile_topology(self.topology).value(alive))


def record(address: Address, script: Script | None = None, extra: Callable[[Writer], Any] = lambda writer: None) -> RunKey:
    """Write a played script into the monitor at `address`; the run it is written as."""
    play = Play(script)
    writer = Writer(address, play.info)
    collector = Collector(play.info, accuracy)
    for made in collector.begin(play.script.begin):
        writer.tell(made)
    for seen in play.told():
        for made in [seen] if isinstance(seen, Progress) else collector.handle(seen):
            writer.tell(made)
    for made in collector.end():
        writer.tell(made)
    extra(writer)
    writer.close(30.0)
    return play.info.pipeline


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m monitoring.recorded",
        description="Write a recorded run, which loses a rack and recovers, into a monitor.",
    )
    target = parser.add_mutually_exclusive_group(required=True)
    target.add_argument("--directory", type=Path, metavar="FOLDER", help="the embedded monitor of this folder")
    target.add_argument("--environment", action="store_true", help=f"the Redis server of {URL_VARIABLE}")
    arguments = parser.parse_args(argv)
    begin = round(time.time() - 125.0)
    script = Script(run=f"recorded{begin}", begin=begin)
    try:
        if arguments.directory is not None:
            with start(arguments.directory) as server:
                print(record(server.address, script))
        elif url := current().monitor_url:
            print(record(Address(url), script))
        else:
            raise RequestError(URL_VARIABLE, "not set; name the monitor's Redis server in it")
    except PpaError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2 if isinstance(error, BadInput) else 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
