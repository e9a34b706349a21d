"""Votes: of two drivers that see the same voters differently, at most one has a majority."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from ppa_core.nodes.votes import Answer, majority, needs_witness, voters
from ppa_core.placement.nodes import Node, Role

MINE, HELD, LAPSED, EMPTY, SILENT, DEAD = Answer


def node(name: str, rack: str, role: Role = "primary") -> Node:
    return Node(name, rack, role, f"redis://{name}:6379")


def test_each_rack_has_one_vote_and_its_standby_has_it() -> None:
    nodes = [node("n1", "r1"), node("n2", "r2"), node("n3", "r1"), node("s1", "r2", "standby")]
    assert {one.name for one in voters(nodes)} == {"n1", "s1"}
    assert needs_witness(nodes)
    assert not needs_witness([*nodes, node("n4", "r3")])


def test_in_one_rack_three_nodes_vote_and_two_need_a_witness() -> None:
    nodes = [node(f"n{i}", "r1") for i in range(5)]
    assert len(voters(nodes)) == 3
    assert needs_witness(nodes[:2])
    assert not needs_witness(nodes[:1])


def test_silence_counts_and_death_does_not() -> None:
    assert majority([MINE, MINE, SILENT], (MINE,))
    assert not majority([MINE, SILENT, SILENT], (MINE,))
    assert majority([MINE, DEAD, DEAD], (MINE,))
    assert majority([MINE, EMPTY, EMPTY], (MINE,)), "who was restarted has forgotten whom it voted for"
    assert not majority([MINE, EMPTY, HELD], (MINE,))
    assert not majority([DEAD, DEAD], (LAPSED, MINE))


def test_a_new_run_needs_more_who_answer_than_who_are_silent() -> None:
    assert majority([EMPTY, EMPTY, SILENT], (LAPSED, MINE))
    assert not majority([EMPTY, SILENT, SILENT], (LAPSED, MINE))
    assert not majority([EMPTY, EMPTY, EMPTY], (MINE,)), "a driver does not keep what all have forgotten"


@dataclass(frozen=True)
class Voter:
    holder: int
    """0 or 1: the driver that has its vote; 2: it remembers that nobody has; 3: it was restarted."""
    dead: bool
    seen_by: tuple[bool, bool]

    def answer(self, driver: int) -> Answer:
        if self.dead:
            return DEAD
        if not self.seen_by[driver]:
            return SILENT
        return EMPTY if self.holder == 3 else LAPSED if self.holder == 2 else MINE if self.holder == driver else HELD


@settings(max_examples=1000, deadline=None)
@given(st.lists(st.builds(Voter, st.integers(0, 3), st.booleans(), st.tuples(st.booleans(), st.booleans())), max_size=7))
def test_no_two_drivers_have_a_majority(world: list[Voter]) -> None:
    both = [majority([voter.answer(driver) for voter in world], (MINE,)) for driver in (0, 1)]
    assert both != [True, True]


@settings(max_examples=1000, deadline=None)
@given(st.lists(st.builds(Voter, st.integers(0, 3), st.booleans(), st.tuples(st.booleans(), st.booleans())), max_size=6))
def test_no_driver_of_another_owner_has_a_majority_beside_one_with_its_witness(world: list[Voter]) -> None:
    """The other one's witness is a different server, which knows nothing of the run."""
    racks = world if len(world) % 2 == 0 else world[:-1]
    with_witness = majority([voter.answer(0) for voter in racks], (MINE,), [MINE])
    answers = [voter.answer(1) for voter in racks]
    assert not (with_witness and majority(answers, (MINE,), [EMPTY]))
    forgotten = sum(voter.holder == 3 or voter.dead for voter in racks)
    if 2 * forgotten <= len(racks):
        assert not (with_witness and majority(answers, (LAPSED, MINE), [EMPTY])), "nor can it get one"
