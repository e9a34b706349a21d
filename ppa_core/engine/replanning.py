"""Plans that follow the load: from measured rates a better plan, if it is enough better to be worth moving replicas."""

from __future__ import annotations

from dataclasses import dataclass

from ppa_core.engine.intent import PlanRequest
from ppa_core.engine.predictions import worth
from ppa_core.planners import plan as make_plan
from ppa_core.topology import Topology

TIME_LIMIT = 10.0
"""Seconds that a planner which searches may take: rates go on changing meanwhile."""


@dataclass(frozen=True)
class PlanProposal:
    """A plan to take the place of another: what each is worth by the rates measured now."""

    plan: frozenset[str]
    of: float
    of_before: float
    request: PlanRequest
    reason: str


def propose(
    topology: Topology, now: frozenset[str], request: PlanRequest, reason: str, gain: float = 0.0
) -> PlanProposal | None:
    """A plan by the rates in `topology`; None if it is the present one, or worth at most `gain` of OF more.

    A present plan that does not fit the budget is replaced whatever the gain.
    """
    made = make_plan(topology, request.budget, request.planner, request.metric, time_limit=TIME_LIMIT)
    plan = frozenset(made.tasks)
    change = PlanProposal(plan, worth(topology, plan), worth(topology, now), request, reason)
    fits = len(now) <= request.budget
    return None if plan == now or (fits and change.of - change.of_before <= gain) else change
