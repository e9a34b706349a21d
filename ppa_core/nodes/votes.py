"""Votes: who may run when several drivers want to. Each rack has one vote, and so has a witness if the racks can be halved.

A driver that needs a majority of the votes holds it together with no other one: two majorities share a voter. A voter that has
ended, or was restarted and remembers nothing, has no vote until the holder writes the lease there again. One that is silent
keeps its vote: somebody else may reach it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from enum import Enum, auto

from ppa_core.placement.nodes import Node

_IN_ONE_RACK = 3
"""Voters, if all nodes are in one rack."""


class Answer(Enum):
    """What a node says of the lease."""

    MINE = auto()
    HELD = auto()
    """It belongs to another driver."""
    LAPSED = auto()
    """It belonged to a driver that did not renew it, or released it."""
    EMPTY = auto()
    """The node knows of no lease: the run is new, or the node was restarted."""
    SILENT = auto()
    DEAD = auto()
    """Nobody listens there."""


def voters(nodes: Sequence[Node]) -> list[Node]:
    """The nodes with a vote: one of each rack, a standby if it has one, because all primaries may fail together."""
    racks: dict[str, list[Node]] = {}
    for node in sorted(nodes, key=lambda node: node.role != "standby"):
        racks.setdefault(node.rack, []).append(node)
    if len(racks) == 1:
        (only,) = racks.values()
        return only[: min(_IN_ONE_RACK, len(only))]
    return [rack[0] for rack in racks.values()]


def needs_witness(nodes: Sequence[Node]) -> bool:
    """Whether the votes of the nodes can be halved."""
    return len(voters(nodes)) % 2 == 0


def majority(racks: Collection[Answer], wanted: Collection[Answer], witness: Collection[Answer] = ()) -> bool:
    """Whether more than half of the votes, of racks and witness, are among the wanted answers. If no voter knows of a lease,
    the run is new: then more racks must answer than are silent. The witness does not count then: it knows no other driver."""
    known = [answer for answer in (*racks, *witness) if answer not in (Answer.EMPTY, Answer.DEAD)]
    if all(answer is Answer.SILENT for answer in known):
        free, silent = (sum(answer is one for answer in racks) for one in (Answer.EMPTY, Answer.SILENT))
        return Answer.LAPSED in wanted and free > silent
    return 2 * sum(answer in wanted for answer in known) > len(known)


def unopposed(answers: Collection[Answer]) -> bool:
    """Whether no other driver holds the lease in any node that answers: the rule of a run without a standby driver, which
    continues with whatever nodes it reaches."""
    return Answer.HELD not in answers
