"""A world for the machine: nodes that hold what was written to them, and tasks whose results are told apart by value.

A state or output is a hash of all that went into it, so a result is right only if every input and every earlier state was.
Whatever an order wants to read must be where the order says it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

from ppa_core.runtime.machine import (
    AwaitReplay,
    BatchDone,
    BatchReady,
    Emit,
    Graph,
    Instruction,
    Machine,
    NodeBack,
    NodeLost,
    PlanChanged,
    ReplayDone,
    RunBatch,
    StartReplay,
    Sweep,
)
from ppa_core.runtime.nodes import Node
from ppa_core.runtime.orders import Order, Version
from ppa_core.runtime.placement import place
from ppa_core.topology import Build, Topology

Key = tuple[str, int, int]


def digest(*parts: Any) -> str:
    return blake2b(repr(parts).encode(), digest_size=8).hexdigest()


def small_topology() -> Topology:
    """Two sources, a merge, a join of two branches, one sink: nine tasks."""
    return (
        Build("world")
        .source("S", 4, rate=1, external=True)
        .source("T", 2, rate=1, external=True)
        .operator("A", 4, {"S": "one-to-one"})
        .operator("B", 2, {"A": "merge"})
        .operator("C", 2, {"T": "one-to-one"})
        .operator("D", 1, {"B": "full", "C": "full"}, join=True)
        .done()
    )


@dataclass
class World:
    """Nodes, a machine, and the host between them."""

    topology: Topology = field(default_factory=small_topology)
    primaries: int = 4
    standbys: int = 3
    plan: frozenset[str] = frozenset({"D.1", "B.1", "A.1"})
    options: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.nodes = [Node(f"n{i}", f"r{i % 2}", "primary", "redis://x") for i in range(self.primaries)]
        self.nodes += [Node(f"s{i}", f"t{i % 2}", "standby", "redis://x") for i in range(self.standbys)]
        self.graph = Graph.of(self.topology)
        self.machine = Machine(self.graph, place(self.graph.tasks, self.nodes, self.plan), **self.options)  # type: ignore[arg-type]
        self.states: dict[str, dict[Key, str]] = {node.name: {} for node in self.nodes}
        self.outputs: dict[str, dict[Key, str]] = {node.name: {} for node in self.nodes}
        self.down: set[str] = set()
        self.results: dict[tuple[int, int], str] = {}
        self.emitted: dict[int, list[Emit]] = {}
        self.pending: RunBatch | None = None
        self.replay: StartReplay | None = None
        self.truth: dict[tuple[str, int], tuple[str, str]] = {}

    # ------------------------------------------------------------------------------------------------------------ truth

    def true(self, task: str, batch: int) -> tuple[str, str]:
        """State and output of a task without any failure."""
        if batch < 0:
            return "", ""
        if (task, batch) not in self.truth:
            before = self.true(task, batch - 1)[0]
            inputs = [self.true(feeder, batch)[1] for feeder in self.graph.feeders[task]]
            self.truth[task, batch] = self.step(task, batch, before, inputs)
        return self.truth[task, batch]

    def step(self, task: str, batch: int, before: str, inputs: Sequence[str | None]) -> tuple[str, str]:
        state = digest(task, batch, before, list(inputs))
        return state, digest("output", state)

    # ------------------------------------------------------------------------------------------------------------- host

    def execute(self, orders: tuple[Order, ...], only: frozenset[str] | None = None) -> None:
        """Run orders as workers would; with `only`, as far as a job got that was cut off."""
        memory: dict[str, str] = {}
        for order in orders:
            produced: dict[str, str] = {}
            for task in self.graph.tasks:
                if task not in order.runs or (only is not None and task not in only):
                    continue
                run = order.runs[task]
                before = memory[task] if run.before is None else self.read(self.states, task, run.before)
                inputs = [self.input(feeder, order, produced) for feeder in self.graph.feeders[task]]
                memory[task], produced[task] = self.step(task, order.batch, before, inputs)
                key = (task, order.batch, order.attempt)
                for node in {run.home, run.replica, run.checkpoint} - {None, *self.down}:
                    self.states[str(node)][key] = memory[task]
                for node in {run.home, run.replica, run.checkpoint, run.buffer} - {None, *self.down}:
                    self.outputs[str(node)][key] = produced[task]
            sinks = [task for task in self.graph.tasks if not self.graph.consumers[task]]
            self.results[order.batch, order.attempt] = digest([produced.get(task) for task in sinks])

    def input(self, feeder: str, order: Order, produced: dict[str, str]) -> str | None:
        if feeder in order.runs:
            return produced.get(feeder)
        if feeder in order.outputs:
            return self.read(self.outputs, feeder, order.outputs[feeder])
        return None

    def read(self, where: dict[str, dict[Key, str]], task: str, version: Version) -> str:
        if version.batch < 0:
            return ""
        alive = [node for node in version.nodes if node not in self.down]
        assert alive, f"nobody who holds {task} {version} is alive"
        for node in alive:
            assert (task, version.batch, version.attempt) in where[node], f"{task} {version} is not in {node}"
        return where[alive[0]][task, version.batch, version.attempt]

    def obey(self, instructions: list[Instruction]) -> None:
        for instruction in instructions:
            match instruction:
                case RunBatch():
                    self.pending = instruction
                case StartReplay():
                    self.replay = instruction
                case Emit():
                    self.publish(instruction)
                case Sweep(task, nodes, keep, first):
                    for node in nodes - self.down:
                        for key in [k for k in self.states[node] if k[0] == task and k[1:] not in keep]:
                            del self.states[node][key]
                        for key in [k for k in self.outputs[node] if k[0] == task and k[1] < first]:
                            del self.outputs[node][key]
                case AwaitReplay():
                    self.finish_replay()

    def publish(self, emit: Emit) -> None:
        """Accurate output must be true; a batch is published once, or tentatively first and corrected once."""
        before = [e.status for e in self.emitted.get(emit.batch, [])]
        assert before == ([] if emit.status != "correction" else ["tentative"]), (emit, before)
        if emit.status != "tentative":
            sinks = [task for task in self.graph.tasks if not self.graph.consumers[task]]
            truth = digest([self.true(task, emit.batch)[1] for task in sinks])
            assert self.results[emit.batch, emit.attempt] == truth, f"{emit} is wrong"
        self.emitted.setdefault(emit.batch, []).append(emit)

    # ----------------------------------------------------------------------------------------------------------- events

    def batch(self) -> None:
        """One whole batch, however often it must be run."""
        self.begin()
        while self.pending:
            self.finish()

    def begin(self) -> None:
        batch = self.machine.head + 1
        while self.pending is None:
            self.obey(self.machine.handle(BatchReady(batch)))

    def finish(self) -> None:
        assert self.pending
        run, self.pending = self.pending, None
        self.execute((run.order,))
        self.obey(self.machine.handle(BatchDone(run.order.attempt)))

    def lose(self, *names: str, done: frozenset[str] = frozenset()) -> None:
        """Kill nodes; a batch in flight got as far as the tasks in `done`."""
        if self.pending and done:
            self.execute((self.pending.order,), only=done)
        for name in names:
            self.down.add(name)
            self.states[name], self.outputs[name] = {}, {}
        if self.replay and self.machine.replaying is None:
            self.replay = None
        for name in names:
            self.obey(self.machine.handle(NodeLost(name)))
        if self.machine.replaying is None:
            self.replay = None
        else:
            self.replay = self.machine.replaying

    def back(self, name: str) -> None:
        self.down.discard(name)
        self.obey(self.machine.handle(NodeBack(name)))

    def replan(self, plan: frozenset[str]) -> None:
        self.obey(self.machine.handle(PlanChanged(plan)))

    def finish_replay(self) -> None:
        if self.replay:
            replay, self.replay = self.replay, None
            self.execute(replay.orders)
            self.obey(self.machine.handle(ReplayDone(replay.attempt)))

    def settle(self) -> None:
        """Go on until all is well, then a few batches more; check that nothing is left uncorrected."""
        for _ in range(20):
            self.batch()
            self.finish_replay()
            if not self.machine.missing:
                break
        assert not self.machine.missing
        for _ in range(3):
            self.batch()
        self.check()
        assert not self.machine.tentative
        assert sorted(self.emitted) == list(range(self.machine.head + 1))
        assert all(history[-1].status != "tentative" for history in self.emitted.values())

    def check(self) -> None:
        """What always holds."""
        machine = self.machine
        for task, home in machine.placement.primaries.items():
            assert home not in machine.lost, (task, home)
        for task, replica in machine.placement.replicas.items():
            assert replica not in machine.lost
            assert replica != machine.placement.primaries[task]
        for task, copies in machine.copies.items():
            for node, copy in copies.items():
                assert node not in machine.lost
                if copy.batch >= 0:
                    assert (task, copy.batch, copy.attempt) in self.states[node]
                    assert self.states[node][task, copy.batch, copy.attempt] == self.true(task, copy.batch)[0]
