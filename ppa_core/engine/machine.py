"""The fault-tolerance brain: events in, instructions out. No Spark, no Redis, no clock.

    BatchReady(b)   -> RunBatch                        while all is well
    BatchDone       -> Emit accurate, Sweep
    NodeLost        -> RunBatch again if one was in flight; StartReplay if a task lost its newest copy
    CopyLost        -> the same, for one task
    BatchReady(b)   -> RunBatch without the missing tasks; BatchDone -> Emit tentative
    ReplayDone      -> Emit a correction for every batch caught up with; StartReplay for the rest, or all is well again

*Copies.* For every task the machine knows which node holds which accurate version: home, replica and checkpoint are just
copies of different age. When a home is lost and another copy is as new as the last good batch, the task moves there at once;
that is what an active replica is for. Otherwise the task is *missing* until it is replayed from its newest copy.

*Fork.* While tasks are missing, everything downstream of them is *affected*: its versions are a fork beside the accurate ones
of the last good batch. Tasks that are not affected stay accurate. A replay runs missing and affected tasks from accurate
versions up to the head; then the fork is dropped.

A batch that was begun without some tasks ends without them: nobody is declared whole while it is in flight.

Every job that runs tasks has its own attempt number. What comes back from an attempt that was overtaken by a loss is ignored.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from ppa_core.engine.events import (
    AwaitReplay,
    BatchDone,
    BatchReady,
    CopyLost,
    Drain,
    Emit,
    Event,
    Instruction,
    JobFailed,
    NodeBack,
    NodeLost,
    PlanChanged,
    ReplayDone,
    Restarted,
    RunBatch,
    StartReplay,
    Sweep,
)
from ppa_core.engine.orders import Order, TaskRun, Version
from ppa_core.engine.recovery import NEVER, Copy, Graph, Start, starts
from ppa_core.engine.standing import FORGETS_NOTHING, Standing
from ppa_core.placement.place import Placement, change_plan, rehome

FRESH = 1_000
"""Attempts that a dead driver may have begun without having written it down."""

Fork = tuple[int, int, frozenset[str]]
"""A tentative version: batch, attempt, the nodes that hold it."""


class Unexpected(Exception):
    """An event that cannot happen in this state: a defect of the host. Carries the story so far."""


@dataclass
class Machine:
    """See the module's text. `handle` is the only way in."""

    graph: Graph
    placement: Placement
    checkpoint_every: int = 15
    """In batches; 0: no checkpoints and no buffers for them, what is lost is rebuilt from the source."""
    sync_every: int = 1
    close_enough: int = 2
    """A replay of up to so many batches is awaited before the next batch, so that catching up comes to an end."""

    head: int = NEVER
    good: int = NEVER
    attempt: int = 0
    missing: frozenset[str] = frozenset()
    lost: frozenset[str] = frozenset()
    drained: frozenset[str] = frozenset()
    """Nodes that answer and are not to be used."""
    newest: dict[str, tuple[int, int]] = field(default_factory=dict)
    """The newest accurate version of each task (batch, attempt)."""
    copies: dict[str, dict[str, Copy]] = field(default_factory=dict)
    """Accurate copies by task and node."""
    fork: dict[str, Fork] = field(default_factory=dict)
    """Tentative versions of affected tasks."""
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
            case BatchReady(batch, patient):
                return self._ready(batch, patient)
            case BatchDone(attempt):
                return self._batch_done(attempt)
            case ReplayDone(attempt):
                return self._replay_done(attempt)
            case JobFailed(attempt):
                return self._job_failed(attempt)
            case NodeLost(node):
                return self._node_lost(node)
            case CopyLost(node, task):
                return self._copy_lost(node, task)
            case NodeBack(node):
                self.lost -= {node}
                self._replace()
            case Drain(nodes):
                self.drained = nodes
                self._replace()
            case PlanChanged(plan):
                self.placement = change_plan(self.placement, plan, self._unusable)
            case Restarted():
                self.running = self.replaying = None
                self.attempt += FRESH
                return self._catch_up()
        return []

    def _ready(self, batch: int, patient: bool) -> list[Instruction]:
        if batch != self.head + 1 or self.running:
            raise Unexpected(f"batch {batch} is ready, head is {self.head}, running {self.running}; {self.log}")
        if patient and self.replaying and len(self.replaying.orders) <= self.close_enough:
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

    def _replay_done(self, attempt: int) -> list[Instruction]:
        replay = self.replaying
        if not replay or replay.attempt != attempt:
            return []
        self.replaying = None
        upto = replay.orders[-1].batch
        for order in replay.orders:
            for task, run in order.runs.items():
                if order.batch > self.newest[task][0] or task in self.missing:
                    if order.batch >= replay.exact[task]:
                        self._wrote(task, run, order.batch, attempt)
                    elif order.batch == replay.exact[task] - 1:
                        self._filled(task, run, order.batch, attempt)
        self.good = upto
        corrected = sorted(b for b in self.tentative if b <= upto)
        self.tentative -= set(corrected)
        return [*(Emit(batch, attempt, "correction") for batch in corrected), *self._catch_up()]

    def _job_failed(self, attempt: int) -> list[Instruction]:
        if self.replaying and self.replaying.attempt == attempt:
            self.replaying = None
            return self._catch_up()
        if self.running and self.running.order.attempt == attempt:
            return [self._run(self.running.order.batch)]
        return []

    def _node_lost(self, node: str) -> list[Instruction]:
        if node in self.lost:
            return []
        self.lost |= {node}
        self.drained -= {node}
        self.gone = {attempt: nodes | {node} for attempt, nodes in self.gone.items()}
        for copies in self.copies.values():
            copies.pop(node, None)
        self.fork = {task: (batch, attempt, nodes - {node}) for task, (batch, attempt, nodes) in self.fork.items()}
        homes = self.placement.primaries
        self._replace()
        lost = {task for task in self.graph.tasks if task not in self.missing and not self._goes_on(task, homes[task])}
        self.fork = {task: version for task, version in self.fork.items() if task not in lost}
        self.missing |= lost
        found: list[Instruction] = []
        if self.replaying and (lost or any(_needs(order, node, self.lost) for order in self.replaying.orders)):
            self.replaying = None
        if self.running and _needs(self.running.order, node, self.lost):
            found.append(self._run(self.running.order.batch))
        return [*found, *self._catch_up()]

    def _copy_lost(self, node: str, task: str) -> list[Instruction]:
        """What is under way may have built on the copy, in this node too: it is begun anew."""
        if node in self.lost:
            return []
        self.copies[task].pop(node, None)
        if task in self.fork:
            batch, attempt, nodes = self.fork[task]
            self.fork[task] = (batch, attempt, nodes - {node})
        if task not in self.missing and not self._goes_on(task, self.placement.primaries[task]):
            self.fork.pop(task, None)
            self.missing |= {task}
        self.replaying = None
        found: list[Instruction] = [self._run(self.running.order.batch)] if self.running else []
        return [*found, *self._catch_up()]

    def _goes_on(self, task: str, home: str) -> bool:
        """Whether a node holds the version that a task goes on from; if its home is lost, that node becomes its home.

        A task without a lookback goes on from nothing.
        """
        before = self._before(task)
        if not before.attempt:
            return True
        if not before.nodes:
            if self.graph.lookback_batches.get(task) != 0:
                return False
            if task in self.fork:
                self.fork[task] = (before.batch, 0, frozenset())
            else:
                self.newest[task] = (before.batch, 0)
            return True
        if home in self.lost:
            usable = [node for node in before.nodes if node not in self.drained] or before.nodes
            self.placement = self.placement.moved(task, usable[0], self._unusable)
        return True

    # ------------------------------------------------------------------------------------------------------------- state

    def standing(self) -> Standing:
        """What is known of tasks and nodes now: what predictions are made from."""
        nodes = tuple(node.name for node in self.placement.nodes)
        number = {name: i for i, name in enumerate(nodes)}
        tasks, homes = self.graph.tasks, self.placement.primaries
        before = [self._before(task) for task in tasks]
        copies = (sorted((number[node], copy.batch) for node, copy in self.copies[task].items()) for task in tasks)
        lookback = tuple(self.graph.lookback_batches.get(task, FORGETS_NOTHING) for task in tasks)
        return Standing(
            self.head,
            nodes,
            tasks,
            tuple(number[homes[task]] for task in tasks),
            tuple(tuple(sorted(number[node] for node in version.nodes)) for version in before),
            tuple(tuple(item for copy in each for item in copy) for each in copies),
            lookback,
            tuple(i for i, version in enumerate(before) if not lookback[i] or not version.attempt),
            tuple(i for i, task in enumerate(tasks) if task in self.missing),
            tuple(sorted(number[node] for node in self.lost)),
            tuple(sorted(number[node] for node in self.drained)),
        )

    @property
    def affected(self) -> frozenset[str]:
        """The tasks whose output is incomplete now: the missing ones and all downstream of them."""
        return self.graph.downstream(self.missing) if self.missing else frozenset()

    @property
    def _unusable(self) -> frozenset[str]:
        """Lost nodes, and drained ones as long as there is another."""
        without = self.lost | self.drained
        return without if len(without) < len(self.placement.nodes) else self.lost

    def _replace(self) -> None:
        """Find new places for what is badly placed now."""
        self.placement = rehome(self.placement, self._unusable)

    def _wrote(self, task: str, run: TaskRun, batch: int, attempt: int) -> None:
        """An accurate version was written, and its output with it."""
        self.newest[task] = (batch, attempt)
        self.outputs[task][batch] = attempt
        copies = self.copies[task]
        for node, copy in copies.items():
            if copy.last >= batch:  # as an earlier attempt wrote it, which does not count any more
                copies[node] = replace(copy, last=batch - 1)
        for target in {run.home, run.replica, run.checkpoint, run.buffer} - {None, *self.gone[attempt]}:
            copy = copies.get(str(target), Copy())
            first = copy.first if copy.first < batch == copy.last + 1 else batch
            whole = target in (run.home, run.replica, run.checkpoint)
            version = (batch, attempt) if whole else (copy.batch, copy.attempt)
            copies[str(target)] = Copy(*version, first, batch)

    def _filled(self, task: str, run: TaskRun, batch: int, attempt: int) -> None:
        """A version was written that the next batch can start from, though its own output is not right."""
        self.newest[task] = (batch, attempt)
        for node in {run.home, run.replica} - {None, *self.gone[attempt]}:
            self.copies[task][str(node)] = Copy(batch, attempt, batch + 1, batch)

    # ------------------------------------------------------------------------------------------------------------ orders

    def _next_attempt(self) -> int:
        self.attempt += 1
        under_way = [self.running.order.attempt if self.running else 0, self.replaying.attempt if self.replaying else 0]
        self.gone = {a: nodes for a, nodes in self.gone.items() if a in under_way} | {self.attempt: frozenset()}
        return self.attempt

    def _run(self, batch: int) -> RunBatch:
        """The order for a batch: every task that is not missing, from its newest version in the present lineage."""
        self.running = None
        affected = self.affected
        overdue = [task for task in self.graph.tasks if self._unchecked(task)][: -(-len(self.graph.tasks) // 4)]
        runs = {}
        for i, task in enumerate(self.graph.tasks):
            if task in self.missing:
                continue
            kept = self._keeper(task)
            due = task not in affected and kept and ((batch + 1 + i) % self.checkpoint_every == 0 or task in overdue)
            runs[task] = TaskRun(
                self.placement.primaries[task],
                self._before(task),
                replica=self.placement.replicas.get(task) if (batch + 1) % self.sync_every == 0 else None,
                checkpoint=kept if due else None,
                buffer=None if due or task in affected else kept,
            )
        self.running = RunBatch(Order(batch, self._next_attempt(), runs), self.missing)
        return self.running

    def _keeper(self, task: str) -> str | None:
        """The node for a task's checkpoint, if there are to be any."""
        return self.placement.checkpoints.get(task) if self.checkpoint_every else None

    def _unchecked(self, task: str) -> bool:
        """Whether the node for a task's checkpoint has none: at the start, and after a loss or a move."""
        kept = self._keeper(task)
        return kept is not None and self.copies[task].get(kept, Copy()).batch == NEVER

    def _before(self, task: str) -> Version:
        """The version that the next batch starts from, and who holds it: the task's home first."""
        if task in self.fork:
            batch, attempt, nodes = self.fork[task]
        else:
            batch, attempt = self.newest[task]
            nodes = frozenset(n for n, copy in self.copies[task].items() if (copy.batch, copy.attempt) == (batch, attempt))
        home = self.placement.primaries[task]
        return Version(batch, attempt, tuple(sorted(nodes, key=lambda node: (node != home, node))))

    def _catch_up(self) -> list[Instruction]:
        """A replay of the missing and affected tasks up to the head, unless one is under way or nothing is missing."""
        if not self.missing or self.replaying:
            return []
        corrected = min(self.tentative, default=self.head + 1)
        found = starts(self.graph, self.copies, self.affected, self.good, self.head, corrected)
        first = min(start.version.batch for start in found.values()) + 1
        if first > self.head:  # all are where they have to be; what is in flight was begun without them
            if not self.running:
                self.newest |= {task: (start.version.batch, 0) for task, start in found.items() if not start.version.attempt}
                self.missing, self.fork = frozenset(), {}
            return []
        attempt = self._next_attempt()
        orders = tuple(self._replay_order(batch, attempt, found) for batch in range(first, self.head + 1))
        self.replaying = StartReplay(orders, attempt, {task: start.exact for task, start in found.items()})
        return [self.replaying]

    def _replay_order(self, batch: int, attempt: int, found: dict[str, Start]) -> Order:
        runs, outputs = {}, {}
        for task in self.graph.tasks:
            if task in found and found[task].version.batch < batch:
                version, exact = found[task].version, found[task].exact
                runs[task] = TaskRun(
                    self.placement.primaries[task],
                    version if version.batch == batch - 1 else None,
                    replica=self.placement.replicas.get(task) if batch == self.head else None,
                    buffer=self._keeper(task) if batch >= exact else None,
                )
        needed = {feeder for task in runs for feeder in self.graph.feeders[task]}
        if batch in self.tentative:
            needed |= {task for task in self.graph.tasks if not self.graph.consumers[task]}
        for task in needed - set(runs):
            nodes = sorted(node for node, copy in self.copies[task].items() if copy.first <= batch <= copy.last)
            outputs[task] = Version(batch, self.outputs[task][batch], tuple(nodes))
        return Order(batch, attempt, runs, outputs)

    # ------------------------------------------------------------------------------------------------------------- sweep

    def _sweeps(self) -> list[Instruction]:
        """What nodes may forget, for every fifth task in turn."""
        found: list[Instruction] = []
        for i, task in enumerate(self.graph.tasks):
            if (self.head + i) % 5:
                continue
            first = min((self._needs_from(consumer) for consumer in self.graph.consumers[task]), default=self.head + 1)
            keep = frozenset((copy.batch, copy.attempt) for copy in self.copies[task].values() if copy.batch > NEVER)
            found.append(Sweep(task, frozenset(self.copies[task]), keep, first))
            for node, copy in self.copies[task].items():
                self.copies[task][node] = replace(copy, first=max(copy.first, first))
            for batch in [b for b in self.outputs[task] if b < first]:
                del self.outputs[task][batch]
        return found

    def _needs_from(self, task: str) -> int:
        """The first batch whose inputs a task would need if its home were lost: after its newest other copy, or to fill its
        window from nothing."""
        home = self.placement.primaries[task]
        newest = max((copy.batch for node, copy in self.copies[task].items() if node != home), default=NEVER)
        return max(newest, self.graph.from_nothing(task, self.head + 1)) + 1


def _needs(order: Order, node: str, lost: Iterable[str]) -> bool:
    """Whether an order cannot be carried out without a node: it writes there, or nobody else has what it reads."""
    down = set(lost)
    for run in order.runs.values():
        if run.home == node or (run.before and run.before.nodes and down.issuperset(run.before.nodes)):
            return True
    return any(down.issuperset(version.nodes) for version in order.outputs.values())
