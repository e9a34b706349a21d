"""The machine in its world: fault scenarios by name, and generated ones."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ppa_core.engine.events import BatchReady
from ppa_core.engine.machine import UnexpectedEvent
from tests.engine.truth import small_topology
from tests.engine.world import World

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


def test_a_correction_has_the_sinks_too_that_went_on_without_loss() -> None:
    world = running(topology=small_topology(sinks=2), plan=frozenset({"A.3", "A.4", "B.2", "C.2", "D.2"}))
    world.lose(*primaries(world))
    assert world.machine.affected == {"A.1", "A.2", "B.1", "C.1", "D.1"}
    world.begin(patient=False)
    world.finish()
    world.begin(patient=False)
    world.finish()
    assert statuses(world)[-2:] == ["tentative"] * 2
    world.settle()


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
    kept = world.machine.placement.checkpoints
    assert all(world.machine.copies[task][kept[task]].batch >= 0 for task in world.graph.tasks)
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


def test_a_damaged_copy_of_a_task_with_a_replica_costs_no_tentative_batch() -> None:
    world = running(plan=ALL)
    for task, home in world.machine.placement.primaries.items():
        world.damage(home, task)
        world.batch()
        assert world.machine.placement.primaries[task] == home, "the node is as good as before"
    world.settle()
    assert "tentative" not in "".join(statuses(world))


def test_a_damaged_copy_without_a_replica_is_replayed_and_costs_no_other_task() -> None:
    world = running(plan=frozenset())
    home = world.machine.placement.primaries["A.1"]
    world.damage(home, "A.1")
    world.batch()
    assert world.emitted[20][0].missing == {"A.1"}
    world.settle()


def test_a_damaged_checkpoint_is_made_anew_at_once() -> None:
    world = running()
    kept = world.machine.placement.checkpoints["A.2"]
    world.damage(kept, "A.2")
    world.batch()
    assert world.machine.copies["A.2"][kept].batch == 20
    world.settle()
    assert "tentative" not in "".join(statuses(world))


def test_a_replay_whose_inputs_were_in_nodes_that_are_back_empty_is_begun_anew() -> None:
    """One holder of what it reads is lost and back, then the other: neither has it, though neither is lost any more."""
    world = running(primaries=3, standbys=3, plan=frozenset(), lookback_batches={"A": 0, "B": None, "C": 0, "D": 0})
    world.lose(world.machine.placement.primaries["B.2"])
    replay = world.machine.replaying
    assert replay is not None
    holders = replay.orders[0].outputs["A.3"].nodes
    assert len(holders) == 2
    for node in holders:
        world.lose(node)
        world.back(node)
    assert world.machine.replaying is not replay
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
    with pytest.raises(UnexpectedEvent, match="batch 7 is ready, head is 2"):
        world.machine.handle(BatchReady(7))


def test_a_short_replay_is_awaited_so_that_catching_up_ends() -> None:
    world = running(options={"checkpoint_every": 1})
    world.lose(*primaries(world))
    world.begin()
    assert not world.machine.missing
    assert world.pending
    world.finish()
    assert set(statuses(world)) == {"accurate"}


def test_a_batch_begun_without_tasks_stays_tentative_though_they_recover_while_it_runs() -> None:
    world = running()
    world.lose(*primaries(world))
    world.machine.short_replay = 0
    world.begin()
    world.finish_replay()
    world.finish()
    assert statuses(world)[20] == "tentative"
    world.machine.short_replay = 2
    world.settle()
    assert statuses(world)[20] == "tentative+correction"


def test_what_has_no_copy_left_is_rebuilt_from_no_further_back_than_its_windows() -> None:
    world = running(40, plan=frozenset(), options={"checkpoint_every": 0}, lookback_batches={"A": 3, "B": 4, "C": 0, "D": 2})
    world.lose(*primaries(world))
    replay = world.machine.replaying
    assert replay is not None
    assert replay.orders[0].batch == 40 - 2 - 4 - 3
    world.batch()
    world.settle()


def test_a_task_without_memory_goes_on_at_once() -> None:
    world = running(lookback_batches={"A": 0, "B": None, "C": 0, "D": 2})
    world.lose(*primaries(world))
    assert world.machine.missing == {"B.2"}
    world.settle()


def test_an_operator_that_never_forgets_is_rebuilt_from_the_first_batch() -> None:
    world = running(12, plan=frozenset(), options={"checkpoint_every": 0})
    world.lose(*primaries(world))
    assert world.machine.replaying is not None
    assert world.machine.replaying.orders[0].batch == 0
    world.settle()


def test_without_checkpoints_nodes_keep_outputs_only_as_long_as_a_window_may_need_them() -> None:
    world = running(100, plan=frozenset(), options={"checkpoint_every": 0}, lookback_batches={"A": 3, "B": 4, "C": 0, "D": 2})
    assert sum(len(outputs) for outputs in world.outputs.values()) < 9 * 12


def test_a_drained_node_is_left_without_a_tentative_batch_and_can_go() -> None:
    world = running()
    world.drain("n0", "n1")
    for _ in range(3):
        world.batch()
    assert not {"n0", "n1"} & set(world.machine.placement.primaries.values())
    world.lose("n0", "n1")
    assert not world.machine.missing
    world.settle()
    assert set(statuses(world)) == {"accurate"}


def test_a_node_that_dies_while_it_is_drained_is_recovered_from_copies() -> None:
    world = running(plan=frozenset())
    world.drain("n0")
    world.lose("n0")
    assert world.machine.missing
    world.batch()
    world.settle()


def test_a_job_that_fails_for_no_known_reason_is_run_again() -> None:
    world = running()
    world.begin()
    world.fail(done=frozenset({"A.1"}))
    assert world.pending
    world.finish()
    world.lose(*primaries(world))
    world.batch()
    world.fail()
    assert world.replay
    world.settle()


@pytest.mark.parametrize("when", ["idle", "in flight", "published", "node dead", "node back", "recovering", "caught up"])
def test_a_driver_that_dies_goes_on_from_its_ledger(when: str) -> None:
    world = running()
    if when == "in flight":
        world.begin()
    elif when == "recovering":
        world.lose(*primaries(world))
        world.batch()
    elif when == "caught up":
        world.lose(*primaries(world))
        world.batch()
        world.finish_replay()
    if when == "published":
        world.begin()
        world.finish(save=False)
    elif when.startswith("node"):
        world.restart("n0", back=when == "node back")
    else:
        world.restart()
    world.batch()
    world.settle()


def test_a_batch_that_cannot_wait_for_a_short_replay_goes_on_tentatively() -> None:
    world = running(options={"checkpoint_every": 2})
    world.lose(*primaries(world))
    world.begin(patient=False)
    world.finish()
    assert statuses(world)[20] == "tentative"
    world.settle()


NODES = st.sampled_from(["n0", "n1", "n2", "n3", "s0", "s1", "s2"])
TASKS = st.frozensets(st.sampled_from(sorted(ALL)))

LOOKBACKS = st.fixed_dictionaries({name: st.none() | st.integers(0, 4) for name in "ABCD"})


class Storm(RuleBasedStateMachine):
    """Any sequence of batches begun and ended, losses, damage, returns, replays, failed jobs, plans, drains, restarts."""

    world: World

    @initialize(
        every=st.integers(0, 12), sync=st.integers(1, 3), close=st.integers(1, 3), plan=TASKS, lookback=LOOKBACKS,
        sinks=st.integers(1, 2),
    )  # fmt: skip
    def start(
        self, every: int, sync: int, close: int, plan: frozenset[str], lookback: dict[str, int | None], sinks: int
    ) -> None:
        options = {"checkpoint_every": every, "sync_every": sync, "short_replay": close}
        self.world = World(small_topology(sinks), plan=plan, options=options, lookback_batches=lookback)

    @rule(times=st.integers(1, 4))
    def batches(self, times: int) -> None:
        for _ in range(times):
            self.end()
            self.world.batch()

    @rule(patient=st.booleans())
    def begin(self, patient: bool) -> None:
        if not self.world.pending:
            self.world.begin(patient)

    @rule()
    def end(self) -> None:
        while self.world.pending:
            self.world.finish()

    @rule(node=NODES, done=TASKS)
    @precondition(lambda self: len(self.world.down) < 5)
    def lose(self, node: str, done: frozenset[str]) -> None:
        if node not in self.world.down:
            self.world.lose(node, done=done)

    @rule(node=NODES, task=st.sampled_from(sorted(ALL)), done=TASKS)
    def damage(self, node: str, task: str, done: frozenset[str]) -> None:
        if node not in self.world.down and task in self.world.graph.tasks:
            self.world.damage(node, task, done)

    @rule(node=NODES)
    def back(self, node: str) -> None:
        if node in self.world.down:
            self.world.back(node)

    @rule(nodes=st.frozensets(NODES, max_size=3))
    def drain(self, nodes: frozenset[str]) -> None:
        self.world.drain(*(nodes - self.world.down))

    @rule()
    def replay(self) -> None:
        self.world.finish_replay()

    @rule(done=TASKS)
    def fail(self, done: frozenset[str]) -> None:
        self.world.fail(done)

    @rule(plan=TASKS)
    def replan(self, plan: frozenset[str]) -> None:
        self.world.replan(plan)

    @rule(node=st.none() | NODES, back=st.booleans())
    @precondition(lambda self: len(self.world.down) < 5)
    def restart(self, node: str | None, back: bool) -> None:
        self.world.restart(*({node} - self.world.down if node else ()), back=back)

    @rule()
    def publish_and_die(self) -> None:
        if self.world.pending:
            self.world.finish(save=False)

    @invariant()
    def sound(self) -> None:
        if hasattr(self, "world"):
            self.world.check()

    def teardown(self) -> None:
        if hasattr(self, "world"):
            self.end()
            self.world.settle()


TestStorm = Storm.TestCase
TestStorm.settings = settings(max_examples=150, stateful_step_count=25, deadline=None, derandomize=True, database=None)
