"""Plans by measured rates: when another one takes the place of the present one."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from ppa_core.engine.intent import PlanRequest
from ppa_core.engine.predictions import worst_case_of
from ppa_core.engine.replanning import propose
from ppa_core.errors import RequestError
from ppa_core.planners import plan as make_plan
from ppa_core.topology import Build, Topology, load_example

TOPOLOGY = load_example("mc_trees")
BEST = frozenset(make_plan(TOPOLOGY, 6, "exact").tasks)
NONE = frozenset[str]()
EXACT = PlanRequest(6, "exact")


def two_branches(left: float, right: float) -> Topology:
    """Two sources with a task each; a plan of two tasks can save one of them and the sink."""
    return (
        Build("branches")
        .source("L", 1, rate=left)
        .source("R", 1, rate=right)
        .operator("Z", 1, {"L": "full", "R": "full"})
        .done()
    )


def test_a_proposal_says_what_both_plans_are_worth_and_why_it_was_made() -> None:
    found = propose(TOPOLOGY, NONE, EXACT, "rates changed")
    assert found is not None
    assert (found.plan, found.request, found.reason) == (BEST, EXACT, "rates changed")
    assert found.of == worst_case_of(TOPOLOGY, BEST) > 0
    assert found.of_before == 0.0


def test_the_same_plan_is_no_proposal() -> None:
    assert propose(TOPOLOGY, BEST, EXACT, "asked") is None
    assert propose(TOPOLOGY, NONE, PlanRequest(0), "asked") is None


def test_a_plan_is_proposed_only_if_it_gains_more_than_the_threshold() -> None:
    greedy = frozenset(make_plan(TOPOLOGY, 6, "greedy").tasks)
    gain = worst_case_of(TOPOLOGY, BEST) - worst_case_of(TOPOLOGY, greedy)
    assert gain > 0
    assert propose(TOPOLOGY, greedy, EXACT, "rates changed", gain) is None
    found = propose(TOPOLOGY, greedy, EXACT, "rates changed", gain * 0.99)
    assert found is not None
    assert found.plan == BEST


def test_another_plan_of_equal_worth_is_no_proposal() -> None:
    even = two_branches(1.0, 1.0)
    for now in (frozenset({"L.1", "Z.1"}), frozenset({"R.1", "Z.1"})):
        assert propose(even, now, PlanRequest(2, "exact"), "rates changed") is None


def test_a_plan_over_the_budget_is_replaced_though_that_costs_fidelity() -> None:
    found = propose(TOPOLOGY, BEST, replace(EXACT, budget=3), "budget changed", gain=1.0)
    assert found is not None
    assert len(found.plan) <= 3
    assert found.of <= found.of_before
    none = propose(TOPOLOGY, BEST, replace(EXACT, budget=0), "budget changed", gain=1.0)
    assert none is not None
    assert none.plan == NONE


def test_the_plan_follows_the_rates() -> None:
    before = frozenset({"L.1", "Z.1"})
    assert propose(two_branches(9.0, 1.0), before, PlanRequest(2), "rates changed", 0.5) is None
    found = propose(two_branches(1.0, 9.0), before, PlanRequest(2), "rates changed", 0.5)
    assert found is not None
    assert found.plan == {"R.1", "Z.1"}
    assert (found.of, found.of_before) == pytest.approx((0.9, 0.1))


@pytest.mark.parametrize(("planner", "metric"), [("greedy", "of"), ("exact", "of"), ("exact", "ic")])
def test_the_wanted_planner_and_metric_make_the_plan(planner: str, metric: str) -> None:
    wanted = frozenset(make_plan(TOPOLOGY, 6, planner, metric).tasks)
    found = propose(TOPOLOGY, NONE, PlanRequest(6, planner, metric), "asked", gain=-1.0)
    assert found is not None
    assert found.plan == wanted
    assert found.of == worst_case_of(TOPOLOGY, wanted)  # of, whatever the plan was made by


def test_the_planners_and_metrics_of_these_tests_differ() -> None:
    made = {frozenset(make_plan(TOPOLOGY, 6, *how).tasks) for how in (("greedy", "of"), ("exact", "of"), ("exact", "ic"))}
    assert len(made) == 3


@pytest.mark.parametrize(
    ("wish", "reason"),
    [
        (PlanRequest(3, "best"), "best"),
        (PlanRequest(3, metric="x"), "metric"),
        (PlanRequest(-1), "budget: -1"),
        (PlanRequest(99), "budget: 99 is out of range; it must be from 0 to 14"),
    ],
)
def test_what_no_planner_can_do_is_refused_as_the_planner_refuses_it(wish: PlanRequest, reason: str) -> None:
    with pytest.raises(RequestError, match=re.escape(reason)):
        propose(TOPOLOGY, NONE, wish, "asked")
