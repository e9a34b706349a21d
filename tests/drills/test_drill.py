"""Drills end to end: real Spark, real Redis servers, real SIGKILL. Every run ends with the record of a run without failure."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ppa_core.drills.baseline import without_spark
from ppa_core.drills.drill import Setup, drill
from ppa_core.drills.failures import PlannedFailure
from ppa_core.drills.report import Seen
from ppa_core.driver.records import Settings
from ppa_core.engine.run_events import NodeBack, NodeLost
from ppa_core.errors import BadInput
from ppa_core.nodes.embedded import launch

TASKS = {f"O1.{n}" for n in range(1, 9)} | {f"O2.{n}" for n in range(1, 5)} | {"O3.1", "O3.2", "O4.1"}
BATCHES = 15
SHIFTING = Settings(batches=20, checkpoint_every=8, interval=0.5, deadline=30.0)


def setup(*kills: PlannedFailure, budget: int, technique: str = "ppa", primaries: int = 4) -> Setup:
    options = {"rate": 100, "window": 4.0, "batch_seconds": 1.0}
    settings = Settings(batches=BATCHES, checkpoint_every=4, interval=0.5, deadline=30.0)
    return Setup("tree", options, budget, kills, settings, technique=technique, primaries=primaries)


@pytest.fixture(scope="module")
def baseline() -> Seen:
    return without_spark(setup(budget=0))


def run(wanted: Setup, baseline: Seen) -> dict[str, Any]:
    report = drill(wanted, baseline=baseline)
    assert report["different_batches"] == []
    assert report["equal_to_failure_free"] is True
    return report


@pytest.mark.drill
def test_all_primaries_killed_goes_on_with_the_replicas_and_corrects_every_batch(baseline: Seen) -> None:
    report = run(setup(PlannedFailure("primaries", 6), budget=8), baseline)
    assert report["failed"] == ["n1", "n2", "n3", "n4"]
    assert set(report["lost_tasks"]) == TASKS
    assert report["predicted_of"] == pytest.approx(0.5)
    assert report["batches"]["accurate"] + report["batches"]["corrected"] == BATCHES
    assert report["batches"]["tentative"] == report["batches"]["corrected"]
    assert report["seconds"]["all_recovered"] is not None


@pytest.mark.drill
def test_a_node_hangs_and_returns_another_is_slow_the_workers_hang_then_all_primaries_and_nothing_is_lost() -> None:
    """Nobody closes a connection, and nobody is told: batches go on without whoever is silent."""
    failures = (
        PlannedFailure("node:n1", 4, "hang", 3.0),
        PlannedFailure("node:n2", 10, "slow:300", 3.0),
        PlannedFailure("executor", 16, "hang"),
        PlannedFailure("primaries", 24, "hang"),
    )
    wanted = replace(setup(*failures, budget=8), settings=Settings(batches=30, checkpoint_every=4))
    events: list[Any] = []
    report = drill(wanted, events.append, without_spark(replace(wanted, failures=(), budget=0)))
    assert report["different_batches"] == []
    assert report["batches"]["tentative"] == report["batches"]["corrected"]
    assert report["failed"] == ["n1", "n2", "executor", "n1", "n2", "n3", "n4"]
    suspected = [event.node for event in events if isinstance(event, NodeLost) and event.suspected]
    assert {"n1", "n2", "n3", "n4"} <= set(suspected)
    assert "n1" in [event.node for event in events if isinstance(event, NodeBack) and event.kept]
    assert report["longest_silence"] < 30


@pytest.mark.drill
def test_standbys_then_a_rack_then_the_driver_then_the_workers_killed_and_nothing_is_lost(baseline: Seen) -> None:
    kills = (
        PlannedFailure("standbys", 3),
        PlannedFailure("rack:r1", 6),
        PlannedFailure("driver", 8),
        PlannedFailure("executor", 11),
    )
    report = run(setup(*kills, budget=15), baseline)
    assert report["failed"] == ["s1", "s2", "s3", "s4", "n1", "n3", "driver", "executor"]
    assert set(report["lost_tasks"]) >= {"O1.1", "O4.1"}


@pytest.mark.drill
def test_nodes_by_name_and_then_the_driver_killed_without_any_replica(baseline: Seen) -> None:
    report = run(setup(PlannedFailure("node:n1,n2", 5), PlannedFailure("driver", 6), budget=0), baseline)
    assert report["plan"] == []
    assert report["predicted_of"] == 0.0


@pytest.mark.drill
def test_without_replicas_and_checkpoints_everything_is_rebuilt_from_the_source_and_no_file_is_left(
    baseline: Seen, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    report = run(setup(PlannedFailure("primaries", 8), budget=0, technique="source-replay"), baseline)
    assert set(report["lost_tasks"]) == TASKS
    assert report["seconds"]["all_recovered"] is not None
    assert list(tmp_path.iterdir()) == []


@pytest.mark.drill
def test_a_plan_that_follows_the_load_is_worth_more_under_a_kill_than_the_old_one() -> None:
    """The load moves at batch 8 from the first half of the keys to the other; at batch 16 all primaries are killed."""
    base = Setup("tests.support.shifting:shifting", {}, 5, (PlannedFailure("primaries", 16),), SHIFTING)
    clean = without_spark(base)
    stuck = drill(base, baseline=clean)
    follows = drill(replace(base, settings=replace(base.settings, replan_every=3)), baseline=clean)
    for report in (stuck, follows):
        assert report["equal_to_failure_free"] is True
    assert stuck["plan"] == ["A.1", "A.2", "B.1", "B.2", "C.1"]
    assert stuck["plan_changes"] == []
    assert stuck["lowest_of"] == pytest.approx(0.1, abs=0.02)
    (change,) = follows["plan_changes"]
    assert change["plan"] == ["A.3", "A.4", "B.3", "B.4", "C.1"]
    assert 8 <= change["batch"] <= 13
    assert follows["lowest_of"] == pytest.approx(0.9, abs=0.02)


def test_what_cannot_be_killed_is_refused_with_what_can() -> None:
    with pytest.raises(BadInput, match="not one of none, primaries"):
        PlannedFailure("everything", 3)
    with pytest.raises(BadInput, match="source replay has no replicas"):
        setup(budget=3, technique="source-replay")
    with launch(primaries=1, standbys=1, racks=1, memory_mb=16) as nodes:
        with pytest.raises(BadInput, match="unknown rack; the racks are r1, s1"):
            PlannedFailure("rack:r9", 3).nodes(nodes.cluster)
        with pytest.raises(BadInput, match="unknown node 'n9'; the nodes are n1, s1"):
            PlannedFailure("node:n1,n9", 3).nodes(nodes.cluster)
