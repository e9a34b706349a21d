"""Q2: incidents that cause jams, against a reference over all tuples; what is lost, and what accuracy and OF say of it."""

from __future__ import annotations

from collections import defaultdict
from statistics import fmean

import numpy as np
import pyarrow as pa
import pytest

from ppa_core.errors import BadInput
from ppa_core.planners import plan
from ppa_core.queries import Query, load_query
from ppa_core.queries.q2 import JAM_BELOW
from ppa_core.queries.traffic import Locations, Reports, Roads
from ppa_core.topology import derive
from tests.queries.failing import Trial

SMALL = {"rate": 500, "window": 20, "slide": 2, "users": 10_000, "incident_seconds": 2 / 15}
"""As many incidents in a window and segments as in the paper, with a tenth of the tuples and of the users."""


def tuples(query: Query, name: str, batches: range) -> list[dict[str, int]]:
    operator = query.pipeline.by_name[name]
    assert operator.source is not None
    tables = [operator.source.read(task, batch) for batch in batches for task in range(operator.tasks)]
    found: list[dict[str, int]] = pa.concat_tables(tables).to_pylist()
    return found


def jams(query: Query, batch: int, window: int) -> list[tuple[int, int, int]]:
    """Incident, segment and reports, by looking at every tuple of the window."""
    batches = range(max(0, batch + 1 - window), batch + 1)
    speeds: dict[int, list[int]] = defaultdict(list)
    reports: dict[tuple[int, int], int] = defaultdict(int)
    for row in tuples(query, "locations", batches):
        speeds[row["segment"]].append(row["speed"])
    for row in tuples(query, "incidents", batches):
        reports[row["incident"], row["segment"]] += 1
    slow = {segment for segment, seen in speeds.items() if fmean(seen) < JAM_BELOW}
    return sorted((incident, segment, count) for (incident, segment), count in reports.items() if segment in slow)


@pytest.fixture(scope="module")
def trial() -> Trial:
    return Trial(load_query("q2", **SMALL), 28)


def test_every_slide_has_the_incidents_of_the_window_on_slow_segments(trial: Trial) -> None:
    for batch, output in trial.outputs.items():
        found = list(zip(*(output[name].to_pylist() for name in ("incident", "segment", "reports")), strict=True))
        assert found == (jams(trial.query, batch, 20) if batch % 2 else [])


def test_tens_of_incidents_are_found_and_not_all(trial: Trial) -> None:
    assert 20 < trial.outputs[27].num_rows < 100


def test_a_replay_gives_the_same_bytes(trial: Trial) -> None:
    assert trial.without((), 24) == {batch: trial.outputs[batch] for batch in range(24, 28)}


def test_the_defaults_are_the_papers_rates() -> None:
    topology = load_query("q2").pipeline.topology()
    flows = derive(topology).flows
    assert flows["locations", "O1"].rates.sum() == 20_000
    assert flows["incidents", "O2"].rates.sum() == pytest.approx(98, rel=0.01)
    assert flows["O1", "O3"].rates.sum() == pytest.approx(100)
    assert flows["O2", "O3"].rates.sum() == pytest.approx(15)
    assert [len(topology.span[name]) for name in ("O1", "O2", "O3", "O4")] == [8, 4, 8, 1]


def test_the_declared_rates_are_about_those_seen(trial: Trial) -> None:
    flows = derive(trial.query.pipeline.topology()).flows
    for (up, down), flow in flows.items():
        seen = fmean(
            sum(rate for key, rate in trial.rates[b].items() if key.startswith(f"{up}.") and f">{down}." in key)
            for b in range(20, 28)
        )
        assert seen == pytest.approx(flow.rates.sum(), rel=0.35)


@pytest.mark.parametrize("planner", ["structure_aware", "greedy"])
def test_accuracy_under_the_loss_of_all_outside_a_plan_is_about_of(trial: Trial, planner: str) -> None:
    gaps = []
    for budget in (4, 8, 13, 17):
        chosen = plan(trial.query.pipeline.topology(), budget, planner)
        gaps.append(abs(trial.accuracy(set(trial.local.tasks) - set(chosen.tasks), 22) - chosen.of))
    assert fmean(gaps) <= 0.1


