"""The planner for interactive use: the best heuristic plan, then up to a second to improve it or prove it optimal.

Heuristic, and optimal if the proof succeeds, which it does for most topologies of up to about a hundred tasks. Never
worse than `structure_aware` or `greedy`, whose plans it starts from. Takes the heuristics' time and at most `PROOF`
seconds more.
"""

from __future__ import annotations

from ppa_core.planners.exact import prove
from ppa_core.planners.problem import Outcome, Problem, Status, Trace
from ppa_core.planners.search import best_heuristic

PROOF = 1.0
"""Seconds for the proof."""


def plan(problem: Problem) -> Outcome:
    """The best plan that a second or so finds, with a bound where one was proven."""
    trace = Trace(problem)
    best_heuristic(trace)
    outcome = prove(problem, trace, min(PROOF, problem.time_limit))
    if outcome.status is Status.TIME_LIMIT:
        return Outcome(outcome.chosen, Status.HEURISTIC, outcome.steps, outcome.bound)
    return outcome
