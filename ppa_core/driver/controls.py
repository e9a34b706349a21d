"""Controls: the commands of operators to a running host, and periodic replanning. An answer is a sentence; a refusal is an
error."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Collection, Mapping
from contextvars import copy_context
from typing import Any

from ppa_core.driver.host import DECLARED_FAILED, Host
from ppa_core.engine import run_events
from ppa_core.engine.event_codec import cut
from ppa_core.engine.events import BanSet, CommandsTaken, DrainSet, PauseSet, PlanSet, RequestSet
from ppa_core.engine.intent import PlanRequest
from ppa_core.engine.machine import Machine
from ppa_core.engine.numbers import SequenceNumbers
from ppa_core.engine.orders import Order
from ppa_core.engine.predictions import lose, worst_case_of
from ppa_core.engine.replanning import PlanProposal, propose
from ppa_core.errors import PpaError, RequestError

_log = logging.getLogger(__name__)

PATIENCE = 60.0
"""Maximum seconds until drained nodes are empty."""


class Controls:
    """The controls of one host; can be used from any thread. `request` has the planning parameters that the run was started
    with. What a command reads and sets, it reads and sets under the run's lock: two commands at once lose nothing."""

    def __init__(self, host: Host, request: PlanRequest) -> None:
        self.host, self._started_with = host, request
        self._planning = threading.Lock()
        host.after_batch = self._after_batch

    @property
    def request(self) -> PlanRequest:
        """The current planning parameters: those that an operator set last, also before a restart of the driver."""
        return self.host.machine.intent.request or self._started_with

    @property
    def carried_out(self) -> Mapping[str, tuple[int, float]]:
        """The numbers of the commands that were executed, also by earlier drivers of the run."""
        return self.host.machine.intent.commands

    def take(self, id_: str) -> None:
        """Record in the ledger that a command is executed, before it is. RequestError if it was executed before."""
        if not self.host.started.is_set():
            raise PpaError("the run has not started yet; try again later")
        if self.host.stopping.is_set():  # and its ledger may be gone
            raise PpaError("the run is stopping")
        with self.host.decisions.lock:
            numbers = SequenceNumbers(self.carried_out)
            try:
                new = numbers.take(id_, time.time())
            except ValueError as error:
                raise RequestError(f"command {id_[:60]!r}", str(error)) from None
            if not new:
                raise RequestError(f"command {id_}", "already executed: this command, or a later one of the same sender")
            self.host.decisions.handle(CommandsTaken(numbers.taken()))
        self.host.outbox.flush()

    def do(self, word: str, arguments: dict[str, Any], cause: str = "") -> str:
        """Execute a command; its answer. RequestError if the command is unknown or cannot be executed now."""
        if word != "stop" and not self.host.started.wait(PATIENCE):
            raise PpaError("the run has not started yet; try again later")
        now = self.request
        match word:
            case "set-budget":
                return self.replan(
                    "the budget was changed", PlanRequest(arguments["budget"], now.planner, now.metric), cause=cause
                )
            case "apply-plan":
                wanted = PlanRequest(arguments["budget"], arguments["planner"], now.metric)
                return self.apply(arguments["tasks"], wanted, cause=cause)
            case "choose-planner":
                return self.replan(
                    "the planner was changed", PlanRequest(now.budget, arguments["planner"], now.metric), cause=cause
                )
            case "replan":
                return self.replan("requested", cause=cause)
            case "drain":
                return self.drain(arguments["nodes"])
            case "undrain":
                return self.undrain(arguments["nodes"])
            case "fail":
                return self.fail(arguments["nodes"])
            case "restore":
                return self.restore(arguments["nodes"])
            case "pause":
                return self.pause(cause)
            case "resume":
                return self.resume(cause)
            case "stop":
                self._event(run_events.Stopping(*self._now(), cause=cause))
                self.host.stop()
                return f"stopped after batch {self.host.machine.head}"
        raise RequestError(f"command {word!r}", "unknown command")

    # -------------------------------------------------------------------------------------------------------------- plans

    def replan(self, reason: str, request: PlanRequest | None = None, gain: float = 0.0, cause: str = "") -> str:
        """Plan again from the measured rates, and apply the new plan if its worst-case OF is more than `gain` higher."""
        host = self.host
        with self._planning:
            wanted = request or self.request
            now = host.machine.placement.plan
            proposal = propose(host.publisher.measured_topology(), now, wanted, reason, gain)
            host.decisions.handle(RequestSet(wanted))
            if proposal is None:
                return f"the current plan with {len(now)} replicas is kept: no other plan has a higher worst-case OF"
            return self._change(proposal, cause)

    def apply(self, tasks: Collection[str], request: PlanRequest, cause: str = "") -> str:
        """Apply this plan, and use its budget and planner for later plans. RequestError if a task is unknown."""
        host = self.host
        with self._planning:
            plan, topology = frozenset(tasks), host.publisher.measured_topology()
            unknown = sorted(plan - set(host.machine.graph.tasks))
            if unknown:
                raise RequestError(f"task {unknown[0]!r}", "unknown task, or a task that cannot have a replica")
            host.decisions.handle(RequestSet(request))
            now = host.machine.placement.plan
            proposal = PlanProposal(
                plan, worst_case_of(topology, plan), worst_case_of(topology, now), request, "a plan was applied"
            )
            return self._change(proposal, cause)

    def _change(self, proposal: PlanProposal, cause: str) -> str:
        now, request = self.host.machine.placement.plan, proposal.request
        self.host.decisions.handle(PlanSet(proposal.plan))
        self._event(
            run_events.PlanChanged(
                *self._now(), tuple(sorted(proposal.plan)), request.budget, request.planner, request.metric,
                proposal.of, proposal.of_before, proposal.reason, cause=cause,
            )
        )  # fmt: skip
        added, removed = len(proposal.plan - now), len(now - proposal.plan)
        return (
            f"{added} replicas added, {removed} removed; worst-case OF {proposal.of_before:.4f} before, {proposal.of:.4f} now"
        )

    def _after_batch(self, batch: int) -> None:
        every = self.host.settings.replan_every
        if every and (batch + 1) % every == 0 and not self._planning.locked():
            threading.Thread(target=copy_context().run, args=(self._follow_the_load,), daemon=True).start()

    def _follow_the_load(self) -> None:
        """In a separate thread, so that batches do not wait. While tasks are missing, the measured rates are not valid."""
        if not self.host.machine.missing:
            try:
                self.replan("the rates changed", gain=self.host.settings.replan_gain)
            except PpaError as error:
                _log.info("planning failed; the current plan is kept", exc_info=True)
                self._event(run_events.PlanningFailed(*self._now(), cut(error)))

    # -------------------------------------------------------------------------------------------------------------- nodes

    def drain(self, nodes: Collection[str]) -> str:
        """Move everything away from nodes, from the next batch on, without tentative output. Returns when they are empty, and
        no job in flight uses them."""
        host, machine = self.host, self.host.machine
        with host.decisions.lock:
            self._check_left(nodes, machine.drained | machine.lost | machine.intent.banned)
            host.decisions.handle(DrainSet(machine.drained | set(nodes)))
        end = time.monotonic() + PATIENCE
        while not host.stopping.wait(0.05) and time.monotonic() < end:
            with host.decisions.lock:
                standing = machine.standing()
                in_use = any(order.uses(nodes, machine.lost) for order in _in_flight(machine))
            loss = lose(standing, nodes)
            if loss.safe and not loss.hit and not standing.missing and not in_use:
                return f"{_named(nodes)} drained: safe to take down"
        raise PpaError(f"{_named(nodes)} could not be drained within {PATIENCE:.0f} s; the run continues")

    def undrain(self, nodes: Collection[str]) -> str:
        """Use drained nodes again. RequestError if none of them is drained."""
        self._check(nodes)
        with self.host.decisions.lock:
            drained = self.host.machine.drained
            if not drained & set(nodes):
                raise RequestError(_named(nodes), "not drained; use restore for a failed or killed node")
            self.host.decisions.handle(DrainSet(drained - set(nodes)))
        return f"{_named(nodes)} undrained: used again"

    def fail(self, nodes: Collection[str]) -> str:
        """Declare nodes failed: they are not used, even if they answer, until they are restored."""
        host, machine = self.host, self.host.machine
        with host.decisions.lock:
            banned = machine.intent.banned
            self._check_left(nodes, machine.lost | banned)
            host.decisions.handle(BanSet(banned | set(nodes)))
        host.decisions.nodes_lost(dict.fromkeys(nodes, DECLARED_FAILED))
        return f"{_named(nodes)} declared failed; {len(machine.missing)} tasks to recover"

    def restore(self, nodes: Collection[str]) -> str:
        """Use nodes again that were declared failed or drained."""
        self._check(nodes)
        with self.host.decisions.lock:
            intent = self.host.machine.intent
            self.host.decisions.handle(BanSet(intent.banned - set(nodes)))
            self.host.decisions.handle(DrainSet(intent.drained - set(nodes)))
        return f"{_named(nodes)} restored: used again as soon as it answers"

    def _check(self, nodes: Collection[str]) -> None:
        known = set(self.host.stores)
        if not nodes or set(nodes) - known:
            unknown = min(set(nodes) - known, default="")
            raise RequestError(f"node {unknown!r}", f"unknown node; known nodes: {', '.join(sorted(known))}")

    def _check_left(self, nodes: Collection[str], gone: Collection[str]) -> None:
        """Refuse a command that takes the last nodes out of use; `gone` are out of use already."""
        self._check(nodes)
        if {*nodes, *gone} >= set(self.host.stores):
            raise RequestError(_named(nodes), "no other node would be left; restore another one first")

    # ------------------------------------------------------------------------------------------------------------ the run

    def pause(self, cause: str = "") -> str:
        """Start no further batch until `resume`. When this returns, it is in the ledger."""
        machine = self.host.machine
        with self.host.decisions.lock:
            self.host.decisions.handle(PauseSet(True))
            self._event(run_events.Paused(*self._now(), cause=cause))
            answer = f"paused after batch {machine.head}"
            if machine.running:
                answer = f"paused: batch {machine.running.order.batch}, which is in flight, is still published"
        self.host.outbox.flush()
        return answer

    def resume(self, cause: str = "") -> str:
        """Continue after `pause`. RequestError if the run is not paused."""
        with self.host.decisions.lock:
            if not self.host.machine.intent.paused:
                raise RequestError("the run", "not paused")
            self.host.decisions.handle(PauseSet(False))
            self._event(run_events.Resumed(*self._now(), cause=cause))
            answer = f"resumed after batch {self.host.machine.head}"
        self.host.outbox.flush()
        return answer

    def _now(self) -> tuple[float, int]:
        return time.time(), self.host.machine.head

    def _event(self, event: run_events.RunEvent) -> None:
        self.host.publisher.event(event)


def _in_flight(machine: Machine) -> list[Order]:
    """The orders of the jobs that are running. Under the run's lock."""
    batch = [machine.running.order] if machine.running else []
    return [*batch, *(machine.replaying.orders if machine.replaying else ())]


def _named(nodes: Collection[str]) -> str:
    return ", ".join(sorted(nodes))
