"""The ledger's content: what a restarted driver must know. What was under way is not in it: it is run again.

`ppa_core.nodes.ledger` keeps it in the nodes.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import msgspec

from ppa_core.engine.intent import Intent
from ppa_core.engine.machine import Machine
from ppa_core.engine.recovery import Copy
from ppa_core.engine.state import Fork
from ppa_core.errors import BadInput
from ppa_core.placement.place import Placement


@dataclass(frozen=True)
class Ledger:
    """The machine's state as it is saved; the fields up to `failed_at` are the machine's own, under the same names."""

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
    """The pipeline's shape: only with the same one can a run be resumed."""


_OWN = [field.name for field in fields(Ledger)][:13]
_PLACES = ("plan", "primaries", "replicas", "checkpoints")
_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Ledger)


def dump(machine: Machine, pipeline: str = "") -> bytes:
    """The machine's state as JSON, without what is under way."""
    own = {name: getattr(machine, name) for name in _OWN}
    places = {name: getattr(machine.placement, name) for name in _PLACES}
    return _encoder.encode(Ledger(**own, **places, pipeline=pipeline))


def load(content: bytes | str) -> Ledger:
    """What `dump` wrote; BadInput if another version of the software wrote it."""
    try:
        return _decoder.decode(content)
    except msgspec.DecodeError as error:
        reason = f"it is not of this version ({error}); resume the run with the version it was started with"
        raise BadInput("the run's ledger", reason) from None


def restore(machine: Machine, ledger: Ledger) -> None:
    """Bring a new machine for the same pipeline and nodes to the state of a ledger."""
    for name in _OWN:
        setattr(machine, name, getattr(ledger, name))
    machine.placement = Placement(machine.placement.nodes, *(getattr(ledger, name) for name in _PLACES))