def test_plans_by_ic_have_no_join_to_show_for_it(trial: Trial) -> None:
    topology = trial.query.pipeline.topology()
    by_of, by_ic = (plan(topology, 13, "structure_aware", metric) for metric in ("of", "ic"))
    assert by_ic.ic > by_of.ic
    alive = set(trial.local.tasks)
    assert trial.accuracy(alive - set(by_ic.tasks), 22) < trial.accuracy(alive - set(by_of.tasks), 22) - 0.2


def test_a_lost_task_of_either_side_takes_its_segments_with_it_at_once(trial: Trial) -> None:
    for lost in ({"O1.2"}, {"O2.1"}, {"O3.5"}):
        tentative = trial.without(lost, 23)[23]
        assert 0 < tentative.num_rows < trial.outputs[23].num_rows
        assert set(tentative["incident"].to_pylist()) < set(trial.outputs[23]["incident"].to_pylist())


def test_accuracy_is_the_share_of_the_incidents(trial: Trial) -> None:
    def output(*incidents: int) -> pa.Table:
        return pa.table({"incident": pa.array(incidents, pa.int64())})

    accuracy = trial.query.accuracy
    assert accuracy(output(1, 2, 9), output(1, 2, 3, 4)) == 0.5
    assert accuracy(output(), output(1)) == 0
    assert accuracy(output(1), output()) == 1
    assert accuracy(output(), output()) is None


def test_users_are_spread_by_zipf_and_incidents_follow_them() -> None:
    roads = Roads(100_000, 1000, 2.0, 300.0, 1.0)
    users = np.bincount(roads.segment_of_user, minlength=1000)
    assert users.sum() == 100_000
    assert users[0] / users[99] == pytest.approx(10, rel=0.02)
    incidents = np.bincount(roads.segment_of_incident(np.arange(50_000)), minlength=1000)
    assert incidents[:100].sum() / 50_000 == pytest.approx(users[:100].sum() / 100_000, abs=0.01)
    assert roads.causes_jam(np.arange(50_000)).mean() == pytest.approx(0.5, abs=0.01)


def test_all_users_of_the_segment_report_an_incident_once() -> None:
    roads = Roads(1000, 20, 2.0, 10.0, 1.0)
    reports = Reports(roads, 3)
    for batch in range(6):
        seen = pa.concat_tables([reports.read(task, batch) for task in range(3)])
        for incident in roads.incidents(batch, batch + 1):
            home = roads.segment_of_incident(np.array([incident]))[0]
            users = [row["user"] for row in seen.to_pylist() if row["incident"] == incident]
            assert sorted(users) == np.flatnonzero(roads.segment_of_user == home).tolist()
        assert seen.num_rows == 0 or batch % 2 == 1


def test_sources_replay_and_differ_by_seed_task_and_batch() -> None:
    one, other = (Locations(Roads(1000, 20, 2.0, 10.0, 1.0, seed), 2, 100) for seed in (0, 1))
    assert one.read(1, 5) == one.read(1, 5)
    assert one.read(1, 5) not in (one.read(0, 5), one.read(1, 6), other.read(1, 5))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tasks": (4, 2, 8, 4, 8)}, "six positive numbers"),
        ({"tasks": (4, 2, 8, 3, 8, 1)}, "multiple"),
        ({"tasks": (4, 2, 4, 4, 8, 1)}, "one-to-one"),
        ({"rate": 0}, "positive"),
        ({"window": 25}, "multiple"),
        ({"slide": 2.5}, "whole number"),
        ({"segments": 0}, "segment"),
        ({"users": 10}, "at least as many users"),
        ({"incident_seconds": 0}, "positive"),
        ({"users": 1, "segments": 1}, "at least one user for each"),
        ({"logs": "x"}, "unknown option"),
    ],
)
def test_what_does_not_fit_is_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        load_query("q2", **options)
