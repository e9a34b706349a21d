"""Numbers of commands: none is taken twice, in whatever order they come. tests/security/test_commands.py has the attacks."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ppa_core.engine.numbers import SequenceNumbers, parse
from tests.strategies import quick

IDS = st.lists(st.tuples(st.sampled_from(["sender01", "sender02", "sender03"]), st.integers(1, 9)))


@quick
@given(ids=IDS, restarts=st.sets(st.integers(0, 20)))
def test_numbers_of_a_sender_only_rise_also_over_restarts(ids: list[tuple[str, int]], restarts: set[int]) -> None:
    numbers, taken = SequenceNumbers(), list[tuple[str, int]]()
    for i, (sender, number) in enumerate(ids):
        if i in restarts:
            numbers = SequenceNumbers(numbers.taken())
        higher = all(number > other for known, other in taken if known == sender)
        assert numbers.take(f"{sender}-{number}", 1000.0) is higher
        taken += [(sender, number)] if higher else []
        assert numbers.highest(sender) == max(other for known, other in taken if known == sender)


def test_what_another_one_has_taken_is_learned_and_never_lowers_a_number() -> None:
    numbers = SequenceNumbers()
    assert numbers.take("sender01-5", 100.0)
    numbers.learn({"sender01": [3, 90.0], "sender02": [8, 95.0]})
    assert (numbers.highest("sender01"), numbers.highest("sender02"), numbers.highest("sender03")) == (5, 8, 0)
    numbers.learn({"sender01": [7, 110.0]})
    assert not numbers.take("sender01-7", 120.0)
    assert numbers.taken() == {"sender01": (7, 110.0), "sender02": (8, 95.0)}


def test_an_id_is_a_sender_and_a_number() -> None:
    assert parse("0123456789abcdef-17") == ("0123456789abcdef", 17)
    assert parse(f"{'a' * 32}-{10**15 - 1}") == ("a" * 32, 10**15 - 1)


@pytest.mark.parametrize(
    "wrong",
    ["", "sender01", "sender01-", "sender01-0", "sender01-01", "sender01--1", "short-1", "SENDER01-1", f"{'a' * 33}-1",
     f"sender01-{10**15}", "sender01-1\n", "sender01-1 ", "sender01-²"],
)  # fmt: skip
def test_what_is_no_id_is_refused_and_takes_nothing(wrong: str) -> None:
    numbers = SequenceNumbers()
    with pytest.raises(ValueError, match="not the id of a command"):
        numbers.take(wrong, 1000.0)
    assert numbers.taken() == {}
