"""Drills end to end: real Spark, real Redis servers, real SIGKILL. Every run ends with the record of a run without failure."""

from __future__ import annotations

from typing import Any

import pytest

from ppa_core.errors import BadInput
from ppa_core.runtime.drill import Kill, Setup, drill
from ppa_core.runtime.host import Settings
from ppa_core.runtime.nodes import launch

TASKS = {f"O1.{n}" for n in range(1, 9)} | {f"O2.{n}" for n in range(1, 5)} | {"O3.1", "O3.2", "O4.1"}


def run(*kills: Kill, budget: int, batches: int = 14, every: int = 4) -> dict[str, Any]:
    options = {"rate": 100, "window": 6.0, "batch_seconds": 1.0}
    report = drill(Setup("tree", options, budget, kills, Settings(batches=batches, checkpoint_every=every)))
    assert report["different_batches"] == []
    assert report["equal_to_failure_free"] is True
    batches_seen = report["batches"]
    assert batches_seen["accurate"] + batches_seen["corrected"] == batches
    assert batches_seen["tentative"] == batches_seen["corrected"]
    return report


@pytest.mark.drill
def test_all_primaries_killed_goes_on_tentatively_and_corrects_every_batch() -> None:
    report = run(Kill("primaries", 6), budget=8)
    assert report["killed"] == ["n1", "n2", "n3", "n4"]
    assert set(report["lost_tasks"]) == TASKS
    assert report["batches"]["tentative"] >= 1
    assert report["predicted_of"] == pytest.approx(0.5)
    assert report["accuracy"] == pytest.approx(0.5, abs=0.2)
    assert report["seconds"]["detected"] < 3
    assert report["seconds"]["reconciled"] > report["seconds"]["first_tentative"]


@pytest.mark.drill
def test_standbys_then_a_rack_then_the_driver_then_the_workers_killed_and_nothing_is_lost() -> None:
    kills = (Kill("standbys", 3), Kill("rack:r1", 6), Kill("driver", 8), Kill("executor", 11))
    report = run(*kills, budget=15, batches=16)
    assert report["killed"][-2:] == ["driver", "executor"]


@pytest.mark.drill
def test_no_replica_at_all_recovers_every_task_from_its_checkpoint() -> None:
    report = run(Kill("primaries", 7), budget=0, batches=15)
    assert report["predicted_of"] == 0.0
    assert report["plan"] == []
    assert report["batches"]["tentative"] >= 1


def test_what_cannot_be_killed_is_refused_with_what_can() -> None:
    with pytest.raises(BadInput, match="not one of none, primaries"):
        Kill("everything", 3)
    with launch(primaries=1, standbys=1, racks=1, memory_mb=16) as nodes:
        with pytest.raises(BadInput, match="no such rack; there are r1, s1"):
            Kill("rack:r9", 3).nodes(nodes.cluster)
        with pytest.raises(BadInput, match="no node 'n9'; there are n1, s1"):
            Kill("node:n1,n9", 3).nodes(nodes.cluster)
