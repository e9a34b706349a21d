"""Search over whole plans: grow, cut back, exchange. The engine of the default planner and of the budget curve.

Heuristic. Three moves, every one valued on the whole topology by the metric asked for:

1. *Grow.* Again and again the extension of the highest profit density (gain per new task): a single task, or a set of
   tasks that only together complete something, which the dynamic programme of `completion` finds without enumeration.
2. *Cut back.* From the whole topology alive, the task whose death costs least per task that dies or idles with it goes,
   until the budget is met. It sees what growing cannot: groups worth more than the sum of the trees they are grown from.
3. *Exchange.* The least valuable tasks of a plan are removed and the plan is grown again, as long as that helps.

Cost: O(R) growing steps and O(n - R) cuts, each one or few linear passes over tasks and narrow links (large topologies
take several tasks a pass), then a bounded number of exchanges. Limits: a local optimum. When the problem's time limit is
reached, growing ends, cutting back drops all remaining tasks at once, and the best plan so far is returned. Results are
reproducible only if the time limit is not reached.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from ppa_core.fidelity import Mask
from ppa_core.planners import greedy, structure_aware
from ppa_core.planners.completion import Completion, largest_tree
from ppa_core.planners.extensions import HUGE, ZERO, Deadline, gains_of_sets, together
from ppa_core.planners.next_trees import NextTrees
from ppa_core.planners.problem import Problem, Trace
from ppa_core.planners.structured import stopped
from ppa_core.topology.rates import Floats, Ints

BETTER = 1e-12
"""A plan must be better by this to replace another."""

CANDIDATES = 5
"""How many multi-task extensions are valued exactly per step."""

FINE = 2_000
"""Topologies of up to this many tasks are cut back task by task; larger ones several tasks at a time."""

EXCHANGES = 120
"""How much exchanging is done, in linear passes over the topology; not in seconds, so that the same problem has one plan."""

_CELLS = 4_000_000
"""How many tasks times groups of tasks a cut weighs against each other."""


def best_heuristic(trace: Trace) -> None:
    """Put the best plan that any heuristic finds into an empty trace, with its steps."""
    problem = trace.problem
    deadline = Deadline(problem.time_limit)
    outcome = structure_aware.plan(problem)
    trace.chosen, trace.steps = set(outcome.chosen), list(outcome.steps)
    search = Search(problem, deadline)
    for plan, note in _found(search, trace.mask):
        if problem.compiled.value(plan) > trace.steps[-1].value + BETTER:
            trace.replace((int(i) for i in np.flatnonzero(plan)), note)
    stopped(trace, deadline)


def _found(search: Search, begun: Mask) -> Iterator[tuple[Mask, str]]:
    """Plans of the search, while there is time, and the greedy one."""
    moves: tuple[tuple[Callable[[], Mask], str], ...] = (
        (lambda: begun, "exchange: the least valuable tasks replaced by better extensions"),
        (search.grown, "instead, grown over the whole topology, then exchanged"),
        (lambda: search.cut_back(ahead=True), "instead, cut back from the whole topology, then exchanged"),
        (lambda: search.cut_back(ahead=False), "instead, cut back task by task, then exchanged"),
    )
    for move, note in moves:
        if not search.deadline.passed:
            yield search.exchange(move()), note
    ranked = search.compiled.external.copy()
    ranked[greedy.ranking(search.problem)[1]] = True
    yield ranked, "instead, the tasks whose failure alone costs most"


def fill(trace: Trace, deadline: Deadline) -> None:
    """Grow a plan that another planner began, and spend the rest."""
    moves = list(Search(trace.problem, deadline).grow(trace.mask))
    trace.add((task for move in moves for task in move.tasks), "grown further by the best extensions")
    trace.spend_rest()


@dataclass(frozen=True)
class Move:
    """One extension of a plan and its gain."""

    tasks: tuple[int, ...]
    gain: float


class Search:
    """The moves on a plan, given as the mask of alive tasks (the external ones always among them)."""

    def __init__(self, problem: Problem, deadline: Deadline | None = None) -> None:
        self.problem, self.deadline = problem, deadline or Deadline()
        self.compiled, self.replicable, self.room = problem.compiled, problem.replicable, problem.room
        self.largest = largest_tree(self.compiled)
        self.exact = len(self.compiled.entangled) * self.compiled.tasks <= 100_000
        self.work = 0

    def left(self, alive: Mask) -> int:
        return self.room - int((alive & self.replicable).sum())

    def gains(self, alive: Mask) -> Floats:
        """What each task adds; in large topologies with entangled joins, to first order."""
        self.work += 1
        return self.compiled.gains(alive) if self.exact else self.compiled.slopes(alive[:, None])[:, 0]

    # ---------------------------------------------------------------------- grow

    def grow(self, alive: Mask) -> Iterator[Move]:
        """Extend `alive` in place, best profit density first, until the room is used, nothing gains or the time is up."""
        left, bar = self.left(alive), np.inf
        while left > 0 and not self.deadline.passed:
            gain = self.gains(alive)
            gain[alive] = 0.0
            singles = self._singles(gain, bar, left)
            if len(singles):
                alive[singles] = True
                left -= len(singles)
                yield from (Move((int(t),), float(gain[t])) for t in singles)
                continue
            move, bar = self._extension(alive, gain, left)
            if move is None:
                return
            alive[list(move.tasks)] = True
            left -= len(move.tasks)
            yield move

    def grown(self) -> Mask:
        """A plan grown from nothing."""
        alive = self.compiled.external.copy()
        self.regrow(alive)
        return alive

    def regrow(self, alive: Mask) -> None:
        """Grow in place, whatever the moves."""
        for _ in self.grow(alive):
            pass

    def _singles(self, gain: Floats, bar: float, left: int) -> Ints:
        """The single tasks that gain at least `bar`, the density of the best other extension known: one or a few of them."""
        count = max(1, left // 64)
        if count == 1:
            best = int(gain.argmax())
            return np.array([best] if gain[best] >= bar else [], dtype=np.intp)
        best_first = np.argsort(-gain, kind="stable")[:count]
        return np.asarray(best_first[gain[best_first] >= max(bar, 0.9 * gain[best_first[0]])])

    def _extension(self, alive: Mask, gain: Floats, left: int) -> tuple[Move | None, float]:
        """The extension of the highest density, and the density of the best multi-task one that was not taken."""
        self.work += 8
        sets = self._sets(alive, left)
        single = int(gain.argmax())
        if gain[single] > ZERO and (single,) not in sets:
            sets.append((single,))
        if not sets:
            sets = [tuple(sorted(tasks)) for tasks in NextTrees(self.compiled, alive, left).best(4 * CANDIDATES)]
        if not sets:
            return None, 0.0
        worth = gains_of_sets(self.compiled, alive, sets)
        density = worth / [len(tasks) for tasks in sets]
        best = int(density.argmax())
        if density[best] <= ZERO:
            return None, 0.0
        others = [float(d) for k, d in enumerate(density) if k != best and len(sets[k]) > 1]
        return Move(sets[best], float(worth[best])), max([ZERO, *others])

    def _sets(self, alive: Mask, left: int) -> list[tuple[int, ...]]:
        """Sets of tasks that complete something; in a huge topology, many that are about as dense in one."""
        table = Completion(self.compiled, alive, min(self.largest, left) if self.exact else self.largest)
        if self.compiled.tasks <= HUGE:
            return [tuple(sorted(extension.tasks)) for extension in table.best(left, CANDIDATES)]
        found = table.apart(left, max(CANDIDATES, left // 16))
        return [tuple(sorted(together(found, left)))] if found else []

    # ------------------------------------------------------------------ cut back

    def cut_back(self, ahead: bool) -> Mask:
        """The whole topology, cut down to the room: by the loss per task that idles, looking `ahead`, or by the loss alone."""
        alive = np.ones(self.compiled.tasks, dtype=bool)
        while (surplus := -self.left(alive)) > 0:
            if self.deadline.passed:
                self._drop_all(alive, surplus)
            else:
                self.drop_once(alive, surplus if ahead or len(alive) > FINE else 1)
        self.regrow(alive)
        return alive

    def _drop_all(self, alive: Mask, count: int) -> None:
        """Drop `count` tasks at once, by the loss that each alone would be."""
        loss = self.gains(alive)
        loss[~alive | ~self.replicable] = np.inf
        alive[np.argsort(loss, kind="stable")[:count]] = False

    def drop(self, alive: Mask, count: int) -> None:
        """Take at least `count` tasks out of `alive`, in place: those whose death costs least per task that idles then."""
        while count > 0:
            dropped = self.drop_once(alive, count)
            if not dropped:
                return
            count -= dropped

    def drop_once(self, alive: Mask, count: int) -> int:
        """One cut on the way to `count` fewer tasks; how many were dropped."""
        loss = self.gains(alive)
        loss[~alive | ~self.replicable] = np.inf
        idle = np.flatnonzero(loss <= ZERO)
        if not len(idle):
            idle = self._cheapest(alive, loss, count)
        alive[idle] = False
        return len(idle)

    def _cheapest(self, alive: Mask, loss: Floats, count: int) -> Ints:
        """What to drop next: the task or whole operator of the lowest loss per task that would die or idle with it."""
        order = np.argsort(loss, kind="stable")
        order = order[: np.searchsorted(loss[order], np.inf)]
        several = count // 64 if self.compiled.tasks > FINE else 0
        singles = order[: 1 if several > 1 else max(8, 20_000 // self.compiled.tasks)]
        operators = self._operators(alive)
        most = max(8, _CELLS // self.compiled.tasks)
        if len(operators) > most:
            operators = sorted(operators, key=lambda tasks: float(loss[tasks].mean()))[:most]
        groups = [np.array([task]) for task in singles] + operators
        if not groups:
            return order
        columns = np.repeat(alive[:, None], len(groups), axis=1)
        for k, group in enumerate(groups):
            columns[group, k] = False
        self.work += 2
        idle = (self.compiled.slopes(columns) <= ZERO) & columns & self.replicable[:, None]
        gone = idle.sum(axis=0) + [len(group) for group in groups]
        worth = self.compiled.batch(columns)
        best = int(((self.compiled.value(alive) - worth) / np.minimum(gone, count)).argmin())
        return order[:several] if several > 1 and best < len(singles) else groups[best]

    def _operators(self, alive: Mask) -> list[Ints]:
        """The alive tasks of each operator that has several."""
        spans = (stage.own for stage in self.compiled.stages if self.replicable[stage.own.start])
        found = (span.start + np.flatnonzero(alive[span]) for span in spans)
        return [tasks for tasks in found if len(tasks) > 1]

    # ------------------------------------------------------------------ exchange

    def exchange(self, alive: Mask) -> Mask:
        """Remove a few tasks, then more, and grow again; keep the plan if it is better."""
        best, size, stop = self.compiled.value(alive), 1, self.work + EXCHANGES
        while size <= self.room and self.work < stop and not self.deadline.passed:
            trial = alive.copy()
            self.drop(trial, size)
            self.regrow(trial)
            worth = self.compiled.value(trial)
            if worth > best + BETTER:
                alive, best, size = trial, worth, 1
            else:
                size = size + 1 if size < 4 else size * 8 // 5
        return alive
