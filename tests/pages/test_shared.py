"""What the pages share and what needs no page to be tested: places, pictures, effects, conditions, words."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from monitoring.records import NodeInfo, NodeStatus, PipelineInfo, RunStatus, TaskPlacement, Totals, WriterHealth
from monitoring.views import BatchRecord, Snapshot, join_tasks
from pages.shared import words
from pages.shared.budgets import change, find_points, gap
from pages.shared.condition import notices
from pages.shared.details import delay_line
from pages.shared.effects import known_nodes, nodes_of, pace_of, placement_of, targets, verdict, verdicts
from pages.shared.picture import Scene, clicked, on_trees, topology_figure
from pages.shared.placing import MOST_LINES, layout, lines, opened_by_default
from pages.shared.series import moment, strip_chart
from pages.shared.tables import effect_lines
from ppa_core.engine.predictions import predict, with_plan
from ppa_core.fidelity import Metric
from ppa_core.planners import plan
from ppa_core.topology import Topology, covered, derive, load_example, to_dict
from tests.engine.test_machine import ALL, running
from tests.engine.world import World
from tests.pages.recording import large
from tests.strategies import topologies

NODES = (*(NodeInfo(f"n{i}", f"r{i % 2}", "primary") for i in range(4)), NodeInfo("s1", "s", "standby"))


def snapshot_of(topology: Topology) -> Snapshot:
    info = PipelineInfo("p", "r", "q", to_dict(topology), NODES, 1000.0, 1.0)
    batch = BatchRecord(7, 1007.0, "accurate", 1.0)
    return Snapshot(info, batch, 1.0, health=WriterHealth(1008.0))


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
    assert opened_by_default(large()) == frozenset()
    assert opened_by_default(load_example("tree")) == frozenset(load_example("tree").by_name)


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


def snapshot_in(world: World) -> Snapshot:
    """What the monitor has of a running machine."""
    placement = world.machine.placement
    nodes = tuple(NodeInfo(node.name, node.rack, node.role) for node in world.nodes)
    info = PipelineInfo("p", "r", "q", to_dict(world.topology), nodes, 1000.0, 1.0)
    homes = TaskPlacement(1000.0, placement.primaries, placement.replicas, placement.checkpoints)
    tasks = join_tasks(world.graph.tasks, homes, None, {node.name: node.rack for node in nodes})
    return Snapshot(
        info, BatchRecord(world.machine.head, 1007.0, "accurate", 1.0), 1.0, tasks=tasks, standing=world.machine.standing()
    )


def judged(world: World) -> dict[str, str]:
    snapshot = snapshot_in(world)
    assert snapshot.standing is not None
    return {each.target: each.word for each in verdicts(world.topology, snapshot, snapshot.standing, 1.0)}


def test_a_node_whose_replicas_lag_is_not_safe_to_take_down() -> None:
    """Replicas are synchronised in every third batch: in between, the newest version is with the homes alone."""
    world = running(21, plan=ALL, options={"sync_every": 3, "checkpoint_every": 0})
    assert set(judged(world).values()) == {"yes"}
    world.batch()
    homes = {f"node:{home}" for home in world.machine.placement.primaries.values()}
    assert {target for target, word in judged(world).items() if word == "no"} == {*homes, "rack:r0", "rack:r1"}


def test_a_node_with_tasks_that_have_no_state_is_safe_to_take_down() -> None:
    world = running(20, plan=frozenset(), options={"checkpoint_every": 0}, lookback_batches=dict.fromkeys("ABCD", 0))
    assert set(judged(world).values()) == {"yes"}


def test_plan_for_everything_makes_every_node_safe() -> None:
    world = running(21, plan=frozenset(), options={"checkpoint_every": 0})
    snapshot = snapshot_in(world)
    assert judged(world)["node:n0"] == "no"
    assert judged(world)["node:s0"] == "yes"
    assert snapshot.standing is not None
    planned = with_plan(snapshot.standing, placement_of(snapshot), ALL)
    found = {each.target: each for each in verdicts(world.topology, snapshot, planned, 1.0)}
    assert {each.word for each in found.values()} == {"yes"}
    assert {"rack:r0", "rack:r1", "node:n0", "node:n1", "node:n2", "node:n3", "node:s0"} <= set(found)
    assert placement_of(snapshot).primaries == world.machine.placement.primaries


def test_node_that_is_lost_is_called_lost_and_the_last_one_is_not_safe() -> None:
    world = running()
    snapshot = replace(snapshot_in(world), nodes=(NodeStatus("n0", "r0", "primary", alive=False),))
    assert [node.alive for node in known_nodes(snapshot)][:2] == [False, True]
    assert nodes_of(snapshot, ["rack:r0", "node:s1"]) == ("n0", "n2", "s1")
    standing = world.machine.standing()
    assert verdict("node:n0", False, predict(standing, ["n0"], world.topology)).word == "lost"
    everything = verdict("rack:r", True, predict(standing, standing.nodes, world.topology))
    assert (everything.word, everything.why) == ("no", "no other node would be left")


# ----------------------------------------------------------------------------------------------------------- conditions


def test_fresh_data_needs_no_words() -> None:
    assert notices(snapshot_of(load_example("tree")), "", 1010.0) == []


@pytest.mark.parametrize(
    ("snapshot", "trouble", "now", "word"),
    [
        (None, "refused", 0.0, "there is no earlier data"),
        (None, "", 0.0, "no data for this pipeline yet"),
        (snapshot_of(load_example("tree")), "refused", 1010.0, "this page shows old data"),
        (snapshot_of(load_example("tree")), "", 1100.0, "No data from the pipeline for 1 min 32 s"),
        (snapshot_of(load_example("tree")), "", 1012.6, "No output for"),
        (replace(snapshot_of(load_example("tree")), life=RunStatus(1009.0, "failed", "no room")), "", 2000.0, "has failed"),
        (replace(snapshot_of(load_example("tree")), life=RunStatus(1009.0, "paused", "")), "", 2000.0, "is paused"),
        (replace(snapshot_of(load_example("tree")), batch=None), "", 1010.0, "no output yet"),
    ],
)
def test_what_is_wrong_with_the_data_is_said(snapshot: Snapshot | None, trouble: str, now: float, word: str) -> None:
    found = notices(snapshot, trouble, now)
    assert word in found[0].sentence
    if snapshot is not None and snapshot.batch is not None:
        assert "Last data: 1970-01-01 00:16" in found[0].sentence


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
    assert words.duration(seconds) == text


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


def test_each_action_says_what_it_does_or_that_there_is_nothing_to_do() -> None:
    world = running()
    found = predict(world.machine.standing(), ["n0"], world.topology)

    def effects(action: str, nodes: list[str], lost: Sequence[str] = (), drained: Sequence[str] = ()) -> list[str]:
        known = [NodeStatus(n.name, n.rack, n.role, n.name not in lost, drained=n.name in drained) for n in world.nodes]
        return effect_lines(action, nodes, found, known)

    used = ["Used again for tasks and copies: n0"]
    assert effects("restore", ["n0"], drained=["n0"]) == used
    assert effects("restore", ["n0"], ["n0"]) == used
    assert effects("restore", ["n0", "n1"], ["n0"]) == used, "of a rack, only those that are not in use"
    assert effects("restore", ["n0"]) == ["n0 is in use: nothing to do."]
    assert effects("undrain", ["n0", "n1"], ["n1"], ["n0"]) == used
    assert effects("undrain", ["n0"], ["n0"]) == ["n0 is not drained: nothing to do."]
    assert effects("kill", ["n0"], ["n0"]) == ["n0 is already lost: nothing to do."]
    assert effects("drain", ["n0"], drained=["n0"]) == ["n0 is already drained: nothing to do."]
    others = [node.name for node in world.nodes[1:]]
    refused = ["It would be refused: no other node would be left. Restore another one first."]
    assert effects("drain", ["n0"], others[:2], others[2:]) == refused
    assert effects("fail", ["n0"], others) == refused
    assert effects("fail", ["n0"], others[:2], others[2:]) != refused, "the drained ones are used again"
    assert "No output becomes tentative; the OF does not change." in effects("drain", ["n0"])
    assert effects("fail", ["n0"]) == effects("kill", ["n0"])
    assert any(line.startswith("Missing until they are recovered: ") for line in effects("fail", ["n0"]))


@pytest.mark.parametrize(
    ("action", "wanted"),
    [
        ("drain", "node:n2 node:n3 node:s1 rack:r0 rack:r1 rack:s"),
        ("undrain", "node:n1 rack:r1"),
        ("fail", "node:n1 node:n2 node:n3 node:s1 rack:r0 rack:r1 rack:s"),
        ("kill", "node:n1 node:n2 node:n3 node:s1 rack:r0 rack:r1 rack:s"),
        ("restore", "node:n0 node:n1 rack:r0 rack:r1"),
    ],
)
def test_an_action_is_offered_only_for_nodes_that_it_applies_to(action: str, wanted: str) -> None:
    """n0 is lost, n1 is drained, the others are in use."""
    nodes = (NodeStatus("n0", "r0", "primary", alive=False), NodeStatus("n1", "r1", "primary", drained=True))
    assert targets(action, replace(snapshot_of(load_example("tree")), nodes=nodes)) == wanted.split()


def test_a_replayed_batch_takes_longer_where_batches_leave_little_time() -> None:
    batches = [BatchRecord(b, 1000.0 + b, "accurate", 1.0, seconds=0.5) for b in range(5)]
    assert pace_of(batches, 1.0) == pytest.approx(1.0)
    assert pace_of(batches, 0.4) == pytest.approx(2.5)
    assert pace_of([], 1.0) is None


def test_the_delay_of_outputs_is_told_with_its_deadline() -> None:
    snapshot = snapshot_of(load_example("tree"))
    assert delay_line(snapshot) == "no output yet\ndeadline 2 s: none late"
    late = replace(snapshot, totals=Totals(9, late_outputs=2, worst_lateness=1.25, delay=0.44))
    assert delay_line(late) == "last output 0.4 s after its interval\ndeadline 2 s: 2 late, by 1.2 s at most"
