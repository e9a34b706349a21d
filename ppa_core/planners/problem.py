"""Input and output of a planner: `Problem`, `Trace` of its steps, `Outcome` and `Plan`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property

import numpy as np

from ppa_core.errors import RequestError
from ppa_core.fidelity import Compiled, Mask, Metric, compile_topology
from ppa_core.topology import Topology


class Status(StrEnum):
    """How good a plan is known to be: proven optimal, not known, or not proven before the time or memory limit."""

    OPTIMAL = "optimal"
    HEURISTIC = "heuristic"
    TIME_LIMIT = "time_limit"


@dataclass(frozen=True)
class Problem:
    """Choose at most `budget` tasks of a topology so that the metric is as high as possible with only these alive."""

    topology: Topology
    budget: int
    metric: Metric = Metric.OF
    time_limit: float = 10.0

    def __post_init__(self) -> None:
        n = len(self.topology.tasks)
        if type(self.budget) is not int:  # a bool, a float or a string, from code that is not type-checked
            raise RequestError("budget", f"{self.budget!r} is not a whole number")
        if not 0 <= self.budget <= n:
            raise RequestError(
                "budget",
                f"{self.budget} is out of range; it must be from 0 to {n}, the number of tasks of {self.topology.name!r}",
            )
        if not self.time_limit > 0:
            raise RequestError("time limit", f"{self.time_limit} is not a positive number of seconds")

    @cached_property
    def compiled(self) -> Compiled:
        return compile_topology(self.topology, self.metric)

    @cached_property
    def replicable(self) -> Mask:
        """The tasks that can take budget: all but the external ones."""
        return ~self.compiled.external

    @property
    def room(self) -> int:
        """How many tasks a plan can hold: the budget, or all replicable tasks where there are fewer."""
        return min(self.budget, int(self.replicable.sum()))

    def value(self, tasks: Iterable[int]) -> float:
        """The metric with exactly these tasks (and the external ones) alive."""
        return self.compiled.value(self.compiled.mask(frozenset(tasks)))


@dataclass(frozen=True)
class PlanStep:
    """One step of a planner: the tasks added and removed, the metric afterwards, and the reason."""

    added: tuple[str, ...]
    value: float
    note: str
    removed: tuple[str, ...] = ()


@dataclass
class Trace:
    """The growing plan of one planner run, with its steps."""

    problem: Problem
    chosen: set[int] = field(default_factory=set)
    steps: list[PlanStep] = field(default_factory=list)

    @property
    def left(self) -> int:
        return self.problem.room - len(self.chosen)

    @property
    def mask(self) -> Mask:
        return self.problem.compiled.mask(self.chosen)

    def add(self, tasks: Iterable[int], note: str) -> None:
        """Add tasks (those already chosen do not count again) and write down why."""
        new = set(tasks) - self.chosen - self.problem.topology.external_tasks
        self.chosen |= new
        self.steps.append(PlanStep(self.problem.topology.ids(new), self.problem.value(self.chosen), note))

    def replace(self, tasks: Iterable[int], note: str) -> None:
        """Replace the current plan."""
        new = set(tasks) - self.problem.topology.external_tasks
        ids = self.problem.topology.ids
        added, removed = ids(new - self.chosen), ids(self.chosen - new)
        self.chosen = new
        self.steps.append(PlanStep(added, self.problem.value(new), note, removed))

    def spend_rest(self) -> None:
        """Use the rest of the budget for the tasks whose failure alone costs most.

        This cannot lower the metric, and helps in failures milder than the worst case.
        """
        if self.left <= 0:
            return
        loss = self.problem.compiled.losses.copy()
        loss[list(self.chosen)] = -1.0
        loss[~self.problem.replicable] = -1.0
        best = np.argsort(-loss, kind="stable")[: self.left]
        self.add((int(i) for i in best), "the rest of the budget, by the loss if each fails alone")


@dataclass(frozen=True)
class Outcome:
    """The result of a planner: the chosen tasks by number, how good they are known to be, and the steps."""

    chosen: frozenset[int]
    status: Status
    steps: tuple[PlanStep, ...]
    bound: float | None = None
    """No plan within the budget exceeds this."""


@dataclass(frozen=True)
class Plan:
    """The result for the user: which tasks get a replica, and the worst-case OF and IC."""

    planner: str
    metric: Metric
    budget: int
    tasks: tuple[str, ...]
    of: float
    ic: float
    status: Status
    bound: float | None
    seconds: float
    steps: tuple[PlanStep, ...] = ()

    @classmethod
    def of_outcome(cls, planner: str, problem: Problem, outcome: Outcome, seconds: float) -> Plan:
        """An outcome, valued in both metrics."""
        worth = {metric: compile_topology(problem.topology, metric) for metric in Metric}
        value = {metric: compiled.value(compiled.mask(outcome.chosen)) for metric, compiled in worth.items()}
        return cls(
            planner,
            problem.metric,
            problem.budget,
            problem.topology.ids(outcome.chosen),
            value[Metric.OF],
            value[Metric.IC],
            outcome.status,
            outcome.bound,
            seconds,
            outcome.steps,
        )

    @property
    def value(self) -> float:
        """The plan's value in the metric it was made for."""
        return self.of if self.metric is Metric.OF else self.ic
