"""The machine in its world: nodes that fall silent and answer again, and batches without an output by their deadline."""

from __future__ import annotations

import pytest

from tests.engine.test_machine import ALL, primaries, running, statuses


def test_suspects_that_answer_before_the_next_batch_cost_nothing() -> None:
    world = running()
    world.suspect(*primaries(world))
    assert world.machine.missing == ALL - world.plan
    for node in sorted(world.machine.suspended):
        world.answer(node)
    assert not world.machine.missing
    assert not world.machine.replaying
    world.settle()
    assert set(statuses(world)) == {"accurate"}


def test_a_suspicion_that_costs_one_batch_is_corrected_by_replaying_that_batch_alone() -> None:
    world = running(20, options={"checkpoint_every": 15})
    nodes = primaries(world)
    world.suspect(*nodes)
    assert world.replay
    assert len(world.replay.orders) > 1  # from checkpoints
    world.begin(patient=False)
    for node in nodes:
        world.answer(node)
    world.finish()
    assert world.replay is not None
    assert [order.batch for order in world.replay.orders] == [20]
    world.settle()
    assert statuses(world)[19:22] == ["accurate", "tentative+correction", "accurate"]


def test_a_suspect_that_answers_makes_the_replay_of_its_tasks_shorter() -> None:
    world = running(29, options={"checkpoint_every": 15})
    nodes = primaries(world)
    world.suspect(*nodes)
    before = world.replay
    assert before
    world.begin(patient=False)
    world.finish()
    for node in nodes:
        world.answer(node)
    assert world.replay
    assert world.replay.attempt != before.attempt
    assert len(world.replay.orders) < len(before.orders)
    world.settle()
    assert statuses(world).count("tentative+correction") == 1


def test_a_suspect_that_is_dead_after_all_returns_empty() -> None:
    world = running()
    node = primaries(world)[0]
    world.suspect(node)
    world.batch()
    world.die(node)
    assert not world.machine.suspended
    world.back(node)
    assert all(node not in copies for copies in world.machine.copies.values())
    world.settle()


def test_what_was_recovered_meanwhile_is_not_taken_from_a_suspect_that_answers() -> None:
    world = running()
    nodes = primaries(world)
    world.suspect(*nodes)
    for _ in range(3):
        world.batch()
        world.finish_replay()
    for node in nodes:
        world.answer(node)
    world.lose(*(node.name for node in world.nodes if node.name not in nodes))
    world.settle()


@pytest.mark.parametrize("answers", [True, False])
def test_a_driver_that_is_restarted_knows_its_suspects(answers: bool) -> None:
    world = running()
    nodes = primaries(world)
    world.suspect(*nodes)
    world.batch()
    held = {node: dict(copies) for node, copies in world.machine.suspended.items()}
    world.restart()
    assert world.machine.suspended == held
    for node in nodes:
        world.answer(node) if answers else world.die(node)
    assert not world.machine.suspended
    world.settle()


def test_a_banned_suspect_is_not_used_though_it_answers() -> None:
    world = running()
    node = primaries(world)[0]
    world.suspect(node)
    world.tell_banned(node)
    world.answer(node)
    world.down.add(node)
    assert node in world.machine.lost
    world.settle()


def test_flapping_neither_loses_anything_nor_starves_the_output() -> None:
    world = running()
    nodes = primaries(world)
    for _ in range(20):
        world.suspect(*nodes)
        world.batch()
        for node in nodes:
            world.answer(node)
        world.batch()
    world.settle()
    assert len(world.emitted) >= 60


# ------------------------------------------------------------------------------------------------------------- deadlines


def test_without_an_output_by_the_deadline_there_is_an_empty_one_and_the_result_corrects_it() -> None:
    world = running()
    world.begin()
    world.late()
    assert [(emit.status, emit.attempt, emit.missing) for emit in world.emitted[20]] == [("tentative", 0, ALL)]
    world.finish()
    assert statuses(world)[20] == "tentative+correction"
    world.settle()
    assert statuses(world)[21] == "accurate"


def test_a_late_batch_that_ran_without_tasks_is_corrected_when_they_are_back() -> None:
    world = running()
    world.begin()
    world.late()
    world.lose(*primaries(world))
    world.finish()
    assert [emit.status for emit in world.emitted[20]] == ["tentative"]
    world.settle()
    assert statuses(world)[20] == "tentative+correction"


def test_batches_that_were_not_begun_by_their_deadlines_are_corrected_in_turn() -> None:
    world = running()
    world.begin()
    for ahead in range(4):
        world.late(ahead)
    world.finish()
    world.settle()
    assert statuses(world)[20:24] == ["tentative+correction"] * 4


def test_a_deadline_that_passes_after_the_output_changes_nothing() -> None:
    world = running()
    world.late(-1)
    assert statuses(world) == ["accurate"] * 20


def test_a_restarted_driver_knows_which_batches_have_an_empty_output() -> None:
    world = running()
    world.begin()
    world.late()
    world.late(1)
    world.restart()
    world.settle()
    assert statuses(world)[20:22] == ["tentative+correction"] * 2
