"""The machine in its world: fault scenarios by name, and generated ones."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ppa_core.runtime.machine import BatchReady, Unexpected
from tests.runtime.world import World

ALL = frozenset(World().graph.tasks)


def running(batches: int = 20, **options: object) -> World:
    """A world after some batches without failure."""
    world = World(**options)  # type: ignore[arg-type]
    for _ in range(batches):
        world.batch()
    assert all(len(history) == 1 for history in world.emitted.values())
    return world


def primaries(world: World) -> list[str]:
    return sorted(set(world.machine.placement.primaries.values()))


def statuses(world: World) -> list[str]:
    return ["+".join(emit.status for emit in world.emitted[batch]) for batch in sorted(world.emitted)]


def test_without_failures_every_batch_is_accurate_at_once() -> None:
    world = running(40)
    assert statuses(world) == ["accurate"] * 40
    world.check()


def test_nodes_forget_what_nobody_needs() -> None:
    world = running(200, options={"checkpoint_every": 5})
    held = sum(len(states) for states in world.states.values())
    kept = sum(len(outputs) for outputs in world.outputs.values())
    assert held < 9 * 3 * 8
    assert kept < 9 * 3 * 16


def test_all_primaries_lost_then_every_tentative_batch_is_corrected() -> None:
    world = running()
    world.lose(*primaries(world))
    assert world.machine.missing == ALL - world.plan
    world.batch()
    world.batch()
    assert statuses(world)[-2:] == ["tentative", "tentative"]
    assert world.emitted[20][0].missing == ALL - world.plan
    world.settle()
    assert statuses(world)[20:22] == ["tentative+correction"] * 2
    assert statuses(world)[-1] == "accurate"


def test_tasks_with_a_replica_go_on_without_a_tentative_batch() -> None:
    world = running(plan=ALL)
    world.lose(*primaries(world))
    assert not world.machine.missing
    world.settle()
    assert set(statuses(world)) == {"accurate"}


def test_no_replica_at_all_is_purely_passive() -> None:
    world = running(plan=frozenset())
    world.lose(*primaries(world))
    assert world.machine.missing == ALL
    world.batch()
    world.settle()
    assert statuses(world)[20] == "tentative+correction"


def test_rack_lost_in_the_middle_of_a_batch_runs_it_again() -> None:
    world = running()
    world.begin()
    assert world.pending
    first = world.pending.order.attempt
    world.lose("n0", "n2", done=frozenset({"A.2", "A.3"}))
    assert world.pending.order.attempt > first
    world.finish()
    world.settle()


def test_second_rack_lost_while_recovering_corrects_every_tentative_batch() -> None:
    world = running()
    world.lose("n0", "n2")
    world.batch()
    world.lose("n1", "n3")
    world.batch()
    world.settle()
    assert statuses(world)[20:22] == ["tentative+correction"] * 2


def test_new_home_lost_while_recovering() -> None:
    world = running()
    world.lose(*primaries(world))
    world.batch()
    world.lose(next(iter(world.machine.placement.primaries.values())))
    world.batch()
    world.settle()


def test_replicas_node_lost_before_its_primary() -> None:
    world = running()
    world.lose(world.machine.placement.replicas["D.1"])
    world.batch()
    world.lose(world.machine.placement.primaries["D.1"])
    world.settle()


def test_all_standbys_lost_makes_new_checkpoints_at_once() -> None:
    world = running(options={"checkpoint_every": 50}, batches=60)
    world.lose("s0", "s1", "s2")
    for _ in range(6):
        world.batch()
    assert set(statuses(world)) == {"accurate"}
    assert not any(world.machine._unchecked(task) for task in world.graph.tasks)
    world.settle()


def test_checkpoints_and_primaries_lost_then_the_source_is_replayed_from_the_beginning() -> None:
    world = running(8, options={"checkpoint_every": 50}, plan=frozenset())
    world.lose(*primaries(world), "s0", "s1")
    world.batch()
    world.settle()
    assert statuses(world)[8] == "tentative+correction"


def test_node_back_is_used_again() -> None:
    world = running()
    world.lose("n0")
    world.settle()
    world.back("n0")
    world.lose("n1", "n2", "n3")
    world.settle()


def test_replicas_that_lag_are_replayed_from_where_they_are() -> None:
    world = running(22, plan=ALL, options={"sync_every": 5})
    world.lose(*primaries(world))
    assert world.machine.missing
    replay = world.machine.replaying
    assert replay is not None
    assert replay.orders[0].batch >= 15, "from the replicas, not from the checkpoints"
    world.settle()


def test_a_changed_plan_is_followed_without_a_tentative_batch() -> None:
    world = running()
    world.replan(frozenset({"C.1", "C.2", "D.1"}))
    world.batch()
    world.lose(world.machine.placement.primaries["C.1"])
    assert "C.1" not in world.machine.missing
    world.settle()


def test_a_batch_out_of_turn_is_a_defect_with_its_story() -> None:
    world = running(3)
    with pytest.raises(Unexpected, match="batch 7 is ready, head is 2"):
        world.machine.handle(BatchReady(7))


def test_a_short_replay_is_awaited_so_that_catching_up_ends() -> None:
    world = running(options={"checkpoint_every": 1})
    world.lose(*primaries(world))
    world.begin()
    assert not world.machine.missing
    assert world.pending
    world.finish()
    assert set(statuses(world)) == {"accurate"}


class Storm(RuleBasedStateMachine):
    """Any sequence of batches, losses, returns, replays and plans."""

    @initialize(every=st.integers(1, 12), sync=st.integers(1, 3), plan=st.frozensets(st.sampled_from(sorted(ALL))))
    def start(self, every: int, sync: int, plan: frozenset[str]) -> None:
        self.world = World(plan=plan, options={"checkpoint_every": every, "sync_every": sync})

    @rule(times=st.integers(1, 4))
    def batches(self, times: int) -> None:
        for _ in range(times):
            self.world.batch()

    @rule(node=st.sampled_from(["n0", "n1", "n2", "n3", "s0", "s1", "s2"]), done=st.frozensets(st.sampled_from(sorted(ALL))))
    @precondition(lambda self: len(self.world.down) < 5)
    def lose_in_flight(self, node: str, done: frozenset[str]) -> None:
        self.world.begin()
        if node not in self.world.down:
            self.world.lose(node, done=done)
        while self.world.pending:
            self.world.finish()

    @rule(node=st.sampled_from(["n0", "n1", "n2", "n3", "s0", "s1", "s2"]))
    @precondition(lambda self: len(self.world.down) < 5)
    def lose(self, node: str) -> None:
        if node not in self.world.down:
            self.world.lose(node)

    @rule(node=st.sampled_from(["n0", "n1", "n2", "n3", "s0", "s1", "s2"]))
    def back(self, node: str) -> None:
        if node in self.world.down:
            self.world.back(node)

    @rule()
    def replay(self) -> None:
        self.world.finish_replay()

    @rule(plan=st.frozensets(st.sampled_from(sorted(ALL))))
    def replan(self, plan: frozenset[str]) -> None:
        self.world.replan(plan)

    @invariant()
    def sound(self) -> None:
        if hasattr(self, "world"):
            self.world.check()

    def teardown(self) -> None:
        if hasattr(self, "world"):
            self.world.settle()


TestStorm = Storm.TestCase
TestStorm.settings = settings(max_examples=60, stateful_step_count=25, deadline=None, derandomize=True, database=None)
