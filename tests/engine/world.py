"""A world for the machine: nodes that hold what was written to them, and tasks whose results are told apart by value.

A result is right only if every input and every earlier state was (`truth.py`). Whatever an order wants to read must be where
the order says it is. Tests reach the machine through the methods below "events".
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field

from ppa_core.engine import ledger
from ppa_core.engine.events import (
    AttemptFailed,
    AwaitReplay,
    BanSet,
    BatchDone,
    BatchReady,
    CopiesDamaged,
    DeadlinePassed,
    DrainSet,
    Emit,
    Event,
    Instruction,
    NodeReturned,
    NodesLost,
    NodesSuspected,
    PauseSet,
    PlanSet,
    ReplayDone,
    ReportRecovered,
    Restarted,
    RunBatch,
    StartReplay,
    SuspectAnswered,
    Sweep,
)
from ppa_core.engine.machine import Machine
from ppa_core.engine.orders import Order, Version
from ppa_core.engine.recovery import Graph
from ppa_core.placement.nodes import Node
from ppa_core.placement.place import place
from ppa_core.topology import Topology
from tests.engine.truth import LOOKBACK, Truth, Value, digest, small_topology

Key = tuple[str, int, int]


@dataclass
class World:
    """Nodes, a machine, and the host between them."""

    topology: Topology = field(default_factory=small_topology)
    primaries: int = 4
    standbys: int = 3
    plan: frozenset[str] = frozenset({"D.1", "B.1", "A.1"})
    options: dict[str, int] = field(default_factory=dict)
    lookback_batches: dict[str, int | None] = field(default_factory=lambda: dict(LOOKBACK))
    racks: int = 2
    early_writes: bool = False
    """What a job writes to a node that is lost and back while it runs, it has written before the loss: it is gone."""
    late_sweeps: bool = False
    """Nodes are swept just before the next batch begins, whatever has been lost since the order to do so."""

    def __post_init__(self) -> None:
        self.nodes = [Node(f"n{i}", f"r{i % self.racks}", "primary", "redis://x") for i in range(self.primaries)]
        self.nodes += [Node(f"s{i}", f"t{i % self.racks}", "standby", "redis://x") for i in range(self.standbys)]
        self.graph = Graph.of(self.topology, self.lookback_batches)
        self.truth = Truth(self.graph)
        self.machine, self.epoch = self.new_machine(), 1
        self.states: dict[str, dict[Key, Value]] = {node.name: {} for node in self.nodes}
        self.outputs: dict[str, dict[Key, Value]] = {node.name: {} for node in self.nodes}
        self.down: set[str] = set()
        self.events = 0
        self.results: dict[tuple[int, int], str] = {}
        self.emitted: dict[int, list[Emit]] = {}
        self.pending: RunBatch | None = None
        self.replay: StartReplay | None = None
        self.emptied: dict[str, int] = {}
        """The last attempt that was ordered before a node lost all it had."""
        self.damaged: dict[tuple[str, str], int] = {}
        """The same for a node and its copy of one task."""
        self.sweeps: list[Sweep] = []
        self.saved = self.snapshot()

    def new_machine(self) -> Machine:
        return Machine(self.graph, place(self.graph.tasks, self.nodes, self.plan), **self.options)  # type: ignore[arg-type]

    # ------------------------------------------------------------------------------------------------------------- host

    def execute(self, orders: tuple[Order, ...], only: frozenset[str] | None = None) -> None:
        """Run orders as workers would; with `only`, as far as a job got that was cut off."""
        held: dict[str, Value] = {}
        for order in orders:
            produced: dict[str, Value] = {}
            for task in self.graph.tasks:
                if task not in order.runs or (only is not None and task not in only):
                    continue
                run = order.runs[task]
                before = held[task] if run.before is None else self.read(self.states, task, run.before, order)
                inputs = [self.input(feeder, order, produced) for feeder in self.graph.feeders[task]]
                held[task], produced[task] = self.truth.step(task, order.batch, before, inputs)
                key = (task, order.batch, order.attempt)
                for node in {run.home, run.replica, run.checkpoint} & self.writable(order):
                    self.states[str(node)][key] = held[task]
                for node in {run.home, run.replica, run.checkpoint, run.buffer} & self.writable(order):
                    self.outputs[str(node)][key] = produced[task]
            self.results[order.batch, order.attempt] = digest([self.input(task, order, produced) for task in self.truth.sinks])

    def writable(self, order: Order) -> set[str]:
        """The nodes that keep what an order writes."""
        early = {node for node, attempt in self.emptied.items() if self.early_writes and attempt >= order.attempt}
        return self.states.keys() - self.down - early

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
        self.events += 1
        instructions = self.machine.handle(event)
        self.obey(instructions)
        if not isinstance(event, BatchReady):
            self.saved = self.snapshot()
        self.sweeps += [instruction for instruction in instructions if isinstance(instruction, Sweep)]
        if not self.late_sweeps:
            self.sweep_all()
        self.replay = self.machine.replaying

    def snapshot(self) -> tuple[bytes, dict[int, list[Emit]]]:
        return ledger.dump(self.machine), {batch: list(history) for batch, history in self.emitted.items()}

    def sweep_all(self) -> None:
        """What the host does between batches; not while something is missing."""
        sweeps, self.sweeps = self.sweeps, []
        for sweep in sweeps if not self.machine.missing else ():
            self.sweep(sweep)

    def sweep(self, sweep: Sweep) -> None:
        """Remove what is not to be kept; later versions than all of that stay, for they may be under way."""
        newest = max((attempt for _, attempt in sweep.keep), default=self.machine.attempt)
        for node in sweep.nodes - self.down:
            old = [k for k in self.states[node] if k[0] == sweep.task and k[2] <= newest]
            for key in [k for k in old if k[1:] not in sweep.keep]:
                del self.states[node][key]
            for key in [k for k in self.outputs[node] if k[0] == sweep.task and k[1] < sweep.outputs_from and k[2] <= newest]:
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
        assert emit.attempt or (emit.status == "tentative" and emit.missing == set(self.graph.tasks))
        if emit.status != "tentative":
            assert self.results[emit.batch, emit.attempt] == self.truth.result(emit.batch), f"{emit} is wrong"
        self.emitted.setdefault(emit.batch, []).append(emit)

    # ----------------------------------------------------------------------------------------------------------- events

    def batch(self) -> None:
        """One whole batch, however often it must be run."""
        self.begin()
        while self.pending:
            self.finish()

    def begin(self, patient: bool = True) -> None:
        self.sweep_all()
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
        self.report(BatchDone(run.order.attempt), save)

    def report(self, event: BatchDone | ReplayDone, save: bool) -> None:
        if save:
            self.tell(event)
        else:
            self.obey([i for i in self.machine.handle(event) if isinstance(i, Emit)])
            self.restart()

    def progress(self, done: frozenset[str], replayed: int = 0) -> None:
        """The jobs under way get so far: the tasks in `done` of the batch, the first batches of the replay."""
        if self.pending and done:
            self.execute((self.pending.order,), only=done)
        if self.replay and replayed:
            self.execute(self.replay.orders[:replayed])

    def late(self, ahead: int = 0) -> None:
        """A deadline passes: of the batch in flight, or the next one, or one after it."""
        self.tell(DeadlinePassed(self.machine.head + 1 + ahead, "incident"))

    def fail(self, done: frozenset[str] = frozenset()) -> None:
        """The batch in flight, if there is one, or else the replay, is cut off."""
        if self.pending:
            self.progress(done)
            run, self.pending = self.pending, None
            self.tell(AttemptFailed(run.order.attempt))
        elif self.replay:
            self.tell(AttemptFailed(self.replay.attempt))

    def write_late(self, order: Order) -> None:
        """A job whose driver is dead runs on; it ends at the first thing that it does not find any more."""
        with suppress(AssertionError):
            self.execute((order,))

    def report_again(self, attempt: int) -> None:
        """What an attempt came to is reported once more, after it ended or was overtaken: nothing follows."""
        assert attempt not in (run.attempt for run in self.machine_jobs())
        for event in (BatchDone(attempt), ReplayDone(attempt), AttemptFailed(attempt)):
            assert not self.machine.handle(event), event

    def machine_jobs(self) -> list[Order]:
        """One order of each job that the machine has under way."""
        replay, running = self.machine.replaying, self.machine.running
        return [*(replay.orders[:1] if replay else ()), *([running.order] if running else ())]

    def lose(self, *names: str, done: frozenset[str] = frozenset()) -> None:
        """Kill nodes; a batch in flight got as far as the tasks in `done`."""
        self.progress(done)
        for name in names:
            self.down.add(name)
            self.empty(name)
        for name in names:
            self.emptied[name] = self.machine.attempt  # an order may have been given since that counts on it
        self.tell(NodesLost(frozenset(names), "incident"))

    def damage(self, node: str, task: str, done: frozenset[str] = frozenset()) -> None:
        """A node's copy of a task is damaged; a batch in flight got as far as the tasks in `done`."""
        self.progress(done)
        for kept in (self.states[node], self.outputs[node]):
            for key in [key for key in kept if key[0] == task]:
                del kept[key]
        self.damaged[node, task] = self.machine.attempt
        self.tell(CopiesDamaged(frozenset({(node, task)})))

    def suspect(self, *names: str, done: frozenset[str] = frozenset()) -> None:
        """Nodes fall silent with all they hold; a batch in flight got as far as the tasks in `done`."""
        self.progress(done)
        self.down |= set(names)
        self.tell(NodesSuspected(frozenset(names), "incident"))

    def answer(self, name: str) -> None:
        """A silent node answers again, and has all it had."""
        self.down.discard(name)
        self.tell(SuspectAnswered(name))

    def die(self, name: str) -> None:
        """A silent node is dead."""
        self.empty(name)
        self.tell(NodesLost(frozenset({name}), "incident"))

    def back(self, name: str) -> None:
        if name in self.machine.suspended:
            self.die(name)
        self.down.discard(name)
        self.tell(NodeReturned(name))

    def tell_banned(self, *names: str) -> None:
        """An operator declares nodes failed."""
        self.tell(BanSet(frozenset(names)))

    def drain(self, *names: str) -> None:
        self.tell(DrainSet(frozenset(names)))

    def replan(self, plan: frozenset[str]) -> None:
        self.tell(PlanSet(plan))

    @property
    def paused(self) -> bool:
        return self.machine.intent.paused

    def pause(self) -> None:
        """No batch is begun until `resume`, whatever else happens; a batch in flight ends, and replays go on."""
        self.tell(PauseSet(True))

    def resume(self) -> None:
        self.tell(PauseSet(False))

    def finish_replay(self, save: bool = True) -> None:
        """Run the replay under way to its end; without `save` the driver dies before it has written that down."""
        if self.replay:
            self.execute(self.replay.orders)
            self.report(ReplayDone(self.replay.attempt), save)

    def restart(self, *dead: str, back: bool = False) -> None:
        """The driver dies and goes on from its ledger; `dead` nodes were lost (and are back, empty) while it was away."""
        self.machine, self.pending, self.replay, self.sweeps = self.new_machine(), None, None, []
        content, emitted = self.saved
        ledger.restore(self.machine, ledger.load(content))
        self.emitted = {batch: list(history) for batch, history in emitted.items()}
        self.epoch += 1
        self.tell(Restarted(self.epoch))
        for name in dead:
            self.empty(name)
            if not back:
                self.down.add(name)
        for name in set(dead) & set(self.machine.suspended):
            self.die(name)
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
                    assert self.states[node][task, copy.batch, copy.attempt] == self.truth.of(task, copy.batch)[0]
        for node, held in machine.suspended.items():
            assert node in machine.lost
            for task, copy in held.items():
                assert copy.batch < 0 or (task, copy.batch, copy.attempt) in self.states[node]
                for b in range(copy.first, copy.last + 1):
                    assert (task, b, machine.outputs[task][b]) in self.outputs[node]
        for task, (batch, attempt, nodes) in machine.fork.items():
            assert all((task, batch, attempt) in self.states[node] for node in nodes)
