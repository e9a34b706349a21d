"""The paper's random-topology study: mean OF of the planners over families of topologies and replication ratios."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from multiprocessing import get_context
from statistics import fmean

from ppa_core.planners import Status, plan
from ppa_core.topology import Family, Structure, generate

RATIOS = (0.1, 0.2, 0.4, 0.6)
PLANNERS = ("greedy", "structure_aware", "default", "exact")
SMALL = Family(operators=(5, 10), tasks=(1, 10))
EXACT_SECONDS = {SMALL.tasks: 10.0, (10, 20): 3.0}
"""Time limit of `exact` by the range of task counts; larger topologies are rarely proven in reasonable time."""


@dataclass(frozen=True)
class Setting:
    """One curve of one of the paper's figures."""

    experiment: str
    name: str
    family: Family


SETTINGS = (
    Setting("skew", "uniform", SMALL),
    Setting("skew", "Zipf 0.1", replace(SMALL, zipf=0.1)),
    Setting("skew", "Zipf 1", replace(SMALL, zipf=1.0)),
    Setting("parallelism", "1-10 tasks", SMALL),
    Setting("parallelism", "10-20 tasks", replace(SMALL, tasks=(10, 20))),
    Setting("partitioning", "structured", replace(SMALL, structure=Structure.STRUCTURED)),
    Setting("partitioning", "full", replace(SMALL, structure=Structure.FULL)),
    Setting("joins", "none", SMALL),
    Setting("joins", "half", replace(SMALL, joins=0.5)),
    Setting("joins", "all", replace(SMALL, joins=1.0)),
    Setting("sharing", "30 % feed two, half join", replace(SMALL, joins=0.5, zipf=0.1, sharing=0.3)),
)


@dataclass(frozen=True)
class Case:
    """One topology at one ratio: value and time of each planner, and whether `exact` proved its plan."""

    family: Family
    ratio: float
    values: dict[str, float]
    seconds: dict[str, float]
    bound: float
    proven: bool


def solve(work: tuple[Family, int, float]) -> Case:
    """All planners on topology number `seed` of a family with `ratio` of its tasks replicated."""
    family, seed, ratio = work
    topology = generate(family, seed)
    budget = max(1, round(ratio * len(topology.tasks)))
    plans = {name: plan(topology, budget, name, time_limit=EXACT_SECONDS[family.tasks]) for name in PLANNERS}
    exact = plans["exact"]
    return Case(
        family,
        ratio,
        {name: p.of for name, p in plans.items()},
        {name: p.seconds for name, p in plans.items()},
        exact.of if exact.bound is None else exact.bound,
        exact.status is Status.OPTIMAL,
    )


def run(topologies: int, workers: int, minutes: float) -> Iterator[tuple[int, int, Case]]:
    """Every case with the number of cases done and their total; a family of several experiments is measured once.

    The first topology of every family comes first, then the second …: what is done after `minutes` is a smaller study, not
    a part of one.
    """
    families = list(dict.fromkeys(setting.family for setting in SETTINGS))
    work = [(family, seed, ratio) for seed in range(topologies) for family in families for ratio in RATIOS]
    deadline = time.monotonic() + 60 * minutes
    with get_context("spawn").Pool(workers) as pool:
        for done, case in enumerate(pool.imap(solve, work), 1):
            yield done, len(work), case
            if time.monotonic() > deadline and done % (len(families) * len(RATIOS)) == 0:
                return


def rows(cases: list[Case]) -> list[dict[str, object]]:
    """Mean OF by setting and ratio, and the mean gap to the optimum (where it is not proven, to its bound)."""
    table: list[dict[str, object]] = []
    for setting in SETTINGS:
        for ratio in RATIOS:
            here = [case for case in cases if case.family == setting.family and case.ratio == ratio]
            mean = {name: fmean(case.values[name] for case in here) for name in PLANNERS}
            row: dict[str, object] = {"experiment": setting.experiment, "setting": setting.name, "ratio": ratio}
            row |= {"topologies": len(here), **mean}
            row |= {f"gap_{name}": 1 - mean[name] / mean["exact"] if mean["exact"] else 0.0 for name in PLANNERS[:3]}
            row |= {"bound": fmean(case.bound for case in here), "proven": fmean(case.proven for case in here)}
            table.append(row)
    return table


def summary(cases: list[Case]) -> dict[str, float | None]:
    """Summary: gaps over all cases, and results of `exact` on the topologies with 1-10 tasks per operator."""
    small = [case for case in cases if case.family.tasks == SMALL.tasks]
    took = sorted(case.seconds["exact"] for case in small)
    best = fmean(case.values["exact"] for case in cases)
    lowest = [case for case in cases if case.ratio == RATIOS[0]]
    worse = sum(case.values["structure_aware"] < case.values["greedy"] - 1e-9 for case in cases)
    greedy = fmean(case.values["greedy"] for case in lowest)
    return {
        "cases": len(cases),
        **{f"mean_gap_{name}": 1 - fmean(case.values[name] for case in cases) / best for name in PLANNERS[:3]},
        "structure_aware_over_greedy_at_lowest_ratio": (
            fmean(case.values["structure_aware"] for case in lowest) / greedy if greedy else None
        ),
        "cases_structure_aware_below_greedy": worse,
        "exact_cases": len(small),
        "exact_proven": fmean(case.proven and case.seconds["exact"] <= EXACT_SECONDS[SMALL.tasks] for case in small),
        "exact_median_seconds": took[len(took) // 2],
        "exact_p95_seconds": took[int(len(took) * 0.95)],
        "default_median_seconds": sorted(case.seconds["default"] for case in small)[len(small) // 2],
    }
