"""The whole budget curve at once: a plan for every budget from 0 to n, each at least as good as the one before.

One growing run, two cutting runs and one ranking (that of `greedy`) give plans for all budgets. While time allows,
`structure_aware` plans the requested budgets too. Then every plan is used to improve its neighbours, and the remaining time
is spent on improving and proving single budgets, spread over the curve: a bound proven for one budget holds for all smaller
ones, and a plan found for one budget is valid for all larger ones.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from ppa_core.fidelity import Compiled, Mask, Metric, compile_topology
from ppa_core.planners import structure_aware
from ppa_core.planners.exact import prove, proven
from ppa_core.planners.extensions import Deadline
from ppa_core.planners.problem import Outcome, Plan, Problem, Status, Trace
from ppa_core.planners.search import Search
from ppa_core.topology import Topology

PROVABLE = 400
"""Topologies with more tasks get no proofs: a single one would take all of the time."""


def curve(
    topology: Topology,
    metric: Metric = Metric.OF,
    time_limit: float = 5.0,
    budgets: Sequence[int] | None = None,
    progress: Callable[[int, int], None] | None = None,
    others: Iterable[Plan] = (),
) -> list[Plan]:
    """A plan for each of `budgets` (default: all), monotone in the budget, and never worse than any of `others`.

    The search for better plans and proofs stops after `time_limit` seconds in all, what comes before it after twice that.
    """
    started = time.perf_counter()
    wanted = range(len(topology.tasks) + 1) if budgets is None else sorted(set(budgets))
    report = progress or (lambda done, total: None)
    best = Best(topology, metric, Deadline(2 * time_limit))
    best.grow()
    best.cut_back()
    best.rank()
    for plan in others:
        if plan.metric is metric:
            best.offer(topology.numbers(plan.tasks), plan.value)
    order = _spread(list(wanted))
    for budget in order:
        if time.perf_counter() < started + time_limit / 3:
            best.take_from(structure_aware.plan, budget)
    best.sweep()
    deadline = started + time_limit
    if len(topology.tasks) <= PROVABLE:
        for budget in order:
            if time.perf_counter() < started + time_limit * 2 / 3:
                best.exchange(budget)
        best.sweep()
        for done, budget in enumerate(order, 1):
            best.prove(budget, deadline - time.perf_counter(), len(order) - done + 1)
            report(done, len(order))
    best.sweep()
    report(len(wanted), len(wanted))
    seconds = (time.perf_counter() - started) / max(1, len(wanted))
    return [Plan.of_outcome("default", best.problem(b), best.outcome(b), seconds) for b in wanted]


def _spread(budgets: list[int]) -> list[int]:
    """The same budgets in an order that covers the whole range early: the middle one, then the middles of both halves …"""
    order: list[int] = []
    halves = [budgets]
    while halves:
        half, *halves = halves
        if half:
            middle = len(half) // 2
            order.append(half[middle])
            halves += [half[:middle], half[middle + 1 :]]
    return order


@dataclass
class Best:
    """The best plan and the best bound known for every budget."""

    topology: Topology
    metric: Metric
    deadline: Deadline
    """When helping neighbours and cutting back stop, in topologies so large that they alone would take too long."""
    plans: list[frozenset[int]] = field(init=False)
    values: list[float] = field(init=False)
    bounds: list[float] = field(init=False)

    def __post_init__(self) -> None:
        n = len(self.topology.tasks)
        self.plans = [frozenset()] * (n + 1)
        self.values = [self.problem(0).value(())] * (n + 1)
        self.bounds = [np.inf] * (n + 1)

    def problem(self, budget: int) -> Problem:
        return Problem(self.topology, budget, self.metric)

    @property
    def whole(self) -> Problem:
        return self.problem(len(self.topology.tasks))

    @property
    def compiled(self) -> Compiled:
        return compile_topology(self.topology, self.metric)

    def offer(self, plan: frozenset[int], value: float) -> None:
        """Take a plan for its size, if it is better."""
        if value > self.values[len(plan)]:
            self.plans[len(plan)], self.values[len(plan)] = plan, value

    def grow(self) -> None:
        """Offer every stage of a plan grown over the whole topology."""
        compiled = self.whole.compiled
        alive, plan = compiled.external.copy(), frozenset[int]()
        for move in Search(self.whole, self.deadline).grow(alive):
            plan = plan.union(move.tasks)
            self.offer(plan, compiled.value(compiled.mask(plan)))

    def cut_back(self) -> None:
        """Offer every stage of the whole topology cut back to nothing, looking ahead and not."""
        search = Search(self.whole)
        for ahead in (True, False):
            alive = np.ones(search.compiled.tasks, dtype=bool)
            while (left := int((alive & search.replicable).sum())) and not self.deadline.passed:
                self._offer_mask(left, alive)
                search.drop_once(alive, left if ahead else 1)

    def rank(self) -> None:
        """Offer the plans of `greedy`: the first b of one ranking."""
        compiled = self.whole.compiled
        loss = np.where(compiled.external, -1.0, compiled.losses)
        alive = compiled.external.copy()
        for task in np.argsort(-loss, kind="stable")[: self.whole.room]:
            alive[task] = True
            self._offer_mask(int((alive & ~compiled.external).sum()), alive)

    def take_from(self, planner: Callable[[Problem], Outcome], budget: int) -> None:
        """Offer what another planner finds for a budget, and every stage of how it came there."""
        chosen = set[int]()
        for step in planner(self.problem(budget)).steps:
            chosen |= self.topology.numbers(step.added)
            chosen -= self.topology.numbers(step.removed)
            self.offer(frozenset(chosen), step.value)

    def sweep(self) -> None:
        """Let every plan help its neighbours: one task more, one task less. Afterwards values and bounds are monotone."""
        for b in range(1, len(self.plans)):
            if not self.deadline.passed:
                self._from_below(b)
        for b in range(len(self.plans) - 2, 0, -1):
            if not self.deadline.passed:
                self._from_above(b)
        for b in range(1, len(self.plans)):
            if self.values[b] < self.values[b - 1]:
                self.plans[b], self.values[b] = self.plans[b - 1], self.values[b - 1]
        for b in range(len(self.bounds) - 2, -1, -1):
            self.bounds[b] = min(self.bounds[b], self.bounds[b + 1])

    def _from_below(self, budget: int) -> None:
        compiled, plan = self.compiled, self.plans[budget - 1]
        alive = compiled.mask(plan)
        if len(alive) <= PROVABLE:
            Search(self.problem(budget)).regrow(alive)
        else:
            gain = compiled.gains(alive)
            gain[alive] = 0.0
            alive[int(gain.argmax())] = gain.max() > 0
        self._offer_mask(budget, alive)

    def _from_above(self, budget: int) -> None:
        alive = self.compiled.mask(self.plans[budget + 1])
        Search(self.problem(budget)).drop(alive, len(self.plans[budget + 1]) - budget)
        self._offer_mask(budget, alive)

    def _offer_mask(self, budget: int, alive: Mask) -> None:
        value = self.compiled.value(alive)
        if value > self.values[budget]:
            chosen = np.flatnonzero(alive & ~self.compiled.external)
            self.plans[budget], self.values[budget] = frozenset(int(i) for i in chosen), value

    def exchange(self, budget: int) -> None:
        """Improve one budget's plan by exchanges."""
        search = Search(self.problem(budget))
        self._offer_mask(budget, search.exchange(self.compiled.mask(self.plans[budget])))

    def prove(self, budget: int, seconds: float, waiting: int) -> None:
        """Prove this budget's plan or find a better one; nothing is done where the bound is reached or the time is up."""
        if seconds <= 0 or proven(self.values[budget], self.bounds[budget]):
            return
        problem = self.problem(budget)
        share = min(1.0, seconds, max(0.05, 3 * seconds / waiting))
        outcome = prove(problem, Trace(problem, set(self.plans[budget])), share)
        self.plans[budget], self.values[budget] = outcome.chosen, problem.value(outcome.chosen)
        if outcome.bound is not None:
            self.bounds[budget] = min(self.bounds[budget], outcome.bound)

    def outcome(self, budget: int) -> Outcome:
        """The answer for one budget, the rest of the budget spent."""
        problem, value = self.problem(budget), self.values[budget]
        trace = Trace(problem)
        trace.replace(self.plans[budget], "from the curve over all budgets")
        trace.spend_rest()
        bound = self.bounds[budget]
        if proven(value, bound):
            return Outcome(frozenset(trace.chosen), Status.OPTIMAL, tuple(trace.steps), value)
        known = float(bound) if np.isfinite(bound) else None
        return Outcome(frozenset(trace.chosen), Status.HEURISTIC, tuple(trace.steps), known)
