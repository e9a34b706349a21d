"""Which nodes are suspect: silence, slowness, a stalled process of one's own, nodes that fail together, flapping."""

from __future__ import annotations

from collections.abc import Callable, Collection

from hypothesis import given
from hypothesis import strategies as st

from ppa_core.nodes.suspicion import FIRST_PENALTY, LEAST, Suspicion

EVERY, TICK = 0.2, 0.05
NODES = ("n1", "n2", "n3", "n4", "n5")


class Clock:
    """A simulation: every node is asked every `EVERY` seconds and answers after `answers(node)` seconds, None: not at all."""

    def __init__(self, slow: float = 0.2, most: float = 1.0) -> None:
        self.suspicion, self.now = Suspicion(NODES, slow, most), 0.0
        self.waiting: dict[str, tuple[float, float | None]] = {}
        self.suspects: dict[str, float] = {}
        self.trusted: list[tuple[str, float]] = []

    def run(self, seconds: float, answers: Callable[[str], float | None] = lambda node: 0.002, stall: float = 0.0) -> None:
        end = self.now + seconds
        while self.now < end:
            for node in NODES:
                sent, due = self.waiting.get(node, (-1.0, -1.0))
                if due is not None and due <= self.now:
                    if due >= 0:
                        self.suspicion.answer(node, self.now)
                    if self.now - sent >= EVERY:
                        took = answers(node)
                        self.suspicion.sent(node, self.now)
                        self.waiting[node] = (self.now, None if took is None else self.now + took)
            self.suspicion.tick(self.now, TICK)
            for node in self.suspicion.suspects(self.now):
                self.suspects[node] = self.now
            self.trusted += [(node, self.now) for node in self.suspicion.trust(self.now)]
            self.now += TICK + stall
            stall = 0.0

    def wake(self, nodes: Collection[str]) -> None:
        """Silent nodes answer what they were asked."""
        for node in nodes:
            self.waiting[node] = (self.waiting[node][0], self.now)


def silent(*nodes: str) -> Callable[[str], float | None]:
    return lambda node: None if node in nodes else 0.002


def test_nodes_that_answer_are_never_suspect() -> None:
    clock = Clock()
    clock.run(60)
    assert not clock.suspects


def test_a_silent_node_is_suspect_within_a_second_and_trusted_as_soon_as_it_answers() -> None:
    clock = Clock()
    clock.run(10)
    began = clock.now
    clock.run(3, silent("n2"))
    assert list(clock.suspects) == ["n2"]
    assert LEAST <= clock.suspects["n2"] - began <= LEAST + EVERY + 2 * TICK
    clock.wake(["n2"])
    woke = clock.now
    clock.run(1)
    assert [node for node, _ in clock.trusted] == ["n2"]
    assert clock.trusted[0][1] - woke <= 2 * TICK


def test_nodes_that_fall_silent_together_are_suspect_together() -> None:
    clock = Clock()
    clock.run(5)
    clock.run(2, silent("n1", "n2", "n3"))
    assert set(clock.suspects) == {"n1", "n2", "n3"}
    assert len(set(clock.suspects.values())) == 1


def test_a_process_that_stalls_itself_blames_nobody() -> None:
    clock = Clock()
    clock.run(5)
    for node in NODES:  # all answers are waiting unread
        clock.suspicion.sent(node, clock.now)
        clock.waiting[node] = (clock.now, clock.now + 5.2)
    clock.run(0.1, stall=5.0)
    clock.run(1)
    assert not clock.suspects


def test_on_a_busy_machine_the_limit_follows_the_answers() -> None:
    clock = Clock()
    for i in range(40):
        clock.run(0.5, lambda node, i=i: 0.2 if (i + int(node[1])) % 3 else 0.01)  # type: ignore[misc]
    assert not clock.suspects
    clock.run(0.85, silent("n3"))
    assert not clock.suspects  # a node whose answers take 0.2 s gets more time
    clock.run(0.6, silent("n3"))
    assert list(clock.suspects) == ["n3"]


def test_a_node_that_is_slow_while_others_are_not_is_left_out_until_it_is_as_fast() -> None:
    clock = Clock()
    clock.run(5)
    clock.run(5, lambda node: 0.3 if node == "n4" else 0.002)
    assert list(clock.suspects) == ["n4"]
    assert not clock.trusted
    clock.run(5)
    assert [node for node, _ in clock.trusted] == ["n4"]


def test_if_all_are_slow_nobody_is_left_out() -> None:
    clock = Clock()
    clock.run(20, lambda node: 0.3)
    assert not clock.suspects


def test_a_flapping_node_is_left_out_longer_every_time() -> None:
    clock = Clock()
    clock.run(5)
    out: list[float] = []
    for _ in range(4):
        clock.suspects, clock.trusted = {}, []
        clock.run(2, silent("n1"))
        assert "n1" in clock.suspects
        clock.wake(["n1"])
        woke = clock.now
        clock.run(70)
        assert [node for node, _ in clock.trusted] == ["n1"]
        out.append(clock.trusted[0][1] - woke)
    assert out[0] <= 2 * TICK
    assert FIRST_PENALTY <= out[1] < out[2] < out[3] <= 4 * FIRST_PENALTY + 1


def test_after_a_long_time_of_trust_a_node_is_not_flapping_any_more() -> None:
    clock = Clock()
    for _ in range(3):
        clock.trusted.clear()
        clock.run(2, silent("n1"))
        clock.wake(["n1"])
        woke = clock.now
        clock.run(200)
        assert clock.trusted[0][1] - woke <= 2 * TICK


@given(st.lists(st.tuples(st.sampled_from(NODES), st.floats(0.001, 0.12)), min_size=1, max_size=60))
def test_answers_within_the_least_limit_never_make_a_suspect(answers: list[tuple[str, float]]) -> None:
    clock = Clock()
    for node, took in answers:
        clock.run(0.3, lambda name, node=node, took=took: took if name == node else 0.002)  # type: ignore[misc]
    assert not clock.suspects
