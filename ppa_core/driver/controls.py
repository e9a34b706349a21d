"""Controls: what an operator, or the clock, can ask of a running host. Every answer is a sentence; a refusal is an error."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Collection
from dataclasses import asdict
from typing import Any

from ppa_core.driver.host import Host
from ppa_core.driver.records import Note
from ppa_core.engine.numbers import Numbers
from ppa_core.engine.predictions import lose, worth
from ppa_core.engine.replanning import PlanProposal, PlanRequest, propose
from ppa_core.errors import PpaError, RequestError

_log = logging.getLogger(__name__)

PATIENCE = 60.0
"""Seconds within which nodes that are to be left must be empty."""


class Controls:
    """The controls of one host. May be used from any thread."""

    def __init__(self, host: Host, wish: PlanRequest) -> None:
        self.host, self.wish = host, wish
        self._planning = threading.Lock()
        host.after_batch = self._after_batch

    @property
    def carried_out(self) -> dict[str, Any]:
        """The numbers of the commands that were carried out, also by the drivers before this one."""
        known: dict[str, Any] = self.host.kept.get("commands", {})
        return known

    def take(self, id_: str) -> None:
        """Write into the ledger that a command is carried out, before it is. RequestError if it was before."""
        if not self.host.begun.is_set():
            raise PpaError("the run has not begun yet; try again when it has")
        if self.host.stopping.is_set():  # and its ledger may be gone
            raise PpaError("the run is ending")
        with self.host.lock:
            numbers = Numbers(self.carried_out)
            try:
                new = numbers.take(id_)
            except ValueError as error:
                raise RequestError(f"command {id_[:60]!r}", str(error)) from None
            if not new:
                raise RequestError(f"command {id_}", "it, or a later one of its sender, was carried out before")
            self.host.kept["commands"] = numbers.to_json()
            self.host.save()

    def do(self, word: str, arguments: dict[str, Any], cause: str = "") -> str:
        """Carry out a command by its word; what came of it. RequestError if there is no such command, or it does not fit."""
        if word != "stop" and not self.host.begun.wait(PATIENCE):
            raise PpaError("the run has not begun yet; try again when it has")
        self._recall()
        match word:
            case "set-budget":
                return self.replan(
                    "another budget", PlanRequest(arguments["budget"], self.wish.planner, self.wish.metric), cause=cause
                )
            case "apply-plan":
                return self.apply(
                    arguments["tasks"], PlanRequest(arguments["budget"], arguments["planner"], self.wish.metric), cause=cause
                )
            case "choose-planner":
                return self.replan(
                    "another planner", PlanRequest(self.wish.budget, arguments["planner"], self.wish.metric), cause=cause
                )
            case "replan":
                return self.replan("asked to", cause=cause)
            case "leave":
                return self.leave(arguments["nodes"])
            case "declare-dead":
                return self.declare_dead(arguments["nodes"])
            case "use":
                return self.use(arguments["nodes"])
            case "pause":
                return self.pause()
            case "resume":
                return self.go_on()
            case "stop":
                self._note("stopping")
                self.host.stop()
                return f"stopped after batch {self.host.machine.head}"
        raise RequestError(f"command {word!r}", "there is none of that name")

    def _recall(self) -> None:
        """What was asked for before the driver was started again holds still."""
        if "wish" in self.host.kept:
            self.wish = PlanRequest(**self.host.kept["wish"])

    # -------------------------------------------------------------------------------------------------------------- plans

    def replan(self, reason: str, wish: PlanRequest | None = None, gain: float = 0.0, cause: str = "") -> str:
        """Plan anew from the live rates, and go over to the new plan if it is worth more than `gain` of OF more."""
        host = self.host
        with self._planning:
            wish = wish or self.wish
            now = host.machine.placement.plan
            change = propose(host.loaded(), now, wish, reason, gain)
            self.wish = wish
            host.kept["wish"] = asdict(wish)
            if change is None:
                return f"the present plan of {len(now)} replicas stays: no other is worth more"
            return self._go_over(change, cause)

    def apply(self, tasks: Collection[str], wish: PlanRequest, cause: str = "") -> str:
        """Go over to this very plan, and plan with its budget and planner later. RequestError if there is no such task."""
        host = self.host
        with self._planning:
            plan, topology = frozenset(tasks), host.loaded()
            unknown = sorted(plan - set(host.machine.graph.tasks))
            if unknown:
                raise RequestError(f"task {unknown[0]!r}", "there is none of that name that can have a replica")
            self.wish = wish
            host.kept["wish"] = asdict(wish)
            now = host.machine.placement.plan
            return self._go_over(
                PlanProposal(plan, worth(topology, plan), worth(topology, now), wish, "a plan was chosen"), cause
            )

    def _go_over(self, change: PlanProposal, cause: str) -> str:
        now, wish = self.host.machine.placement.plan, change.wish
        self.host.change_plan(change.plan)
        self._note(
            "plan changed", plan=sorted(change.plan), budget=wish.budget, planner=wish.planner, metric=wish.metric,
            of=change.of, of_before=change.of_before, reason=change.reason, cause=cause,
        )  # fmt: skip
        added, removed = len(change.plan - now), len(now - change.plan)
        return f"{added} replicas added, {removed} removed; OF {change.of_before:.4f} before, {change.of:.4f} now"

    def _after_batch(self, batch: int) -> None:
        every = self.host.settings.replan_every
        if every and (batch + 1) % every == 0 and not self._planning.locked():
            threading.Thread(target=self._follow_the_load, daemon=True).start()

    def _follow_the_load(self) -> None:
        """Beside the batches: planning must not hold them up. While tasks are missing, the rates say nothing."""
        if not self.host.machine.missing:
            self._recall()
            try:
                self.replan("the rates have changed", gain=self.host.settings.replan_gain)
            except PpaError as error:
                _log.info("planning failed; the plan stays", exc_info=True)
                self._note("planning failed", reason=str(error))

    # -------------------------------------------------------------------------------------------------------------- nodes

    def leave(self, nodes: Collection[str]) -> str:
        """Empty nodes gracefully: tasks go on elsewhere from the next batch, with no tentative output. Returns when done."""
        host, machine = self.host, self.host.machine
        self._check(nodes, machine.drained | machine.lost)
        host.drain(machine.drained | set(nodes))
        end = time.monotonic() + PATIENCE
        while not host.stopping.wait(0.05) and time.monotonic() < end:
            with host.lock:
                standing = machine.standing()
                loss = lose(standing, nodes)
                if loss.safe and not loss.hit and not standing.missing:
                    return f"nothing depends on {_named(nodes)} any more: safe to take down"
        raise PpaError(f"{_named(nodes)} could not be emptied within {PATIENCE:.0f} s; the run goes on")

    def declare_dead(self, nodes: Collection[str]) -> str:
        """Treat nodes as dead from now on, whatever they answer."""
        self._check(nodes, self.host.machine.lost)
        self.host.declare_dead(nodes)
        return f"{_named(nodes)} taken for dead; {len(self.host.machine.missing)} tasks have to be recovered"

    def use(self, nodes: Collection[str]) -> str:
        """Use nodes again that were left or declared dead."""
        self._check(nodes, ())
        self.host.banned -= set(nodes)
        self.host.drain(self.host.machine.drained - set(nodes))
        return f"{_named(nodes)} is used again as soon as it answers"

    def _check(self, nodes: Collection[str], gone: Collection[str]) -> None:
        known = set(self.host.stores)
        if not nodes or set(nodes) - known:
            unknown = min(set(nodes) - known, default="")
            raise RequestError(f"node {unknown!r}", f"there is none of that name; there are {', '.join(sorted(known))}")
        if gone and set(nodes) | set(gone) >= known:
            raise RequestError(_named(nodes), "no other node would be left; bring one back first")

    # ------------------------------------------------------------------------------------------------------------ the run

    def pause(self) -> str:
        """Start no further batch until `go_on`."""
        self.host.going.clear()
        self.host.save()
        self._note("paused")
        return f"paused after batch {self.host.machine.head}"

    def go_on(self) -> str:
        self.host.going.set()
        self.host.save()
        self._note("continued")
        return f"going on after batch {self.host.machine.head}"

    def _note(self, kind: str, **figures: object) -> None:
        self.host.watch(Note(kind, time.time(), self.host.machine.head, figures))


def _named(nodes: Collection[str]) -> str:
    return ", ".join(sorted(nodes))
