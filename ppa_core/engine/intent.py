"""What operators want. It is part of the machine's state and saved in the ledger, so it survives a restart of the driver."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class PlanRequest:
    """The parameters for planning."""

    budget: int
    planner: str = "default"
    metric: str = "of"


@dataclass(frozen=True)
class Intent:
    """What operators have set. The plan itself is in the placement."""

    request: PlanRequest | None = None
    """None: as the run was started."""
    paused: bool = False
    drained: frozenset[str] = frozenset()
    """Nodes that answer but must not be used."""
    banned: frozenset[str] = frozenset()
    """Nodes that an operator declared failed: not used, even if they answer, until they are restored."""
    commands: Mapping[str, tuple[int, float]] = field(default_factory=dict)
    """The commands that were executed, as `SequenceNumbers.taken` returns them."""
