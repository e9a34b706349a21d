"""Controls: what an operator, or the clock, can ask of a running host. Every answer is a sentence; a refusal is an error."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Collection, Mapping
from typing import Any

from ppa_core.driver.host import Host
from ppa_core.engine import run_events
from ppa_core.engine.events import BanSet, CommandsTaken, DrainSet, PauseSet, PlanSet, RequestSet
from ppa_core.engine.intent import PlanRequest
from ppa_core.engine.numbers import Numbers
from ppa_core.engine.predictions import lose, worth
from ppa_core.engine.replanning import PlanProposal, propose
from ppa_core.errors import PpaError, RequestError

_log = logging.getLogger(__name__)

PATIENCE = 60.0
"""Seconds within which drained nodes must be empty."""


class Controls:
    """The controls of one host. May be used from any thread. `request` is what the run was started with."""

    def __init__(self, host: Host, request: PlanRequest) -> None:
        self.host, self._started_with = host, request
        self._planning = threading.Lock()
        host.after_batch = self._after_batch

    @property
    def request(self) -> PlanRequest:
        """What plans are made with now: what operators asked for last, also of the drivers before this one."""
        return self.host.machine.intent.request or self._started_with

    @property
    def carried_out(self) -> Mapping[str, tuple[int, float]]:
        """The numbers of the commands that were carried out, also by the drivers before this one."""
        return self.host.machine.intent.commands

    def take(self, id_: str) -> None:
        """Write into the ledger that a command is carried out, before it is. RequestError if it was before."""
        if not self.host.begun.is_set():
            raise PpaError("the run has not begun yet; try again when it has")
        if self.host.stopping.is_set():  # and its ledger may be gone
            raise PpaError("the run is ending")
        with self.host.decisions.lock:
            numbers = Numbers(self.carried_out)
            try:
                new = numbers.take(id_)
            except ValueError as error:
                raise RequestError(f"command {id_[:60]!r}", str(error)) from None
            if not new:
                raise RequestError(f"command {id_}", "it, or a later one of its sender, was carried out before")
            self.host.decisions.tell(CommandsTaken(numbers.taken()))
        self.host.outbox.flush()

    def do(self, word: str, arguments: dict[str, Any], cause: str = "") -> str:
        """Carry out a command by its word; its outcome. RequestError if the command is unknown, or does not fit."""
        if word != "stop" and not self.host.begun.wait(PATIENCE):
            raise PpaError("the run has not begun yet; try again when it has")
        now = self.request
        match word:
            case "set-budget":
                return self.replan("another budget", PlanRequest(arguments["budget"], now.planner, now.metric), cause=cause)
            case "apply-plan":
                wanted = PlanRequest(arguments["budget"], arguments["planner"], now.metric)
                return self.apply(arguments["tasks"], wanted, cause=cause)
            case "choose-planner":
                return self.replan("another planner", PlanRequest(now.budget, arguments["planner"], now.metric), cause=cause)
            case "replan":
                return self.replan("asked to", cause=cause)
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
        """Plan again from the live rates, and change to the new plan if it is worth more than `gain` of OF more."""
        host = self.host
        with self._planning:
            wanted = request or self.request
            now = host.machine.placement.plan
            proposal = propose(host.publisher.loaded(), now, wanted, reason, gain)
            host.decisions.tell(RequestSet(wanted))
            if proposal is None:
                return f"the present plan of {len(now)} replicas stays: no other is worth more"
            return self._change(proposal, cause)

    def apply(self, tasks: Collection[str], request: PlanRequest, cause: str = "") -> str:
        """Change to this very plan, and plan with its budget and planner later. RequestError if there is no such task."""
        host = self.host
        with self._planning:
            plan, topology = frozenset(tasks), host.publisher.loaded()
            unknown = sorted(plan - set(host.machine.graph.tasks))
            if unknown:
                raise RequestError(f"task {unknown[0]!r}", "unknown, or it cannot have a replica")
            host.decisions.tell(RequestSet(request))
            now = host.machine.placement.plan
            proposal = PlanProposal(plan, worth(topology, plan), worth(topology, now), request, "a plan was chosen")
            return self._change(proposal, cause)

    def _change(self, proposal: PlanProposal, cause: str) -> str:
        now, request = self.host.machine.placement.plan, proposal.request
        self.host.decisions.tell(PlanSet(proposal.plan))
        self._event(
            run_events.PlanChanged(
                *self._now(), tuple(sorted(proposal.plan)), request.budget, request.planner, request.metric,
                proposal.of, proposal.of_before, proposal.reason, cause=cause,
            )
        )  # fmt: skip
        added, removed = len(proposal.plan - now), len(now - proposal.plan)
        return f"{added} replicas added, {removed} removed; OF {proposal.of_before:.4f} before, {proposal.of:.4f} now"

    def _after_batch(self, batch: int) -> None:
        every = self.host.settings.replan_every
        if every and (batch + 1) % every == 0 and not self._planning.locked():
            threading.Thread(target=self._follow_the_load, daemon=True).start()

    def _follow_the_load(self) -> None:
        """Beside the batches: planning must not hold them up. While tasks are missing, the rates say nothing."""
        if not self.host.machine.missing:
            try:
                self.replan("the rates have changed", gain=self.host.settings.replan_gain)
            except PpaError as error:
                _log.info("planning failed; the plan stays", exc_info=True)
                self._event(run_events.PlanningFailed(*self._now(), run_events.cut(error)))

    # -------------------------------------------------------------------------------------------------------------- nodes

    def drain(self, nodes: Collection[str]) -> str:
        """Empty nodes: tasks continue elsewhere from the next batch, with no tentative output. Returns when that is done."""
        host, machine = self.host, self.host.machine
        self._check(nodes, machine.drained | machine.lost)
        host.decisions.tell(DrainSet(machine.drained | set(nodes)))
        end = time.monotonic() + PATIENCE
        while not host.stopping.wait(0.05) and time.monotonic() < end:
            with host.decisions.lock:
                standing = machine.standing()
            loss = lose(standing, nodes)
            if loss.safe and not loss.hit and not standing.missing:
                return f"nothing depends on {_named(nodes)} any more: safe to take down"
        raise PpaError(f"{_named(nodes)} could not be drained within {PATIENCE:.0f} s; the run continues")

    def undrain(self, nodes: Collection[str]) -> str:
        """Use drained nodes again. RequestError if none of them is drained."""
        self._check(nodes, ())
        if not self.host.machine.drained & set(nodes):
            raise RequestError(_named(nodes), "not drained; use restore for a failed or killed node")
        self.host.decisions.tell(DrainSet(self.host.machine.drained - set(nodes)))
        return f"{_named(nodes)} is used again"

    def fail(self, nodes: Collection[str]) -> str:
        """Treat nodes as failed from now on, whatever they answer, until they are restored."""
        self._check(nodes, self.host.machine.lost)
        self.host.ban(nodes)
        return f"{_named(nodes)} declared failed; {len(self.host.machine.missing)} tasks have to be recovered"

    def restore(self, nodes: Collection[str]) -> str:
        """Use nodes again that were drained or declared failed."""
        self._check(nodes, ())
        intent = self.host.machine.intent
        self.host.decisions.tell(BanSet(intent.banned - set(nodes)))
        self.host.decisions.tell(DrainSet(intent.drained - set(nodes)))
        return f"{_named(nodes)} is used again as soon as it answers"

    def _check(self, nodes: Collection[str], gone: Collection[str]) -> None:
        known = set(self.host.stores)
        if not nodes or set(nodes) - known:
            unknown = min(set(nodes) - known, default="")
            raise RequestError(f"node {unknown!r}", f"unknown node; the nodes are {', '.join(sorted(known))}")
        if gone and set(nodes) | set(gone) >= known:
            raise RequestError(_named(nodes), "no other node would be left; restore one first")

    # ------------------------------------------------------------------------------------------------------------ the run

    def pause(self, cause: str = "") -> str:
        """Start no further batch until `resume`; the ledger has it when this returns."""
        self.host.decisions.tell(PauseSet(True))
        self._event(run_events.Paused(*self._now(), cause=cause))
        self.host.outbox.flush()
        return f"paused after batch {self.host.machine.head}"

    def resume(self, cause: str = "") -> str:
        self.host.decisions.tell(PauseSet(False))
        self._event(run_events.Resumed(*self._now(), cause=cause))
        self.host.outbox.flush()
        return f"resumed after batch {self.host.machine.head}"

    def _now(self) -> tuple[float, int]:
        return time.time(), self.host.machine.head

    def _event(self, event: run_events.RunEvent) -> None:
        self.host.publisher.event(event)


def _named(nodes: Collection[str]) -> str:
    return ", ".join(sorted(nodes))
