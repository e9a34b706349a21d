"""The fault-tolerance state machine: events in, instructions out. No Spark, no Redis, no clock.

    BatchReady(b)   -> RunBatch                        while no task is missing
    BatchDone       -> Emit accurate, Sweep
    NodesLost       -> RunBatch again if one was running; StartReplay if a task lost its newest version
    NodesSuspected  -> the same, but the copies there are remembered: SuspectAnswered brings them back
    CopiesDamaged   -> the same, for single tasks
    BatchReady(b)   -> RunBatch without the missing tasks; BatchDone -> Emit tentative
    DeadlinePassed  -> Emit tentative, empty; the batch's job continues, and BatchDone -> Emit a correction
    ReplayDone      -> Emit a correction for every replayed batch; StartReplay for the rest, or recovery is complete

*Copies.* For every task the machine knows which node holds which accurate version: home, replica and checkpoint are copies of
different age. If a home is lost and another node holds the newest version, the task moves there at once; this is the purpose of
an active replica. Otherwise the task is *missing* until it is replayed from its newest copy.

*Fork.* While tasks are missing, everything downstream of them is *affected*: its versions are a fork, separate from the
accurate versions of the last good batch. Tasks that are not affected stay accurate. A replay runs missing and affected tasks
from accurate versions up to the head; then the fork is dropped.

A batch that was started without some tasks also ends without them: no task is declared recovered while a batch is running.

Every job that runs tasks has its own attempt number. The result of an attempt that was superseded after a loss is ignored.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace

from ppa_core.engine.events import (
    AttemptFailed,
    AwaitReplay,
    BanSet,
    BatchDone,
    BatchReady,
    CommandsTaken,
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
    RequestSet,
    Restarted,
    StartReplay,
    SuspectAnswered,
)
from ppa_core.engine.ordering import batch_order, replay_order, sweeps
from ppa_core.engine.orders import Order
from ppa_core.engine.recovery import Start, starts
from ppa_core.engine.state import State
from ppa_core.placement.place import change_plan, rehome

EPOCH = 100_000_000
"""Attempt numbers of one driver, so that no two drivers share one, even if one of them hung and wakes."""
FRESH = 1_000
"""Attempt numbers skipped at least: the old driver may have used some that its ledger does not have."""


def first_attempt(epoch: int) -> int:
    """The first attempt number of the driver with this number, from 1."""
    return (epoch - 1) * EPOCH


class UnexpectedEvent(Exception):
    """An event that cannot happen in this state: a defect of the driver. The message has the last events."""


@dataclass
class Machine(State):
    """See the module's docstring. `handle` is the only entry point."""

    def handle(self, event: Event) -> list[Instruction]:
        """Update the state for an event; the instructions that follow from it."""
        self.log = [*self.log[-99:], str(event)]
        match event:
            case BatchReady(batch, patient):
                return self._ready(batch, patient)
            case BatchDone(attempt):
                return self._batch_done(attempt)
            case DeadlinePassed(batch, cause):
                return self._deadline_passed(batch, cause)
            case ReplayDone(attempt):
                return self._replay_done(attempt)
            case AttemptFailed(attempt):
                return self._attempt_failed(attempt)
            case NodesLost(nodes, cause):
                self.suspended = {node: held for node, held in self.suspended.items() if node not in nodes}
                self.intent = replace(self.intent, drained=self.drained - nodes)
                return self._without(nodes - self.lost, cause)
            case NodesSuspected(nodes, cause):
                for node in nodes - self.lost:
                    self.suspended[node] = {task: held[node] for task, held in self.copies.items() if node in held}
                return self._without(nodes - self.lost, cause)
            case SuspectAnswered(node):
                return self._answered(node)
            case CopiesDamaged(copies, cause):
                return self._copies_damaged([copy for copy in sorted(copies) if copy[0] not in self.lost], cause)
            case NodeReturned(node):
                if node not in self.intent.banned:
                    self.suspended.pop(node, None)
                    self._use_again(node)
            case Restarted(epoch):
                self.running = self.replaying = None
                self.attempt = max(self.attempt + FRESH, first_attempt(epoch))
                self.untidy = frozenset(self.graph.tasks)
                return self._catch_up()
            case PlanSet(plan):
                self.placement = change_plan(self.placement, plan, self.unusable)
            case RequestSet(request):
                self.intent = replace(self.intent, request=request)
            case PauseSet(paused):
                self.intent = replace(self.intent, paused=paused)
            case DrainSet(nodes):
                self.intent = replace(self.intent, drained=nodes)
                self._rehome()
            case BanSet(nodes):
                self.intent = replace(self.intent, banned=nodes)
            case CommandsTaken(numbers):
                self.intent = replace(self.intent, commands=dict(numbers))
        return []

    # ----------------------------------------------------------------------------------------------- batches and replays

    def _ready(self, batch: int, patient: bool) -> list[Instruction]:
        if batch != self.head + 1 or self.running:
            raise UnexpectedEvent(f"batch {batch} is ready, head is {self.head}, running {self.running}; {self.log}")
        if patient and self.replaying and len(self.replaying.orders) <= self.short_replay:
            return [AwaitReplay(self.replaying.attempt)]
        return [batch_order(self, batch)]

    def _batch_done(self, attempt: int) -> list[Instruction]:
        if not self.running or self.running.order.attempt != attempt:
            return []
        order, self.running = self.running.order, None
        self.head = order.batch
        affected = self.affected
        for task, run in order.runs.items():
            if task in affected:
                nodes = frozenset(node for node in (run.home, run.replica) if node) - self.lost_since[attempt]
                self.fork[task] = (order.batch, attempt, nodes)
            else:
                self.wrote(task, run, order.batch, attempt)
        late = order.batch in self.tentative
        if self.missing:
            self.tentative |= {order.batch}
            first = [] if late else [Emit(order.batch, attempt, "tentative", self.missing, self.cause)]
            return [*first, *self._catch_up()]
        self.good = order.batch
        self.tentative -= {order.batch}
        cause = self.cause
        if not self.tentative:
            self.cause = ""
        return [Emit(order.batch, attempt, "correction" if late else "accurate", cause=cause), *sweeps(self)]

    def _deadline_passed(self, batch: int, cause: str) -> list[Instruction]:
        if batch <= self.head or batch in self.tentative:
            return []
        self.cause = self.cause or cause
        self.tentative |= {batch}
        return [Emit(batch, 0, "tentative", frozenset(self.graph.tasks), self.cause)]

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
                        self.wrote(task, run, order.batch, attempt)
                    elif order.batch == replay.exact[task] - 1:
                        self.filled(task, run, order.batch, attempt)
        self.good = upto
        corrected = sorted(b for b in self.tentative if b <= upto)
        self.tentative -= set(corrected)
        found: list[Instruction] = [Emit(batch, attempt, "correction", cause=self.cause) for batch in corrected]
        if self.failed_at is not None and self.good >= self.failed_at:
            found.append(ReportRecovered(frozenset(replay.orders[-1].runs), self.cause))
            self.failed_at = None
        return [*found, *self._catch_up()]

    def _attempt_failed(self, attempt: int) -> list[Instruction]:
        self.untidy = frozenset(self.graph.tasks)
        if self.replaying and self.replaying.attempt == attempt:
            self.replaying = None
            return self._catch_up()
        if self.running and self.running.order.attempt == attempt:
            return [batch_order(self, self.running.order.batch)]
        return []

    def _catch_up(self) -> list[Instruction]:
        """Start a replay of the missing and affected tasks up to the head, unless one is running or nothing is missing."""
        if not self.missing or self.replaying:
            return []
        found = self._starts()
        first = min(start.version.batch for start in found.values()) + 1
        if first > self.head:  # all have caught up; a running batch was started without them
            if not self.running:
                self.newest |= {task: (start.version.batch, start.version.attempt) for task, start in found.items()}
                self.missing, self.fork = frozenset(), {}
            return []
        attempt = self.next_attempt()
        orders = tuple(replay_order(self, batch, attempt, found) for batch in range(first, self.head + 1))
        self.replaying = StartReplay(orders, attempt, {task: start.exact for task, start in found.items()})
        return [self.replaying]

    def _starts(self) -> dict[str, Start]:
        """Where each task of a replay up to the head starts."""
        corrected = min(self.tentative, default=self.head + 1)
        return starts(self.graph, self.copies, self.affected, self.good, self.head, corrected)

    def _starts_later(self) -> bool:
        """Whether a replay that starts now is shorter than the one that is running."""
        assert self.replaying
        first = min((start.version.batch for start in self._starts().values()), default=self.head) + 1
        return first > self.replaying.orders[0].batch

    # ------------------------------------------------------------------------------------------------------------- losses

    def _without(self, nodes: frozenset[str], cause: str) -> list[Instruction]:
        """Continue without these nodes and what they hold."""
        if not nodes:
            return []
        self.cause = self.cause or cause
        self.lost |= nodes
        self.untidy = frozenset(self.graph.tasks)
        self.lost_since = {attempt: before | nodes for attempt, before in self.lost_since.items()}
        for copies in self.copies.values():
            for node in nodes:
                copies.pop(node, None)
        self.fork = {task: (batch, attempt, held - nodes) for task, (batch, attempt, held) in self.fork.items()}
        homes = self.placement.primaries
        self._rehome()
        lost = {task for task in self.graph.tasks if task not in self.missing and not self._continues(task, homes[task])}
        self.fork = {task: version for task, version in self.fork.items() if task not in lost}
        self.missing |= lost
        if self.missing:
            self.failed_at = self.head
        found: list[Instruction] = []
        if self.replaying and (lost or any(_needs(order, nodes, self._empty(order)) for order in self.replaying.orders)):
            self.replaying = None
        if self.running and _needs(self.running.order, nodes, self._empty(self.running.order)):
            found.append(batch_order(self, self.running.order.batch))
        return [*found, *self._catch_up()]

    def _answered(self, node: str) -> list[Instruction]:
        """A suspect is used again with the copies that it held. A replay that they make shorter is started again."""
        if node not in self.suspended or node in self.intent.banned:
            return []
        for task, copy in self.suspended.pop(node).items():
            self.copies[task][node] = copy
        self._use_again(node)
        if self.replaying and self._starts_later():
            self.replaying = None
        return self._catch_up()

    def _use_again(self, node: str) -> None:
        self.lost -= {node}
        self.untidy = frozenset(self.graph.tasks)
        self._rehome()

    def _copies_damaged(self, damaged: Collection[tuple[str, str]], cause: str) -> list[Instruction]:
        """Jobs in progress may have used the damaged copies: they are started again."""
        if not damaged:
            return []
        for node, task in damaged:
            self.copies[task].pop(node, None)
            if task in self.fork:
                batch, attempt, nodes = self.fork[task]
                self.fork[task] = (batch, attempt, nodes - {node})
        for task in dict.fromkeys(task for _, task in damaged):
            if task not in self.missing and not self._continues(task, self.placement.primaries[task]):
                self.fork.pop(task, None)
                self.missing |= {task}
        if self.missing:
            self.cause, self.failed_at = self.cause or cause, self.head
        self.replaying, self.untidy = None, frozenset(self.graph.tasks)
        found: list[Instruction] = [batch_order(self, self.running.order.batch)] if self.running else []
        return [*found, *self._catch_up()]

    def _continues(self, task: str, home: str) -> bool:
        """Whether a task can continue: a node holds the version that it needs. If its home is lost, that node becomes its home.

        A task with a lookback of 0 continues from empty state.
        """
        before = self.before(task)
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
            self.placement = self.placement.moved(task, usable[0], self.unusable)
        return True

    def _empty(self, order: Order) -> frozenset[str]:
        """Nodes without the data that an order needs: lost now, or lost since the order was given and back empty."""
        return self.lost | self.lost_since[order.attempt]

    def _rehome(self) -> None:
        """Move what is placed on unusable nodes."""
        self.placement = rehome(self.placement, self.unusable)


def _needs(order: Order, nodes: Collection[str], empty: Iterable[str]) -> bool:
    """Whether an order cannot be executed without these nodes: it writes there, or only they hold what it reads."""
    down = set(empty)
    for run in order.runs.values():
        if run.home in nodes or (run.before and run.before.nodes and down.issuperset(run.before.nodes)):
            return True
    return any(down.issuperset(version.nodes) for version in order.outputs.values())
