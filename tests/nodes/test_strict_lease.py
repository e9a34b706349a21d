"""A strict lease, with a standby driver: held by a majority, taken over when it is not renewed, and never by two."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from ppa_core.errors import Unavailable
from ppa_core.nodes import lease as module
from ppa_core.nodes.embedded import EmbeddedNodes, launch, launch_witness
from ppa_core.nodes.errors import LeaseLost
from ppa_core.nodes.lease import Lease
from ppa_core.placement.nodes import Node

Made = tuple[EmbeddedNodes, Node]


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Iterator[Made]:
    """Racks r1, r2, s1, s2 and a witness: five votes, those of s1 and s2 in standbys."""
    monkeypatch.setattr(module, "STRICT_SECONDS", 1.5)
    with launch(2, 2, 2, 32) as nodes, launch_witness(nodes.cluster.nodes) as witness:
        assert witness is not None
        yield nodes, witness


def lease(made: Made, owner: str = "parent") -> Lease:
    nodes, witness = made
    return Lease(nodes.cluster.nodes, "run", owner, strict=True, witness=witness)


def follow(standby: Lease, seconds: float, ended: bool = False) -> bool:
    """Whether a standby driver takes over within so many seconds."""
    over, now = threading.Event(), threading.Event()
    if ended:
        now.set()
    threading.Timer(seconds, over.set).start()
    return standby.follow(over, now)


def test_a_standby_driver_takes_over_at_once_if_the_other_ended_and_else_when_the_lease_lapses(made: Made) -> None:
    with lease(made) as first:
        second = lease(made)
        assert not follow(second, 3.0), "it is renewed"
        assert follow(second, 3.0, ended=True)
        assert (first.epoch, second.epoch) == (1, 2)
        with pytest.raises(LeaseLost):
            first.renew()
    began = time.monotonic()
    assert follow(lease(made), 10.0), "the second one does not renew it"
    assert time.monotonic() - began > 0.5


def test_all_primaries_hang_and_the_lease_is_kept_and_taken_over(made: Made) -> None:
    nodes, _ = made
    first = lease(made)
    first.take()
    for name in ("n1", "n2"):
        nodes.hang(name)
    assert first.renew()
    assert follow(lease(made), 10.0)
    for name in ("n1", "n2"):
        nodes.resume(name)
    with pytest.raises(LeaseLost):
        first.renew()


def test_with_most_voters_silent_nobody_holds_it_and_with_most_dead_the_rest_decide(made: Made) -> None:
    nodes, _ = made
    first = lease(made)
    first.take()
    for name in ("n1", "n2", "s1"):
        nodes.hang(name)
    assert not first.renew()
    assert not follow(lease(made), 3.0)
    with pytest.raises(Unavailable, match="n1, n2, s1 do not"):
        lease(made, "stranger").take()
    for name in ("n1", "n2", "s1"):
        nodes.kill(name)
    assert first.renew(), "nobody listens there: these have no vote"
    for name in ("n1", "n2", "s1"):
        nodes.restart(name)
    assert first.renew(), "they have forgotten, and learn it again"
    nodes.kill("s2")
    assert first.renew()
    first.release()


def test_a_driver_that_was_away_publishes_nothing_and_does_not_come_back(made: Made) -> None:
    first = lease(made)
    first.take()
    time.sleep(2.0)
    before = first.lapsed
    first.ensure_held()  # nobody has taken it meanwhile
    assert (before, first.lapsed) == (True, False)
    second = lease(made)
    assert follow(second, 10.0)
    with pytest.raises(LeaseLost):
        first.ensure_held()
    second.release()
    with pytest.raises(LeaseLost):
        first.ensure_held()
