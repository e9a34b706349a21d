"""A world for the machine: nodes that hold what was written to them, and tasks whose results are told apart by value.

A state or output is made of hashes of all that went into it, so a result is right only if every input and every earlier state
was. Whatever an order wants to read must be where the order says it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

from ppa_core.engine import ledger
from ppa_core.engine.events import (
    AttemptFailed,
    AwaitReplay,
    BatchDone,
    BatchReady,
    CopiesDamaged,
    DrainSet,
    Emit,
    Event,
    Instruction,
    NodeReturned,
    NodesLost,
    PlanSet,
    ReplayDone,
    ReportRecovered,
    Restarted,
    RunBatch,
    StartReplay,
    Sweep,
)
from ppa_core.engine.machine import Machine
from ppa_core.engine.orders import Order, Version
from ppa_core.engine.recovery import Graph
from ppa_core.placement.nodes import Node
from ppa_core.placement.place import place
from ppa_core.topology import Build, Topology

Key = tuple[str, int, int]
Value = tuple[str, ...]

LOOKBACK = {"A": 3, "B": None, "C": 1, "D": 2}
"""How many batches back the state of each operator reaches; B never forgets."""


def digest(*parts: Any) -> str:
    return blake2b(repr(parts).encode(), digest_size=8).hexdigest()


def small_topology(sinks: int = 1) -> Topology:
    """Two sources, a merge, a join of two branches; the sink has one task that all feed, or two that have a half each."""
    into = "full" if sinks == 1 else "one-to-one"
    return (
        Build("world")
        .source("S", 4, rate=1, external=True)
        .source("T", 2, rate=1, external=True)
        .operator("A", 4, {"S": "one-to-one"})
        .operator("B", 2, {"A": "merge"})
        .operator("C", 2, {"T": "one-to-one"})
        .operator("D", sinks, {"B": into, "C": into}, join=True)
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

    lookback_batches: dict[str, int | None] = field(default_factory=lambda: dict(LOOKBACK))

    def __post_init__(self) -> None:
        self.nodes = [Node(f"n{i}", f"r{i % 2}", "primary", "redis://x") for i in range(self.primaries)]
        self.nodes += [Node(f"s{i}", f"t{i % 2}", "standby", "redis://x") for i in range(self.standbys)]
        self.graph = Graph.of(self.topology, self.lookback_batches)
        self.machine = self.new_machine()
        self.states: dict[str, dict[Key, Value]] = {node.name: {} for node in self.nodes}
        self.outputs: dict[str, dict[Key, Value]] = {node.name: {} for node in self.nodes}
        self.down: set[str] = set()
        self.results: dict[tuple[int, int], str] = {}
        self.emitted: dict[int, list[Emit]] = {}
        self.pending: RunBatch | None = None
        self.replay: StartReplay | None = None
        self.truth: dict[tuple[str, int], tuple[Value, Value]] = {}
        self.emptied: dict[str, int] = {}
        """The last attempt that was ordered before a node lost all it had."""
        self.damaged: dict[tuple[str, str], int] = {}
        """The same for a node and its copy of one task."""
        self.saved = self.snapshot()

    def new_machine(self) -> Machine:
        return Machine(self.graph, place(self.graph.tasks, self.nodes, self.plan), **self.options)  # type: ignore[arg-type]

    # ------------------------------------------------------------------------------------------------------------ truth

    def true(self, task: str, batch: int) -> tuple[Value, Value]:
        """State and output of a task without any failure."""
        if batch < 0:
            return (), ()
        if (task, batch) not in self.truth:
            before = self.true(task, batch - 1)[0]
            inputs = [self.true(feeder, batch)[1] for feeder in self.graph.feeders[task]]
            self.truth[task, batch] = self.step(task, batch, before, inputs)
        return self.truth[task, batch]

    def step(self, task: str, batch: int, before: Value, inputs: Sequence[Value | None]) -> tuple[Value, Value]:
        """A window over what went in: the state is the last `lookback_batches` batches, or a hash of all."""
        entry, lookback_batches = digest(task, batch, list(inputs)), self.graph.lookback_batches.get(task)
        window: Value = (*before, entry) if lookback_batches is not None else (digest(before, entry),)
        kept = len(window) if lookback_batches is None else min(lookback_batches, len(window))
        return window[len(window) - kept :], (digest("output", window),)

    # ------------------------------------------------------------------------------------------------------------- host

    def execute(self, orders: tuple[Order, ...], only: frozenset[str] | None = None) -> None:
        """Run orders as workers would; with `only`, as far as a job got that was cut off."""
        lookback_batches: dict[str, Value] = {}
        for order in orders:
            produced: dict[str, Value] = {}
            for task in self.graph.tasks:
                if task not in order.runs or (only is not None and task not in only):
                    continue
                run = order.runs[task]
                before = lookback_batches[task] if run.before is None else self.read(self.states, task, run.before, order)
                inputs = [self.input(feeder, order, produced) for feeder in self.graph.feeders[task]]
                lookback_batches[task], produced[task] = self.step(task, order.batch, before, inputs)
                key = (task, order.batch, order.attempt)
                for node in {run.home, run.replica, run.checkpoint} - {None, *self.down}:
                    self.states[str(node)][key] = lookback_batches[task]
                for node in {run.home, run.replica, run.checkpoint, run.buffer} - {None, *self.down}:
                    self.outputs[str(node)][key] = produced[task]
            sinks = [task for task in self.graph.tasks if not self.graph.consumers[task]]
            self.results[order.batch, order.attempt] = digest([self.input(task, order, produced) for task in sinks])

    def input(self, feeder: str, order: Order, produced: dict[str, Value]) -> Value | None:
        if feeder in order.runs:
            return produced.get(feeder)
        if feeder in order.outputs:
            return self.read(self.outputs, feeder, order.outputs[feeder], order)
        return None

    def read(self, where: dict[str, dict[Key, Value]], task: str, version: Version, order: Order) -> Value:
        """A version from one of its nodes; all have it but those that were emptied after the order was given."""
        if not version.attempt:
            return ()
        key = (task, version.batch, version.attempt)
        for node in version.nodes:
            emptied = node in self.down or max(self.emptied.get(node, 0), self.damaged.get((node, task), 0)) >= order.attempt
            assert emptied or key in where[node], f"{task} {version} is not in {node}"
        holders = [node for node in version.nodes if key in where[node]]
        assert holders, f"nobody has {task} {version}"
        return where[holders[0]][key]

    def empty(self, node: str) -> None:
        self.states[node], self.outputs[node] = {}, {}
        self.emptied[node] = self.machine.attempt

    def tell(self, event: Event) -> None:
        """Tell the machine, obey, write the ledger, sweep: in the host's order."""
        instructions = self.machine.handle(event)
        self.obey(instructions)
        if not isinstance(event, BatchReady):
            self.saved = self.snapshot()
        for instruction in instructions:
            if isinstance(instruction, Sweep):
                self.sweep(instruction)
        self.replay = self.machine.replaying

    def snapshot(self) -> tuple[bytes, dict[int, list[Emit]]]:
        return ledger.dump(self.machine), {batch: list(history) for batch, history in self.emitted.items()}

    def sweep(self, sweep: Sweep) -> None:
        for node in sweep.nodes - self.down:
            for key in [k for k in self.states[node] if k[0] == sweep.task and k[1:] not in sweep.keep]:
                del self.states[node][key]
            for key in [k for k in self.outputs[node] if k[0] == sweep.task and k[1] < sweep.outputs_from]:
                del self.outputs[node][key]

    def obey(self, instructions: list[Instruction]) -> None:
        for instruction in instructions:
            match instruction:
                case RunBatch():
                    self.pending = instruction
                case StartReplay():
                    self.replay = instruction
                case Emit():
                    self.publish(instruction)
                case AwaitReplay():
                    self.finish_replay()
                case Sweep() | ReportRecovered():
                    pass

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

    def begin(self, patient: bool = True) -> None:
        batch = self.machine.head + 1
        for _ in range(9):
            self.tell(BatchReady(batch, patient))
            if self.pending:
                return
        raise AssertionError(f"replays of batch {batch} without end: {self.machine.log[-9:]}")

    def finish(self, save: bool = True) -> None:
        """Run the batch in flight; without `save` the driver dies before it has written down that it was published."""
        assert self.pending
        run, self.pending = self.pending, None
        self.execute((run.order,))
        if save:
            self.tell(BatchDone(run.order.attempt))
        else:
            self.obey([i for i in self.machine.handle(BatchDone(run.order.attempt)) if isinstance(i, Emit)])
            self.restart()

    def fail(self, done: frozenset[str] = frozenset()) -> None:
        """The batch in flight, if there is one, or else the replay, is cut off."""
        if self.pending:
            run, self.pending = self.pending, None
            self.execute((run.order,), only=done)
            self.tell(AttemptFailed(run.order.attempt))
        elif self.replay:
            self.tell(AttemptFailed(self.replay.attempt))

    def lose(self, *names: str, done: frozenset[str] = frozenset()) -> None:
        """Kill nodes; a batch in flight got as far as the tasks in `done`."""
        if self.pending and done:
            self.execute((self.pending.order,), only=done)
        for name in names:
            self.down.add(name)
            self.empty(name)
        self.tell(NodesLost(frozenset(names), "incident"))

    def damage(self, node: str, task: str, done: frozenset[str] = frozenset()) -> None:
        """A node's copy of a task is damaged; a batch in flight got as far as the tasks in `done`."""
        if self.pending and done:
            self.execute((self.pending.order,), only=done)
        for kept in (self.states[node], self.outputs[node]):
            for key in [key for key in kept if key[0] == task]:
                del kept[key]
        self.damaged[node, task] = self.machine.attempt
        self.tell(CopiesDamaged(frozenset({(node, task)})))

    def back(self, name: str) -> None:
        self.down.discard(name)
        self.tell(NodeReturned(name))

    def drain(self, *names: str) -> None:
        self.tell(DrainSet(frozenset(names)))

    def replan(self, plan: frozenset[str]) -> None:
        self.tell(PlanSet(plan))

    def finish_replay(self) -> None:
        if self.replay:
            self.execute(self.replay.orders)
            self.tell(ReplayDone(self.replay.attempt))

    def restart(self, *dead: str, back: bool = False) -> None:
        """The driver dies and goes on from its ledger; `dead` nodes were lost (and are back, empty) while it was away."""
        self.machine, self.pending, self.replay = self.new_machine(), None, None
        content, emitted = self.saved
        ledger.restore(self.machine, ledger.load(content))
        self.emitted = {batch: list(history) for batch, history in emitted.items()}
        self.tell(Restarted())
        for name in dead:
            self.empty(name)
            if not back:
                self.down.add(name)
        gone = frozenset(dead) - self.machine.lost
        self.tell(NodesLost(gone, "incident"))
        for name in sorted(gone) if back else ():
            self.tell(NodeReturned(name))

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
