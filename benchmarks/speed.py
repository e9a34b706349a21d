"""Run time of fidelity and planners by number of tasks."""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median

import numpy as np

from ppa_core.fidelity import compile_topology
from ppa_core.planners import curve, plan
from ppa_core.topology import Family, Topology, generate

SIZES = (10, 30, 100, 300, 1000, 3000, 10_000)
OPERATORS = 10
LIMITS = {"dp": 30, "exact": 300, "structured": 1000, "full": 3000, "default": 3000, "curve": 1000}
"""The largest topology that each planner is timed on; the others are timed on all."""

TIMED = ("greedy", "full", "structured", "structure_aware", "default", "exact", "dp")


def topology_of(tasks: int) -> Topology:
    """A mixed topology of ten operators with joins and skew, `tasks` in all."""
    each = max(1, tasks // OPERATORS)
    return generate(Family(operators=(OPERATORS, OPERATORS), tasks=(each, each), joins=0.5, zipf=0.1), seed=1)


def timed(work: Callable[[], object], repeat: int = 5) -> float:
    """The median time of `work` in seconds; what takes long is not repeated."""
    spent: list[float] = []
    for _ in range(repeat):
        started = time.perf_counter()
        work()
        spent.append(time.perf_counter() - started)
        if sum(spent) > 2:
            break
    return median(spent)


def fidelity_rows() -> list[dict[str, float]]:
    """Compiling a topology, one OF, 100 OFs in a batch, and all single-task gains, by size."""
    found = []
    for tasks in SIZES:
        topology = topology_of(tasks)
        compiled = compile_topology(topology)
        alive = np.random.default_rng(0).random((compiled.tasks, 100)) < 0.9
        found.append(
            {
                "tasks": compiled.tasks,
                "compile": timed(lambda t=topology: compile_topology.__wrapped__(t)),  # type: ignore[misc]
                "value": timed(lambda c=compiled, a=alive: c.value(a[:, 0])),  # type: ignore[misc]
                "batch_of_100": timed(lambda c=compiled, a=alive: c.batch(a)),  # type: ignore[misc]
                "gains": timed(lambda c=compiled, a=alive: c.gains(a[:, 0])),  # type: ignore[misc]
            }
        )
    return found


def planner_rows(tell: Callable[[str], None]) -> list[dict[str, object]]:
    """Seconds of each planner at a budget of 30 % of the tasks, and of the whole curve, by size."""
    found: list[dict[str, object]] = []
    for tasks in SIZES:
        topology = topology_of(tasks)
        n = len(topology.tasks)
        for name in TIMED:
            if tasks <= LIMITS.get(name, SIZES[-1]):
                tell(f"{name} on {n} tasks")
                seconds = timed(lambda t=topology, m=name, b=n: plan(t, round(0.3 * b), m), 3)  # type: ignore[misc]
                found.append({"planner": name, "tasks": n, "seconds": seconds})
        if tasks <= LIMITS["curve"]:
            tell(f"the whole curve on {n} tasks")
            found.append({"planner": "curve", "tasks": n, "seconds": timed(lambda t=topology: curve(t), 1)})  # type: ignore[misc]
    return found
