"""What operators have asked for. It is part of the machine's state and saved with it: a restarted driver knows it again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class PlanRequest:
    """What plans are made with."""

    budget: int
    planner: str = "default"
    metric: str = "of"


@dataclass(frozen=True)
class Intent:
    """Operators' standing orders. The plan itself is in the placement."""

    request: PlanRequest | None = None
    """None: what the run was started with."""
    paused: bool = False
    drained: frozenset[str] = frozenset()
    """Nodes that answer and are not to be used."""
    banned: frozenset[str] = frozenset()
    """Nodes that were declared failed: they are not used, whatever they answer, until they are restored."""
    commands: Mapping[str, tuple[int, float]] = field(default_factory=dict)
    """The commands that were carried out: `Numbers` keeps them."""
