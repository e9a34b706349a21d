"""Planners: several algorithms that solve the same problem.

`plan` makes a plan for one budget, `compare` for several planners and budgets, `curve` for all budgets at once.
"""

from ppa_core.planners.curve import curve
from ppa_core.planners.facade import DEFAULT, PLANNERS, Planner, compare, plan
from ppa_core.planners.problem import Outcome, Plan, PlanStep, Problem, Status

__all__ = [
    "DEFAULT",
    "PLANNERS",
    "Outcome",
    "Plan",
    "PlanStep",
    "Planner",
    "Problem",
    "Status",
    "compare",
    "curve",
    "plan",
]  # fmt: skip
