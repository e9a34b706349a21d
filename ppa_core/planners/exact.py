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
from ppa_core.topology.rates import Floats

TOLERANCE = 1e-7
"""A bound that passes the plan's value by no more than this share of it proves the plan optimal."""

TRUSTED = 1e-6
"""A value below this share of what the programme could be worth is near the solver's tolerance, and proves nothing."""


def proven(value: float, bound: float) -> bool:
    """Whether the plan is optimal, up to rounding."""
    return bound - value <= TOLERANCE * value


def plan(problem: Problem) -> Outcome:
    """The optimal plan; the search starts from the best heuristic one."""
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
    if chosen and problem.value(chosen) > start * (1 + TOLERANCE):
        trace.replace(chosen, "the solver found a better plan")
    trace.spend_rest()
    value = problem.value(trace.chosen)
    if value > 0:
        bound = max(bound, TRUSTED * programme.worth if value < TRUSTED * programme.worth else 0.0)
    bound = max(min(bound, 1.0), value)
    if proven(value, bound):
        return Outcome(frozenset(trace.chosen), Status.OPTIMAL, tuple(trace.steps), bound=value)
    return Outcome(frozenset(trace.chosen), Status.TIME_LIMIT, tuple(trace.steps), bound=bound)


def solve(programme: Programme, start: Iterable[int], seconds: float) -> tuple[frozenset[int], float]:
    """The tasks of the best solution found (none if none was) and the proven bound.

    Every variable is measured in units of its upper bound, and the objective in units of its own: survivals of a few
    billionths, which several joins make, are as good as any other numbers then.
    """
    upper, lower = np.array(programme.upper), np.array(programme.lower)
    unit = np.where(upper > 0, upper, 1.0)
    whole = programme.worth
    if whole <= 0:
        return frozenset(), 0.0
    solver = highspy.Highs()
    solver.silent()
    options = {
        "time_limit": float(seconds), "threads": 1, "mip_rel_gap": TOLERANCE / 10, "mip_abs_gap": TRUSTED * TOLERANCE / 10,
        "mip_feasibility_tolerance": 1e-9, "primal_feasibility_tolerance": 1e-9, "dual_feasibility_tolerance": 1e-9,
    }  # fmt: skip
    for name, option in options.items():
        solver.setOptionValue(name, option)
    solver.HandleKeyboardInterrupt = True
    solver.passModel(_model(programme, unit, np.array(programme.value) * unit / whole))
    hint = lower[: programme.tasks].copy()
    hint[[i for i in start if upper[i] > 0]] = 1.0
    solver.setSolution(programme.tasks, np.arange(programme.tasks, dtype=np.int32), hint)
    solver.run()
    info, values = solver.getInfo(), np.array(solver.getSolution().col_value)
    chosen: frozenset[int] = frozenset()
    if len(values) >= programme.tasks:
        picked = (values[: programme.tasks] > 0.5) & (lower[: programme.tasks] == 0)
        chosen = frozenset(int(i) for i in np.flatnonzero(picked))
    bound = info.mip_dual_bound
    if not np.isfinite(bound):
        return chosen, 1.0
    return chosen, float(bound * whole) if bound > TRUSTED * TOLERANCE else 0.0


def _model(programme: Programme, unit: Floats, worth: Floats) -> highspy.HighsLp:
    model = highspy.HighsLp()
    columns, rows = len(unit), len(programme.limits)
    model.num_col_, model.num_row_, model.sense_ = columns, rows, highspy.ObjSense.kMaximize
    index, starts = np.array(programme.columns, dtype=np.int32), np.array(programme.starts, dtype=np.int32)
    cells = np.array(programme.coefficients) * unit[index]
    largest = np.maximum.reduceat(np.abs(cells), starts[:-1]) if rows else cells
    model.col_cost_ = worth
    model.col_lower_, model.col_upper_ = np.array(programme.lower) / unit, np.array(programme.upper) / unit
    model.row_lower_, model.row_upper_ = np.full(rows, -highspy.kHighsInf), np.array(programme.limits, dtype=float) / largest
    model.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    model.a_matrix_.start_, model.a_matrix_.index_ = starts, index
    model.a_matrix_.value_ = cells / np.repeat(largest, np.diff(starts))
    kinds = [highspy.HighsVarType.kInteger] * programme.tasks + [highspy.HighsVarType.kContinuous] * (columns - programme.tasks)
    model.integrality_ = kinds
    return model
