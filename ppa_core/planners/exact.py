"""The proven optimum, by mixed-integer programming.

Optimal. The linear programme of `unfolding` is given to HiGHS, which returns a plan and a bound that no plan can pass;
after the time limit, the best plan so far and the bound proven until then. Exponential in the worst case; topologies of
5-10 operators with 1-10 tasks each take well under a second as a rule (`make bench` says how often).
"""

from __future__ import annotations

import time
from collections.abc import Iterable

import highspy
import numpy as np

from ppa_core.planners.problem import Outcome, Problem, Status, Trace
from ppa_core.planners.search import best_heuristic
from ppa_core.planners.unfolding import Programme, TooLarge, Unfolding

TOLERANCE = 1e-9
"""A bound this close to the plan's value proves it optimal."""


def plan(problem: Problem) -> Outcome:
    """The best plan there is, warm-started with the best heuristic one."""
    started = time.monotonic()
    trace = Trace(problem)
    best_heuristic(trace)
    left = max(0.05, problem.time_limit - (time.monotonic() - started))
    return prove(problem, trace, left)


def prove(problem: Problem, trace: Trace, seconds: float) -> Outcome:
    """Improve the plan of `trace` to the optimum, or as far as `seconds` allow, and bound it."""
    start = problem.value(trace.chosen)
    try:
        programme = Unfolding(problem).build()
    except TooLarge:
        trace.spend_rest()
        return Outcome(frozenset(trace.chosen), Status.TIME_LIMIT, tuple(trace.steps), bound=1.0)
    chosen, bound = solve(programme, trace.chosen, seconds)
    if chosen and problem.value(chosen) > start + TOLERANCE:
        trace.replace(chosen, "the solver found a better plan")
    trace.spend_rest()
    value = problem.value(trace.chosen)
    bound = max(min(bound, 1.0), value)
    if bound - value <= TOLERANCE:
        return Outcome(frozenset(trace.chosen), Status.OPTIMAL, tuple(trace.steps), bound=value)
    return Outcome(frozenset(trace.chosen), Status.TIME_LIMIT, tuple(trace.steps), bound=bound)


def solve(programme: Programme, start: Iterable[int], seconds: float) -> tuple[frozenset[int], float]:
    """The tasks of the best solution found (none if none was) and the proven bound."""
    solver = highspy.Highs()
    solver.silent()
    options = {
        "time_limit": float(seconds), "threads": 1, "mip_rel_gap": 0.0, "mip_abs_gap": TOLERANCE / 10,
        "mip_feasibility_tolerance": 1e-9, "primal_feasibility_tolerance": 1e-9, "dual_feasibility_tolerance": 1e-9,
    }  # fmt: skip
    for name, option in options.items():
        solver.setOptionValue(name, option)
    solver.passModel(_model(programme))
    hint = np.zeros(programme.tasks)
    hint[list(start)] = 1.0
    solver.setSolution(programme.tasks, np.arange(programme.tasks, dtype=np.int32), hint)
    solver.run()
    info, values = solver.getInfo(), np.array(solver.getSolution().col_value)
    chosen: frozenset[int] = frozenset()
    if len(values) >= programme.tasks:
        picked = (values[: programme.tasks] > 0.5) & (np.array(programme.lower[: programme.tasks]) == 0)
        chosen = frozenset(int(i) for i in np.flatnonzero(picked))
    bound = info.mip_dual_bound
    return chosen, float(bound) if np.isfinite(bound) else 1.0


def _model(programme: Programme) -> highspy.HighsLp:
    model = highspy.HighsLp()
    columns, rows = len(programme.value), len(programme.limits)
    model.num_col_, model.num_row_, model.sense_ = columns, rows, highspy.ObjSense.kMaximize
    model.col_cost_ = np.array(programme.value)
    model.col_lower_, model.col_upper_ = np.array(programme.lower), np.array(programme.upper)
    model.row_lower_, model.row_upper_ = np.full(rows, -highspy.kHighsInf), np.array(programme.limits, dtype=float)
    model.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    model.a_matrix_.start_, model.a_matrix_.index_ = np.array(programme.starts), np.array(programme.columns)
    model.a_matrix_.value_ = np.array(programme.coefficients)
    kinds = [highspy.HighsVarType.kInteger] * programme.tasks + [highspy.HighsVarType.kContinuous] * (columns - programme.tasks)
    model.integrality_ = kinds
    return model
