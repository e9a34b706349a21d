"""The content of the ledger: the state from which a restarted driver resumes. Jobs in progress are not in it: they run again.

`ppa_core.nodes.ledger` stores it in the nodes.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields

import msgspec

from ppa_core.engine.intent import Intent
from ppa_core.engine.machine import Machine
from ppa_core.engine.recovery import Copy
from ppa_core.engine.state import Fork
from ppa_core.errors import BadInput
from ppa_core.placement.place import Placement


@dataclass(frozen=True)
class Ledger:
    """The machine's saved state; `plan` and the places are those of its placement, all other names are the machine's."""

    head: int
    good: int
    attempt: int
    missing: frozenset[str]
    lost: frozenset[str]
    tentative: frozenset[int]
    newest: dict[str, tuple[int, int]]
    copies: dict[str, dict[str, Copy]]
    fork: dict[str, Fork]
    outputs: dict[str, dict[int, int]]
    intent: Intent
    cause: str
    failed_at: int | None
    plan: frozenset[str]
    primaries: dict[str, str]
    replicas: dict[str, str]
    checkpoints: dict[str, str]
    pipeline: str = ""
    """A digest of the pipeline's structure: a run can only be resumed with the same pipeline."""
    suspended: dict[str, dict[str, Copy]] = field(default_factory=dict)
    began: float = 0.0
    """When the schedule of the batches began, in seconds since 1970; 0 if it has not."""


_OWN = [one.name for one in fields(Ledger) if one.name in {own.name for own in fields(Machine)}]
_PLACES = ("plan", "primaries", "replicas", "checkpoints")
_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Ledger)


def dump(machine: Machine, pipeline: str = "", began: float = 0.0) -> bytes:
    """The machine's state as JSON, without jobs in progress."""
    own = {name: getattr(machine, name) for name in _OWN}
    places = {name: getattr(machine.placement, name) for name in _PLACES}
    return _encoder.encode(Ledger(**own, **places, pipeline=pipeline, began=began))


def load(content: bytes | str) -> Ledger:
    """Decode what `dump` wrote; BadInput if another version of the software wrote it."""
    try:
        return _decoder.decode(content)
    except msgspec.DecodeError as error:
        reason = f"it was written by another version ({error}); resume the run with the version that started it"
        raise BadInput("the run's ledger", reason) from None


def restore(machine: Machine, ledger: Ledger) -> None:
    """Set the state of a new machine, with the same pipeline and nodes, from a ledger."""
    for name in _OWN:
        setattr(machine, name, getattr(ledger, name))
    machine.placement = Placement(machine.placement.nodes, *(getattr(ledger, name) for name in _PLACES))
