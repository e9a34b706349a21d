"""The failures of a soak: a random sequence that a seed determines. Every failure ends, so that the soak can go on.

Every kind of failure is a card of a deck, which is shuffled and dealt again and again: a long soak has them all.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace

from ppa_core.drills.failures import PlannedFailure

FIRST, LAST = 20.0, 60.0
"""Seconds before the first failure, and after the last one."""
GAPS = (20.0, 60.0)
"""Seconds from one failure to the next."""
OVERLAPS = 0.5
"""The share of failures that come while the one before goes on, if the two can."""
CLOSE = (0.0, 6.0)
"""Seconds from a failure to one that overlaps it."""
SPARED = 2
"""The number of nodes, at least, that two failures at once leave alone: they hold the ledger."""


@dataclass(frozen=True)
class Card:
    """A kind of failure; `seconds` are the limits of how long it lasts, none if it ends by itself."""

    what: str
    how: str
    seconds: tuple[float, float] | None = (3.0, 20.0)


DECK = (
    Card("node", "kill"), Card("node", "hang"), Card("node", "hang"), Card("node", "slow"), Card("node", "slow"),
    Card("nodes", "kill"), Card("nodes", "hang"),
    Card("host", "kill"), Card("host", "hang"), Card("host", "cut"), Card("host", "slow"),
    Card("rack", "kill"), Card("rack", "hang"), Card("rack", "cut"), Card("rack", "cut"),
    Card("primaries", "kill"), Card("primaries", "hang"), Card("standbys", "kill"), Card("standbys", "hang"),
    Card("executor", "kill", None), Card("executor", "hang"), Card("worker", "kill"), Card("worker", "hang"),
    Card("driver", "kill", None), Card("driver", "hang", None), Card("driver", "hang", (1.0, 4.0)),
)  # fmt: skip
"""A driver that hangs without end is killed and restarted by its parent process; a killed executor is by Spark."""


@dataclass(frozen=True)
class Bed:
    """The hosts of each rack; on host h1 are the nodes n1 and s1."""

    racks: dict[str, tuple[str, ...]]

    @property
    def hosts(self) -> list[str]:
        return [host for hosts in self.racks.values() for host in hosts]

    @property
    def nodes(self) -> list[str]:
        return [f"{role}{host[1:]}" for role in "ns" for host in self.hosts]

    def nodes_of(self, what: str) -> set[str]:
        """The nodes that fail if `what` does."""
        kind, _, names = what.partition(":")
        match kind:
            case "node":
                return set(names.split(","))
            case "host" | "rack":
                hosts = self.racks[names] if kind == "rack" else (names,)
                return {f"{role}{host[1:]}" for role in "ns" for host in hosts}
            case "primaries" | "standbys":
                return {node for node in self.nodes if node.startswith("n" if kind == "primaries" else "s")}
        return set()


def schedule(seconds: float, seed: int, bed: Bed, interval: float = 1.0) -> tuple[PlannedFailure, ...]:
    """The failures of a soak of so many seconds, with a batch in every interval."""
    chance, found = random.Random(seed), list[PlannedFailure]()
    cards, at, before = _dealt(chance), FIRST, 0.0
    while at < seconds - LAST:
        failure = _planned(next(cards), int(at / interval), chance, bed)
        if found and found[-1].alone and chance.random() < OVERLAPS and can_overlap(found[-1], failure, bed):
            near = before + chance.uniform(*CLOSE)
            found.append(replace(failure, at=int(near / interval), alone=False))
        else:
            found.append(failure)
            before, at = at, at + chance.uniform(*GAPS)
    return tuple(found)


def can_overlap(first: PlannedFailure, second: PlannedFailure, bed: Bed) -> bool:
    """Whether two failures can go on at the same time: both must be able to end, and some nodes must be left alone."""
    kinds = {first.what.partition(":")[0], second.what.partition(":")[0]}
    if len(kinds & {"driver", "executor", "worker"}) == len(kinds):  # a driver knows one group of processes that hang
        return False
    if "worker" in kinds and kinds & {"host", "rack"}:  # its host may be the one that is cut off: it could not start
        return False
    if "executor" in kinds and (first.delay or second.delay):  # what is slow is continued again and again
        return False
    nodes, others = bed.nodes_of(first.what), bed.nodes_of(second.what)
    return not nodes & others and len(nodes | others) <= len(bed.nodes) - SPARED


def _dealt(chance: random.Random) -> Iterator[Card]:
    while True:
        yield from chance.sample(DECK, len(DECK))


def _planned(card: Card, at: int, chance: random.Random, bed: Bed) -> PlannedFailure:
    names = {
        "node": lambda: "node:" + chance.choice(bed.nodes),
        "nodes": lambda: "node:" + ",".join(chance.sample(bed.nodes, 2)),
        "host": lambda: "host:" + chance.choice(bed.hosts),
        "rack": lambda: "rack:" + chance.choice(list(bed.racks)),
    }
    what = names.get(card.what, lambda: card.what)()
    how = f"slow:{chance.choice((100, 300, 600, 1500))}" if card.how == "slow" else card.how
    seconds = None if card.seconds is None else round(chance.uniform(*card.seconds), 1)
    return PlannedFailure(what, at, how, seconds, later=round(chance.random(), 2), alone=True)
