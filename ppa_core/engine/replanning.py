"""Replanning: a new plan from the measured rates, if its worst-case OF is enough higher to justify moving replicas."""

from __future__ import annotations

from dataclasses import dataclass

from ppa_core.engine.intent import PlanRequest
from ppa_core.engine.predictions import worst_case_of
from ppa_core.planners import plan as make_plan
from ppa_core.topology import Topology

TIME_LIMIT = 10.0
"""Maximum seconds for a planner that searches: the rates keep changing meanwhile."""


@dataclass(frozen=True)
class PlanProposal:
    """A plan to replace the current one, and the worst-case OF of both with the rates measured now."""

    plan: frozenset[str]
    of: float
    of_before: float
    request: PlanRequest
    reason: str


def propose(
    topology: Topology, now: frozenset[str], request: PlanRequest, reason: str, gain: float = 0.0
) -> PlanProposal | None:
    """A plan for the rates in `topology`; None if it is the current one, or its worst-case OF is at most `gain` higher.

    A current plan that exceeds the budget is replaced whatever the gain.
    """
    made = make_plan(topology, request.budget, request.planner, request.metric, time_limit=TIME_LIMIT)
    plan = frozenset(made.tasks)
    change = PlanProposal(plan, worst_case_of(topology, plan), worst_case_of(topology, now), request, reason)
    fits = len(now) <= request.budget
    return None if plan == now or (fits and change.of - change.of_before <= gain) else change
