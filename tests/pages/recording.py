"""Recorded runs for the pages: of any topology, with any names, ending in any moment of an incident."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np

from monitoring.connection import Address
from monitoring.recorded import RecordedRun, Scenario
from monitoring.records import NodeInfo, PipelineInfo, RunKey
from monitoring.task_records import inner_tasks
from monitoring.writer import Writer
from ppa_core.placement.nodes import Node
from ppa_core.placement.place import place
from ppa_core.planners import plan
from ppa_core.topology import Build, Topology, to_dict

OPEN, CLOSED, QUIET = 66, 120, 40
"""Batches of a run that ends in the middle of its incident, after it, and before it."""


class OwnPlay(RecordedRun):
    """A script played with another topology, and other names of racks."""

    def __init__(self, topology: Topology, script: Scenario, racks: tuple[str, str] = ("r1", "r2")) -> None:
        super().__init__(replace(script, budget=0))
        self.scenario = script
        self.topology, self.tasks = topology, inner_tasks(topology)
        homes = [Node(f"n{i + 1}", racks[i % 2], "primary", f"redis://host:{7000 + i}") for i in range(4)]
        copies = [Node(f"s{i + 1}", f"s{i % 2 + 1}", "standby", f"redis://host:{7004 + i}") for i in range(4)]
        self.nodes = (*homes, *copies)
        chosen = plan(topology, script.budget, "greedy")
        self.placement = place(self.tasks, self.nodes, chosen.tasks)
        self.info = PipelineInfo(
            script.name, script.run, "own", to_dict(topology),
            tuple(NodeInfo(node.name, node.rack, node.role) for node in self.nodes), script.begin, 1.0, "greedy", "of",
            script.budget, tuple(chosen.tasks), chosen.of,
        )  # fmt: skip
        self.random = np.random.default_rng(7)


def script(run: str, batches: int, name: str = "tree", **others: int | str) -> Scenario:
    """A run that told its last batch a moment ago."""
    return Scenario(name=name, run=run, begin=round(time.time()) - batches - 1.0, batches=batches, **others)  # type: ignore[arg-type]


def write(address: Address, play: RecordedRun) -> RunKey:
    """Write a play into the monitor, as `monitoring.recorded.record` does with its own."""
    writer = Writer(address, play.info)
    for made in play.records():
        writer.write(made)
    writer.close(30.0)
    return play.info.pipeline


def large(tasks: int = 1000) -> Topology:
    """A topology of ten operators: two sources joined, wide in the middle, with a `full` edge."""
    wide = tasks // 10
    build = Build("large").source("S1", wide, rate=100, external=True).source("S2", wide, rate=50, external=True)
    build = build.operator("A", wide, {"S1": "one-to-one"}).operator("B", wide, {"S2": "one-to-one"})
    build = build.operator("J", wide, {"A": "full", "B": "full"}, join=True, selectivity=0.5)
    for i, name in enumerate(("C", "D", "E", "F")):
        build = build.operator(name, wide, {"J" if i == 0 else "CDE"[i - 1]: "one-to-one"})
    return build.operator("Z", wide, {"F": "full"}).done()


def hostile() -> Topology:
    """A topology whose names would do harm if they were taken for markup."""
    image, link = "<img src=x onerror=alert(1)", "[a](http://x) $x$ :red[x]"
    build = Build("# <b>x</b>").source("**S**", 6, rate=10, external=True).operator(image, 6, {"**S**": "one-to-one"})
    return build.operator(link, 2, {image: "merge"}).operator("O &amp; <i", 1, {link: "full"}).done()
