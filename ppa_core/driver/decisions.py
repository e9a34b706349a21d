"""Decisions: the machine, protected by the run's lock. Events go in; its instructions go to the parts that execute them.

Nothing blocks while the lock is held: outputs, events and the ledger go to the outbox; replays are started and jobs cancelled
after it is released. `next_run` and `awaited` are the instructions for the batch loop.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence

from ppa_core.driver.jobs import JobResult
from ppa_core.driver.ledger_store import LedgerStore
from ppa_core.driver.outbox import Outbox
from ppa_core.driver.publisher import Publisher
from ppa_core.engine import run_events
from ppa_core.engine.event_codec import cut
from ppa_core.engine.events import (
    AwaitReplay,
    BatchDone,
    BatchReady,
    CopiesDamaged,
    Emit,
    Event,
    Instruction,
    NodesLost,
    NodesSuspected,
    ReplayDone,
    ReportRecovered,
    RunBatch,
    StartReplay,
    Sweep,
)
from ppa_core.engine.ledger import dump
from ppa_core.engine.machine import Machine


class Decisions:
    """Hands events to the machine; can be used from any thread."""

    def __init__(self, machine: Machine, publisher: Publisher, ledger: LedgerStore, outbox: Outbox, shape: str) -> None:
        self.machine, self.publisher, self.ledger, self.outbox, self.shape = machine, publisher, ledger, outbox, shape
        self.racks = {node.name: node.rack for node in machine.placement.nodes}
        self.lock = threading.RLock()
        self.next_run: RunBatch | None = None
        self.awaited: int | None = None
        self.sweeps: list[Sweep] = []
        self.start_replay: Callable[[StartReplay], None] = lambda replay: None
        self.cancel: Callable[[int], None] = lambda attempt: None
        self.nodes_down: Callable[[Mapping[str, str]], None] = lambda down: None

    def handle(self, event: Event) -> None:
        """Hand an event to the machine and execute its instructions."""
        with self.lock:
            later = self._apply(event)
        _do(later)

    def batch_done(self, run: RunBatch, result: JobResult) -> bool:
        """A batch's job ran every task; False if the attempt was superseded meanwhile."""
        with self.lock:
            if self.machine.running is not run:
                return False
            self.publisher.keep_output(result, run.order.batch, run.order.attempt)
            if not run.missing:
                self.publisher.meter.take(flow for part in result.parts for flow in part.flows)
            later = self._apply(BatchDone(run.order.attempt))
        _do(later)
        return True

    def replay_done(self, replay: StartReplay, result: JobResult, seconds: float) -> bool:
        """A replay's job ran every task; False if the attempt was superseded meanwhile."""
        with self.lock:
            if self.machine.replaying is not replay:
                return False
            for order in replay.orders:
                if order.batch in self.machine.tentative:
                    self.publisher.keep_output(result, order.batch, replay.attempt)
            rows = sum(stats.rows_in for part in result.parts for stats in part.stats)
            last, count, cause = replay.orders[-1].batch, len(replay.orders), self.machine.cause
            self._event(run_events.ReplayFinished(time.time(), last, count, seconds, rows, cause=cause))
            later = self._apply(ReplayDone(replay.attempt))
        _do(later)
        return True

    def take_run(self) -> RunBatch | None:
        """The order for the current batch; None if it was taken already."""
        with self.lock:
            run, self.next_run = self.next_run, None
        return run

    def take_sweeps(self) -> list[Sweep]:
        """What nodes can delete; nothing while tasks are missing."""
        with self.lock:
            sweeps, self.sweeps = self.sweeps, []
            return [] if self.machine.missing else sweeps

    def nodes_lost(self, down: Mapping[str, str]) -> None:
        """Nodes, or suspects, failed together; `down` has the reasons."""
        dead = frozenset(down) & set(self.machine.suspended)
        if dead:
            self.handle(NodesLost(dead))
        self._without(down, NodesLost, False)

    def nodes_suspected(self, down: Mapping[str, str]) -> None:
        """Nodes do not answer in time; `down` has the reasons."""
        self._without(down, NodesSuspected, True)

    def _without(self, down: Mapping[str, str], kind: type[NodesLost | NodesSuspected], suspected: bool) -> None:
        with self.lock:
            nodes = sorted(set(down) - self.machine.lost)
            if not nodes:
                return
            machine, head, now = self.machine, self.machine.head, time.time()
            homes, before = machine.placement.primaries, machine.missing
            in_flight, answers = machine.running, machine.handle(kind(frozenset(nodes), new_cause(now)))
            missing, of = machine.missing - before, self.publisher.fidelity(machine.missing)
            elsewhere = sorted(task for task in missing if homes[task] not in nodes)
            for node in nodes:
                about = (node, cut(down[node]), self.racks[node], suspected)
                self._event(run_events.NodeLost(now, head, *about, cause=machine.cause))
            for node in nodes:
                lost = sorted(task for task, home in homes.items() if home == node)
                gone, elsewhere = [*(task for task in lost if task in missing), *elsewhere], []
                self._event(run_events.FailedOver(now, head, node, tuple(lost), tuple(gone), of, cause=machine.cause))
            later = self._after_loss(in_flight, answers)
        _do(later)

    def copies_damaged(self, copies: Collection[tuple[str, str]]) -> None:
        """Copies (node, task) are damaged."""
        with self.lock:
            machine, now = self.machine, time.time()
            known = sorted(copy for copy in copies if copy[0] not in machine.lost)
            if not known:
                return
            before = machine.missing
            in_flight, answers = machine.running, machine.handle(CopiesDamaged(frozenset(known), new_cause(now)))
            missing = machine.missing - before
            for node, task in known:
                gone = (task,) if task in missing else ()
                self._event(run_events.CopyLost(now, machine.head, node, task, gone, cause=machine.cause))
            later = self._after_loss(in_flight, answers)
        _do(later)

    # ------------------------------------------------------------------------------------------------------ under the lock

    def _apply(self, event: Event) -> list[Callable[[], None]]:
        later = self._carry_out(self.machine.handle(event))
        self.publisher.publish_changes()
        if not isinstance(event, BatchReady):
            self._save()
        return later

    def _after_loss(self, in_flight: RunBatch | None, answers: Sequence[Instruction]) -> list[Callable[[], None]]:
        """Execute the instructions after a loss; a job that was superseded is cancelled."""
        later = self._carry_out(answers)
        self.publisher.publish_changes()
        self._save()
        if in_flight and self.machine.running is not in_flight:
            attempt = in_flight.order.attempt
            later.insert(0, lambda: self.cancel(attempt))
        return later

    def _carry_out(self, instructions: Sequence[Instruction]) -> list[Callable[[], None]]:
        later: list[Callable[[], None]] = []
        machine, now = self.machine, time.time()
        for instruction in instructions:
            match instruction:
                case RunBatch():
                    self.next_run = instruction
                case StartReplay() as replay:
                    tasks, last = tuple(sorted(replay.exact)), replay.orders[-1].batch
                    self._event(run_events.ReplayStarted(now, last, tasks, replay.orders[0].batch, cause=machine.cause))
                    later.append(lambda replay=replay: self.start_replay(replay))  # type: ignore[misc]
                case AwaitReplay(attempt):
                    self.awaited = attempt
                case Emit():
                    self.publisher.emit(instruction)
                case ReportRecovered(tasks_back, cause):
                    self._event(run_events.Recovered(now, machine.good, tuple(sorted(tasks_back)), cause=cause))
                case Sweep():
                    self.sweeps.append(instruction)
        return later

    def _event(self, event: run_events.RunEvent) -> None:
        self.publisher.event(event)

    def _save(self) -> None:
        content, without = dump(self.machine, self.shape, self.publisher.deadlines.began), self.machine.lost
        self.outbox.put(lambda: self._write(content, without), replaces="ledger")

    def _write(self, content: bytes, without: frozenset[str]) -> None:
        down = self.ledger.write(content, without)
        if down:
            self.nodes_down(down)


def new_cause(at: float) -> str:
    """The id of an incident that starts at this time."""
    return f"{int(at * 1000):x}"


def _do(later: Sequence[Callable[[], None]]) -> None:
    for action in later:
        action()
