"""The fault-tolerance brain: events in, instructions out. No Spark, no Redis, no clock.

    BatchReady(b)   -> RunBatch                        while all is well
    BatchDone       -> Emit accurate, Sweep
    NodeLost        -> RunBatch again if one was in flight; StartReplay if a task lost its newest copy
    BatchReady(b)   -> RunBatch without the missing tasks; BatchDone -> Emit tentative
    ReplayDone      -> Emit a correction for every batch caught up with; StartReplay for the rest, or all is well again

*Copies.* For every task the machine knows which node holds which accurate version: home, replica and checkpoint are just
copies of different age. When a home is lost and another copy is as new as the last good batch, the task moves there at once;
that is what an active replica is for. Otherwise the task is *missing* until it is replayed from its newest copy.

*Fork.* While tasks are missing, everything downstream of them is *affected*: its versions are a fork beside the accurate ones
of the last good batch. Tasks that are not affected stay accurate. A replay runs missing and affected tasks from accurate
versions up to the head; then the fork is dropped.

Every job that runs tasks has its own attempt number. What comes back from an attempt that was overtaken by a loss is ignored.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, replace

from ppa_core.runtime.orders import Order, Run, Version
from ppa_core.runtime.placement import Placement, change_plan, rehome
from ppa_core.topology import Topology

NEVER = -1
"""The batch before the first one: the empty state."""

FRESH = 1_000
"""Attempts that a dead driver may have begun without having written it down."""


# --------------------------------------------------------------------------------------------------------------- events


@dataclass(frozen=True)
class BatchReady:
    """Batch `batch` has arrived and can be run."""

    batch: int


@dataclass(frozen=True)
class BatchDone:
    """The job of an attempt ran every task it was ordered to run."""

    attempt: int


@dataclass(frozen=True)
class NodeLost:
    """A node does not answer any more; what it held is gone."""

    node: str


@dataclass(frozen=True)
class NodeBack:
    """A node answers (again), empty."""

    node: str


@dataclass(frozen=True)
class ReplayDone:
    """The replay of an attempt reached its end."""

    attempt: int


@dataclass(frozen=True)
class PlanChanged:
    """Other tasks are to have a replica from now on."""

    plan: frozenset[str]


@dataclass(frozen=True)
class Restarted:
    """The driver died and is back: what was under way is lost, what the nodes hold is not."""


Event = BatchReady | BatchDone | NodeLost | NodeBack | ReplayDone | PlanChanged | Restarted


# --------------------------------------------------------------------------------------------------------- instructions


@dataclass(frozen=True)
class RunBatch:
    """Run one batch; `missing` tasks are left out."""

    order: Order
    missing: frozenset[str]


@dataclass(frozen=True)
class StartReplay:
    """Run past batches, oldest first, in one job beside the batches that arrive."""

    orders: tuple[Order, ...]
    attempt: int


@dataclass(frozen=True)
class AwaitReplay:
    """Let the replay under way end before this batch is made ready again: it is short, and then all is well."""

    attempt: int


@dataclass(frozen=True)
class Emit:
    """Publish the sinks' output of a batch as an attempt computed it: accurate, tentative, or a correction."""

    batch: int
    attempt: int
    status: str
    missing: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Sweep:
    """Nodes may forget all versions of a task but `keep`, and outputs of batches before `outputs_from`."""

    task: str
    nodes: frozenset[str]
    keep: frozenset[tuple[int, int]]
    outputs_from: int


Instruction = RunBatch | StartReplay | AwaitReplay | Emit | Sweep


# ------------------------------------------------------------------------------------------------------------- the state


@dataclass(frozen=True)
class Copy:
    """What a node holds of a task: an accurate version (batch, attempt), accurate outputs of batches `first` … `last`."""

    batch: int = NEVER
    attempt: int = 0
    first: int = 0
    last: int = NEVER


class Unexpected(Exception):
    """An event that cannot happen in this state: a defect of the host. Carries the story so far."""


@dataclass(frozen=True)
class Graph:
    """Which task feeds which: sources and their links left out, upstream tasks first."""

    tasks: tuple[str, ...]
    feeders: dict[str, tuple[str, ...]]
    consumers: dict[str, tuple[str, ...]]

    @classmethod
    def of(cls, topology: Topology) -> Graph:
        inner = {name for name in topology.order if not topology.by_name[name].external}
        tasks = tuple(topology.tasks[i] for name in topology.order if name in inner for i in topology.span[name])
        feeders: dict[str, list[str]] = {task: [] for task in tasks}
        consumers: dict[str, list[str]] = {task: [] for task in tasks}
        for edge in topology.edges:
            if edge.source in inner:
                for up, down in topology.links(edge):
                    feeders[topology.tasks[down]].append(topology.tasks[up])
                    consumers[topology.tasks[up]].append(topology.tasks[down])
        return cls(tasks, {t: tuple(f) for t, f in feeders.items()}, {t: tuple(c) for t, c in consumers.items()})

    def downstream(self, lost: Collection[str]) -> frozenset[str]:
        """The tasks whose output depends on these, themselves included."""
        found = set(lost)
        for task in self.tasks:
            if task not in found and not found.isdisjoint(self.feeders[task]):
                found.add(task)
        return frozenset(found)


