"""What the pages share and what needs no page to be tested: places, pictures, effects, conditions, words."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from monitoring.records import Health, Life, NodeInfo, NodeRecord, PipelineInfo
from monitoring.views import BatchRecord, Snapshot, TaskRecord
from pages.shared import words
from pages.shared.budgets import change, find_points, gap, worth
from pages.shared.condition import notices
from pages.shared.effects import (
    effect,
    known_nodes,
    nodes_of,
    pace_of,
    recovery_seconds,
    share_of_work,
    verdict,
    verdicts,
    with_plan,
)
from pages.shared.loads import alike, loaded
from pages.shared.picture import Scene, clicked, on_trees, topology_figure
from pages.shared.placing import MOST_LINES, layout, lines, opened_by_itself
from pages.shared.series import moment, strip_chart
from pages.shared.tables import effect_lines
from ppa_core.fidelity import Metric
from ppa_core.planners import plan
from ppa_core.topology import Topology, covered, derive, load_example, to_dict
from tests.pages.recording import large
from tests.strategies import topologies

NODES = (*(NodeInfo(f"n{i}", f"r{i % 2}", "primary") for i in range(4)), NodeInfo("s1", "s", "standby"))


def tasks_of(topology: Topology, replicas: dict[str, str] | None = None) -> list[TaskRecord]:
    """The tasks that can fail, on the nodes in turn, with checkpoints on the standby."""
    inner = [task for i, task in enumerate(topology.tasks) if i not in topology.external_tasks]
    known = replicas or {}
    return [
        TaskRecord(
            task, task.rpartition(".")[0], "replicated" if task in known else "running", f"n{i % 4}", f"r{i % 2}",
            known.get(task), "s1", checkpoint_age=3, replica_lag=0 if task in known else None,
        )
        for i, task in enumerate(inner)
    ]  # fmt: skip


def snapshot_of(topology: Topology, tasks: list[TaskRecord]) -> Snapshot:
    info = PipelineInfo("p", "r", "q", to_dict(topology), NODES, 1000.0, 1.0)
    batch = BatchRecord(7, 1007.0, "accurate", 1.0)
    return Snapshot(info, batch, 1.0, tasks=tuple(tasks), health=Health(1008.0))


# ------------------------------------------------------------------------------------------------------ places, pictures


@settings(max_examples=40, deadline=None)
@given(topologies(), st.data())
def test_no_two_marks_are_at_one_place_and_no_rate_is_lost(topology: Topology, data: st.DataObject) -> None:
    opened = data.draw(st.frozensets(st.sampled_from(sorted(topology.by_name))))
    drawn = layout(topology, opened)
    places = {
        (float(drawn.x[i]), float(drawn.y[i])): name if name not in opened else i
        for name, span in topology.span.items()
        for i in span
    }
    marks = sum(len(span) if name in opened else 1 for name, span in topology.span.items())
    assert len(places) == marks
    found = lines(drawn)
    if not found.left_out:
        whole = sum(flow.received(len(topology.span[end])).sum() for (_, end), flow in derive(topology).flows.items())
        assert found.rate.sum() == pytest.approx(whole, rel=1e-6, abs=1e-9)


def test_upstream_is_left_of_downstream() -> None:
    topology = load_example("q2")
    drawn = layout(topology, frozenset(topology.by_name))
    found = lines(drawn)
    assert (drawn.x[found.up] < drawn.x[found.down]).all()


def test_huge_full_edge_is_drawn_by_its_dearest_substreams() -> None:
    topology = large(2000)
    found = lines(layout(topology, frozenset({"J", "A"})))
    assert len(found.up) <= MOST_LINES + 10 * 200
    assert found.left_out == 200 * 200 - MOST_LINES


def test_large_topology_is_closed_and_a_small_one_open() -> None:
    assert opened_by_itself(large()) == frozenset()
    assert opened_by_itself(load_example("tree")) == frozenset(load_example("tree").by_name)


def test_replicated_trees_are_those_that_the_plan_covers() -> None:
    topology = load_example("tree")
    for budget in (4, 5, 12, 20):
        chosen = plan(topology, budget, "exact").tasks
        inside = set().union(*covered(topology, topology.numbers(chosen)), set())
        assert set(np.flatnonzero(on_trees(topology, chosen))) == inside


def test_picture_has_few_traces_and_is_the_same_for_the_same_scene() -> None:
    topology = large()
    states = dict.fromkeys(topology.tasks, "running")
    scene = Scene(topology, states, frozenset({"A.1"}), opened=frozenset(topology.by_name))
    figure = topology_figure(scene, "#000000")
    assert len(figure.data) <= 25
    noisy = replace(scene, flows={task: 100.0 + i % 2 for i, task in enumerate(topology.tasks) if task.startswith("A.")})
    calm = replace(scene, flows={task: 100.5 for task in topology.tasks if task.startswith("A.")})
    assert topology_figure(noisy, "#000000") is topology_figure(calm, "#000000")  # noise does not redraw it


def test_every_state_has_its_own_mark_and_its_word() -> None:
    topology = load_example("tree")
    names = ["failed", "recovering", "tentative", "taken_over", "replicated"]
    states = dict(zip(topology.tasks, names, strict=False))
    figure = topology_figure(Scene(topology, states, progress={topology.tasks[1]: 0.42}), "#000000")
    marks = [trace for trace in figure.data if trace.name and ": " in trace.name]
    assert len({trace.marker.symbol for trace in marks}) == len({trace.marker.color for trace in marks}) == 6
    assert any("42 %" in text for trace in marks for text in trace.text)


def test_click_on_a_task_and_beside_one() -> None:
    assert clicked([{"customdata": "O1.1"}]) == clicked([{"customdata": ["O1.1"]}]) == "O1.1"
    assert clicked([{"x": 1}]) == clicked([]) == ""


# ------------------------------------------------------------------------------------------------------------- effects


def test_replica_elsewhere_saves_a_task_and_one_on_the_same_rack_does_not() -> None:
    topology = load_example("q1")
    first, second, third = (task.task for task in tasks_of(topology)[:3])
    tasks = tasks_of(topology, {first: "n1", second: "n3", third: "s1"})
    found = effect(topology, tasks, ["n0", "n2"], 0.5)
    assert {first, third} <= set(found.taken_over)
    alone = effect(topology, tasks, ["n1", "n3"], 0.5)
    assert second in alone.missing  # its replica went with it
    assert 0 <= found.of < 1
    assert found.of_now == 1.0
    assert found.trees is not None
    assert found.trees_lost is not None
    assert 0 < found.trees_lost <= found.trees
    share = share_of_work(topology, found.missing)
    assert 0 < share < 1
    assert found.recovery == pytest.approx(2.0 + 0.5 * (1 + share * 3))


def test_nothing_lost_is_nothing_changed() -> None:
    topology = load_example("tree")
    found = effect(topology, tasks_of(topology), [], 1.0)
    assert (found.of, found.missing, found.trees_lost, found.recovery) == (1.0, (), 0, None)
    assert found.safe


def test_replica_that_was_never_synchronised_saves_nothing() -> None:
    topology = load_example("tree")
    tasks = [replace(task, replica_lag=None) for task in tasks_of(topology, dict.fromkeys(topology.tasks, "s1"))]
    assert effect(topology, tasks, ["n0"]).missing


def test_tasks_that_are_missing_already_count_in_both() -> None:
    topology = load_example("tree")
    tasks = [replace(task, state="failed") if task.task == "O5.1" else task for task in tasks_of(topology)]
    found = effect(topology, tasks, ["s1"])
    sink = topology.sinks[0]
    if f"{sink}.1" == "O5.1":
        assert found.of == found.of_now == 0.0
    assert not found.missing


def test_a_replay_works_anew_what_the_missing_tasks_and_those_after_them_take_in() -> None:
    topology = load_example("tree")  # O1.1 feeds O2.1, that O3.1, that O4.1; no task of it is external
    taken = dict(zip(topology.tasks, derive(topology).input, strict=True))
    branch = sum(taken[task] for task in ("O1.1", "O2.1", "O3.1", "O4.1"))
    assert share_of_work(topology, ["O1.1"]) == pytest.approx(branch / sum(taken.values()))
    assert share_of_work(topology, ["O1.1", "O4.1"]) == share_of_work(topology, ["O1.1"])
    assert share_of_work(topology, topology.tasks) == 1.0
    assert share_of_work(topology, []) == 0.0


def test_recovery_is_not_guessed_without_a_checkpoint() -> None:
    topology = load_example("tree")
    task = tasks_of(topology)[0]
    assert recovery_seconds([replace(task, checkpoint_age=None)], 1.0) is None
    assert recovery_seconds([task], None) is None
    assert recovery_seconds([], 1.0) is None


def test_lost_checkpoint_is_said() -> None:
    topology = load_example("tree")
    found = effect(topology, tasks_of(topology), ["n0", "s1"])
    assert set(found.from_source) == set(found.missing) != set()


def test_plan_for_everything_makes_every_node_safe() -> None:
    topology = load_example("q1")
    tasks = tasks_of(topology)
    snapshot = snapshot_of(topology, with_plan(snapshot_of(topology, tasks).info, tasks, [t.task for t in tasks], []))
    found = {each.target: each for each in verdicts(topology, snapshot, 1.0)}
    assert {each.word for each in found.values()} == {"yes"}
    assert set(found) == {"rack:r0", "rack:r1", "node:n0", "node:n1", "node:n2", "node:n3", "node:s1"}
    bare = {each.target: each.word for each in verdicts(topology, snapshot_of(topology, tasks), 1.0)}
    assert bare["node:n0"] == "no"
    assert bare["node:s1"] == "yes"


def test_node_that_is_lost_is_called_lost() -> None:
    topology = load_example("q1")
    snapshot = replace(snapshot_of(topology, tasks_of(topology)), nodes=(NodeRecord("n0", "r0", "primary", alive=False),))
    assert [node.alive for node in known_nodes(snapshot)] == [False, True, True, True, True]
    assert nodes_of(snapshot, ["rack:r0", "node:s1"]) == ("n0", "n2", "s1")
    assert verdict("node:n0", False, effect(topology, snapshot.tasks, ["n0"])).word == "lost"


# ----------------------------------------------------------------------------------------------------------- conditions


def test_fresh_data_needs_no_words() -> None:
    assert notices(snapshot_of(load_example("tree"), []), "", 1010.0) == []


@pytest.mark.parametrize(
    ("snapshot", "trouble", "now", "word"),
    [
        (None, "refused", 0.0, "nothing was read from it before"),
        (None, "", 0.0, "knows nothing of this pipeline"),
        (snapshot_of(load_example("tree"), []), "refused", 1010.0, "what is shown is old"),
        (snapshot_of(load_example("tree"), []), "", 1100.0, "told nothing for 1 min 32 s"),
        (replace(snapshot_of(load_example("tree"), []), life=Life(1009.0, "failed", "no room")), "", 2000.0, "has failed"),
        (replace(snapshot_of(load_example("tree"), []), life=Life(1009.0, "paused", "")), "", 2000.0, "is paused"),
        (replace(snapshot_of(load_example("tree"), []), batch=None), "", 1010.0, "no output yet"),
    ],
)
def test_what_is_wrong_with_the_data_is_said(snapshot: Snapshot | None, trouble: str, now: float, word: str) -> None:
    found = notices(snapshot, trouble, now)
    assert word in found[0].sentence
    if snapshot is not None and snapshot.batch is not None:
        assert "The last data is from 1970-01-01 00:16" in found[0].sentence


# ---------------------------------------------------------------------------------------------- budgets, words, drawings


def test_points_cover_every_budget_of_a_small_topology() -> None:
    found = find_points(load_example("tree"), "default", Metric.OF, 1.0, 2.0)
    assert [each.budget for each in found.plans] == list(range(32))
    assert not found.sparse
    assert find_points(load_example("mc_trees"), "structured", Metric.OF, 1.0, 1.0).planner == "structured"


def test_change_names_what_comes_goes_and_stays() -> None:
    found = change(["a", "b"], ["b", "c"])
    assert (found.added, found.removed, found.kept) == (("c",), ("a",), ("b",))


def test_gap_is_a_share_of_the_bound() -> None:
    best = plan(load_example("tree"), 9, "exact")
    assert gap(best, best.bound) == 0.0
    assert gap(replace(best, of=best.of / 2), best.of) == pytest.approx(0.5)
    assert gap(best, None) is None


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.42, "0.4 s"),
        (12.4, "12 s"),
        (59.9, "1 min 0 s"),
        (3725, "1 h 2 min"),
        (200_000, "2 d 7 h"),
        (-5, "−5.0 s"),
        (None, "–"),
    ],
)
def test_spans_of_time(seconds: float | None, text: str) -> None:
    assert words.lasted(seconds) == text


def test_numbers_of_any_size() -> None:
    assert words.number(1_234_567) == "1 234 567"
    assert words.number(10**40) == "about 10^40"
    assert words.size(1_500_000) == "1.5 MB"
    assert words.clock(1e30) == words.clock(None) == "–"
    assert words.named(["a"] * 14, 12).endswith(" and 2 more")


def test_strip_has_one_cell_a_batch_and_survives_odd_times() -> None:
    batches = [BatchRecord(i, 1e30 if i == 3 else 1000.0 + i, "accurate", 1.0) for i in range(100)]
    chart = strip_chart(batches)
    assert chart.data.num_rows == 60
    assert moment(1e30) is None
    json.dumps(chart.spec)


# ------------------------------------------------------------------------------------------------------------------ loads


@settings(max_examples=40, deadline=None)
@given(topologies())
def test_with_the_rates_that_it_has_anyway_a_topology_is_worth_the_same(topology: Topology) -> None:
    rates = derive(topology)
    names = [task for i, task in enumerate(topology.tasks) if i not in topology.external_tasks]
    taken, put = ({task: float(each[topology.index[task]]) for task in names} for each in (rates.input, rates.output))
    now = loaded(topology, taken, put)
    chosen = names[::2]
    assert worth(now, chosen) == pytest.approx(worth(topology, chosen), abs=1e-6)


def test_rates_that_are_measured_take_the_place_of_those_declared() -> None:
    tree = load_example("tree")
    put = {task: 100.0 if task.endswith(".1") else 1.0 for task in tree.tasks}
    now = loaded(tree, {}, put)
    assert worth(now, ["O1.1", "O2.1", "O3.1", "O4.1", "S.1"]) > 0.3
    assert alike(now, loaded(tree, {}, {task: 7 * rate for task, rate in put.items()}))
    assert not alike(now, loaded(tree, {}, {**put, "O1.2": 50.0}))
    assert not alike(now, tree)


def test_a_drained_node_can_be_brought_back_and_one_in_use_cannot() -> None:
    found = effect(load_example("tree"), tasks_of(load_example("tree")), ["n0"])
    assert effect_lines("bring back", found, [], ["n0"]) == ["n0 is used again for tasks and copies."]
    assert "nothing to do" in effect_lines("bring back", found, [], [])[0]
    assert "drained already" in effect_lines("graceful failover", found, [], ["n0"])[0]


def test_a_replayed_batch_takes_longer_where_batches_leave_little_time() -> None:
    batches = [BatchRecord(b, 1000.0 + b, "accurate", 1.0, seconds=0.5) for b in range(5)]
    assert pace_of(batches, 1.0) == pytest.approx(1.0)
    assert pace_of(batches, 0.4) == pytest.approx(2.5)
    assert pace_of([], 1.0) is None