@dataclass
class Machine:
    """See the module's text. `handle` is the only way in."""

    graph: Graph
    placement: Placement
    checkpoint_every: int = 15
    sync_every: int = 1
    close_enough: int = 2
    """A replay of up to so many batches is awaited before the next batch, so that catching up comes to an end."""

    head: int = NEVER
    good: int = NEVER
    attempt: int = 0
    missing: frozenset[str] = frozenset()
    lost: frozenset[str] = frozenset()
    newest: dict[str, tuple[int, int]] = field(default_factory=dict)
    """The newest accurate version of each task (batch, attempt)."""
    copies: dict[str, dict[str, Copy]] = field(default_factory=dict)
    """Accurate copies by task and node."""
    fork: dict[str, tuple[int, int, frozenset[str]]] = field(default_factory=dict)
    """Tentative versions of affected tasks: batch, attempt, nodes that hold it."""
    outputs: dict[str, dict[int, int]] = field(default_factory=dict)
    """The attempt that wrote the accurate output of each task and batch, as far back as it is kept."""
    running: RunBatch | None = None
    replaying: StartReplay | None = None
    tentative: frozenset[int] = frozenset()
    gone: dict[int, frozenset[str]] = field(default_factory=dict)
    """Nodes lost since the attempts under way began: what these wrote there is gone, even if the node is back."""
    log: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        for task in self.graph.tasks:
            self.newest.setdefault(task, (NEVER, 0))
            self.copies.setdefault(task, {})
            self.outputs.setdefault(task, {})

    # ------------------------------------------------------------------------------------------------------------ events

    def handle(self, event: Event) -> list[Instruction]:
        """What follows from an event."""
        self.log = [*self.log[-99:], str(event)]
        match event:
            case BatchReady(batch):
                return self._ready(batch)
            case BatchDone(attempt):
                return self._batch_done(attempt)
            case NodeLost(node):
                return self._node_lost(node)
            case NodeBack(node):
                self.lost -= {node}
                self.placement = rehome(self.placement, self.lost)
                return []
            case ReplayDone(attempt):
                return self._replay_done(attempt)
            case PlanChanged(plan):
                self.placement = change_plan(self.placement, plan, self.lost)
                return []
            case Restarted():
                self.running = self.replaying = None
                self.attempt += FRESH
                return self._catch_up()

    def _ready(self, batch: int) -> list[Instruction]:
        if batch != self.head + 1 or self.running:
            raise Unexpected(f"batch {batch} is ready, head is {self.head}, running {self.running}; {self.log}")
        if self.replaying and len(self.replaying.orders) <= self.close_enough:
            return [AwaitReplay(self.replaying.attempt)]
        return [self._run(batch)]

    def _batch_done(self, attempt: int) -> list[Instruction]:
        if not self.running or self.running.order.attempt != attempt:
            return []
        order, self.running = self.running.order, None
        self.head = order.batch
        affected = self.affected
        for task, run in order.runs.items():
            if task in affected:
                nodes = frozenset(node for node in (run.home, run.replica) if node) - self.gone[attempt]
                self.fork[task] = (order.batch, attempt, nodes)
            else:
                self._wrote(task, run, order.batch, attempt)
        if self.missing:
            self.tentative |= {order.batch}
            return [Emit(order.batch, attempt, "tentative", self.missing), *self._catch_up()]
        self.good = order.batch
        return [Emit(order.batch, attempt, "accurate"), *self._sweeps()]

    def _node_lost(self, node: str) -> list[Instruction]:
        if node in self.lost:
            return []
        self.lost |= {node}
        self.gone = {attempt: nodes | {node} for attempt, nodes in self.gone.items()}
        for copies in self.copies.values():
            copies.pop(node, None)
        homeless = [task for task, home in self.placement.primaries.items() if home == node and task not in self.missing]
        self.placement = rehome(self.placement, self.lost)
        forked = {task: (batch, attempt, nodes - {node}) for task, (batch, attempt, nodes) in self.fork.items()}
        lost: set[str] = set()
        for task in homeless:
            if not self._move(task, forked):
                lost.add(task)
        self.fork = {task: version for task, version in forked.items() if task not in lost}
        self.missing |= lost
        return self._after_loss(node, bool(lost))

    def _after_loss(self, node: str, more: bool) -> list[Instruction]:
        """Run the batch in flight again if it needs the lost node; start the replay anew if it does or has `more` to do."""
        found: list[Instruction] = []
        if self.replaying and (more or _uses(self.replaying.orders, node)):
            self.replaying = None
        if self.running and any(run.home == node for run in self.running.order.runs.values()):
            batch, self.running = self.running.order.batch, None
            found.append(self._run(batch))
        return [*found, *self._catch_up()]

    def _replay_done(self, attempt: int) -> list[Instruction]:
        replay = self.replaying
        if not replay or replay.attempt != attempt:
            return []
        self.replaying = None
        upto = replay.orders[-1].batch
        for order in replay.orders:
            for task, run in order.runs.items():
                if order.batch > self.newest[task][0] or task in self.missing:
                    self._wrote(task, run, order.batch, attempt)
        self.good = upto
        corrected = sorted(b for b in self.tentative if b <= upto)
        self.tentative -= set(corrected)
        found: list[Instruction] = [Emit(batch, attempt, "correction") for batch in corrected]
        if upto == self.head and not self.running:
            self.missing, self.fork = frozenset(), {}
            return [*found, *self._sweeps()]
        return [*found, *self._catch_up()]

    # ------------------------------------------------------------------------------------------------------------- state

    @property
    def affected(self) -> frozenset[str]:
        """The tasks whose output is incomplete now: the missing ones and all downstream of them."""
        return self.graph.downstream(self.missing) if self.missing else frozenset()

    def _wrote(self, task: str, run: Run, batch: int, attempt: int) -> None:
        """An accurate version was written, and its output with it."""
        self.newest[task] = (batch, attempt)
        self.outputs[task][batch] = attempt
        for node in {run.home, run.replica, run.checkpoint, run.buffer} - {None, *self.gone[attempt]}:
            copy = self.copies[task].get(str(node), Copy())
            first = copy.first if copy.last == batch - 1 else batch
            whole = node in (run.home, run.replica, run.checkpoint)
            version = (batch, attempt) if whole else (copy.batch, copy.attempt)
            self.copies[task][str(node)] = Copy(*version, first, batch)

    def _move(self, task: str, forked: dict[str, tuple[int, int, frozenset[str]]]) -> bool:
        """Go on with a task in the node of a copy that is as new as what was lost; False if there is none."""
        if task in forked:
            _, _, nodes = forked[task]
            here = [node for node in sorted(nodes) if node in self.copies[task]]
            if not here:
                return False
        else:
            here = [node for node, copy in sorted(self.copies[task].items()) if (copy.batch, copy.attempt) == self.newest[task]]
            if not here and self.newest[task][0] != NEVER:
                return False
        if here:
            self.placement = self.placement.moved(task, here[0], self.lost)
        return True

    # ------------------------------------------------------------------------------------------------------------ orders

    def _next_attempt(self) -> int:
        self.attempt += 1
        under_way = [self.running.order.attempt if self.running else 0, self.replaying.attempt if self.replaying else 0]
        self.gone = {a: nodes for a, nodes in self.gone.items() if a in under_way} | {self.attempt: frozenset()}
        return self.attempt

    def _run(self, batch: int) -> RunBatch:
        """The order for a batch: every task that is not missing, from its newest version in the present lineage."""
        affected = self.affected
        overdue = [task for task in self.graph.tasks if self._unchecked(task)][: -(-len(self.graph.tasks) // 4)]
        runs = {}
        for i, task in enumerate(self.graph.tasks):
            if task in self.missing:
                continue
            home, kept = self.placement.primaries[task], self.placement.checkpoints.get(task)
            due = task not in affected and kept and ((batch + 1 + i) % self.checkpoint_every == 0 or task in overdue)
            runs[task] = Run(
                home,
                self._before(task),
                replica=self.placement.replicas.get(task) if (batch + 1) % self.sync_every == 0 else None,
                checkpoint=kept if due else None,
                buffer=None if due or task in affected else kept,
            )
        self.running = RunBatch(Order(batch, self._next_attempt(), runs), self.missing)
        return self.running

    def _unchecked(self, task: str) -> bool:
        """Whether the node for a task's checkpoint has none: at the start, and after a loss or a move."""
        kept = self.placement.checkpoints.get(task)
        return kept is not None and self.copies[task].get(kept, Copy()).batch == NEVER

    def _before(self, task: str) -> Version:
        """The version that the next batch starts from, and who holds it."""
        if task in self.fork:
            batch, attempt, nodes = self.fork[task]
            return Version(batch, attempt, tuple(sorted(nodes, key=lambda n: (n != self.placement.primaries[task], n))))
        batch, attempt = self.newest[task]
        return Version(batch, attempt, self._holders(task, batch, attempt))

    def _holders(self, task: str, batch: int, attempt: int) -> tuple[str, ...]:
        home = self.placement.primaries[task]
        nodes = (node for node, copy in self.copies[task].items() if (copy.batch, copy.attempt) == (batch, attempt))
        return tuple(sorted(nodes, key=lambda node: (node != home, node)))

    def _catch_up(self) -> list[Instruction]:
        """A replay of the missing and affected tasks up to the head, unless one is under way or nothing is missing."""
        if not self.missing or self.replaying:
            return []
        starts = self._starts()
        first = min(version.batch for version in starts.values()) + 1
        attempt = self._next_attempt()
        orders = tuple(self._replay_order(batch, attempt, starts) for batch in range(first, self.head + 1))
        if not orders:  # nothing was run since the newest copies: the tasks go on from them
            self.missing, self.fork = frozenset(), {}
            return []
        self.replaying = StartReplay(orders, attempt)
        return [self.replaying]

    def _starts(self) -> dict[str, Version]:
        """From which version each task is replayed: the newest copy, or from the beginning where outputs it needs are gone."""
        starts = {task: self._newest_copy(task) for task in self.affected}
        changed = True
        while changed:
            changed = False
            for task in reversed(self.graph.tasks):
                if task in starts:
                    for feeder in self.graph.feeders[task]:
                        changed |= self._ensure(feeder, starts[task].batch + 1, starts)
        return starts

    def _ensure(self, feeder: str, first: int, starts: dict[str, Version]) -> bool:
        """Make a feeder's outputs from batch `first` on available to a replay; True if it has to be replayed further back."""
        last = starts[feeder].batch if feeder in starts else self.head
        if last < first or any(copy.first <= first and copy.last >= last for copy in self.copies[feeder].values()):
            return False
        starts[feeder] = Version(NEVER, 0)
        return True

    def _newest_copy(self, task: str) -> Version:
        best = max(self.copies[task].values(), key=lambda copy: copy.batch, default=Copy())
        return Version(best.batch, best.attempt, self._holders(task, best.batch, best.attempt) if best.batch > NEVER else ())

    def _replay_order(self, batch: int, attempt: int, starts: dict[str, Version]) -> Order:
        runs, outputs = {}, {}
        for task in self.graph.tasks:
            if task in starts and starts[task].batch < batch:
                runs[task] = Run(
                    self.placement.primaries[task],
                    starts[task] if starts[task].batch == batch - 1 else None,
                    replica=self.placement.replicas.get(task) if batch == self.head else None,
                    buffer=self.placement.checkpoints.get(task),
                )
        needed = {feeder for task in runs for feeder in self.graph.feeders[task] if feeder not in runs}
        for feeder in needed:
            nodes = sorted(node for node, copy in self.copies[feeder].items() if copy.first <= batch <= copy.last)
            if nodes:
                outputs[feeder] = Version(batch, self.outputs[feeder][batch], tuple(nodes))
        return Order(batch, attempt, runs, outputs)

    # ------------------------------------------------------------------------------------------------------------- sweep

    def _sweeps(self) -> list[Instruction]:
        """What nodes may forget, for every fifth task in turn."""
        found: list[Instruction] = []
        for i, task in enumerate(self.graph.tasks):
            if (self.head + i) % 5:
                continue
            first = min((self._safe(consumer) + 1 for consumer in self.graph.consumers[task]), default=self.head + 1)
            keep = frozenset((copy.batch, copy.attempt) for copy in self.copies[task].values() if copy.batch > NEVER)
            found.append(Sweep(task, frozenset(self.copies[task]), keep, first))
            for node, copy in self.copies[task].items():
                self.copies[task][node] = replace(copy, first=max(copy.first, first))
            for batch in [b for b in self.outputs[task] if b < first]:
                del self.outputs[task][batch]
        return found

    def _safe(self, task: str) -> int:
        """The batch of the newest version that outlives the task's home."""
        home = self.placement.primaries[task]
        return max((copy.batch for node, copy in self.copies[task].items() if node != home), default=NEVER)


def _uses(orders: Iterable[Order], node: str) -> bool:
    """Whether a replay writes to the node or reads from it."""
    for order in orders:
        if any(run.home == node or (run.before and node in run.before.nodes) for run in order.runs.values()):
            return True
        if any(node in version.nodes for version in order.outputs.values()):
            return True
    return False
