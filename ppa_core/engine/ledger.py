"""The ledger's content: what a restarted driver must know. What was under way is not in it: it is run again.

`ppa_core.nodes.ledger` keeps it.
"""

from __future__ import annotations

import json
from typing import Any

from ppa_core.engine.machine import Machine
from ppa_core.engine.recovery import Copy
from ppa_core.placement.place import Placement


def dump(machine: Machine, **more: Any) -> str:
    """The machine's state as JSON, without what is under way; and `more` that the host wants to know again."""
    placement = machine.placement
    return json.dumps(
        {
            **more,
            "head": machine.head,
            "good": machine.good,
            "attempt": machine.attempt,
            "missing": sorted(machine.missing),
            "lost": sorted(machine.lost),
            "drained": sorted(machine.drained),
            "tentative": sorted(machine.tentative),
            "newest": machine.newest,
            "copies": {
                task: {node: [c.batch, c.attempt, c.first, c.last] for node, c in copies.items()}
                for task, copies in machine.copies.items()
            },
            "fork": {task: [batch, attempt, sorted(nodes)] for task, (batch, attempt, nodes) in machine.fork.items()},
            "outputs": machine.outputs,
            "plan": sorted(placement.plan),
            "primaries": placement.primaries,
            "replicas": placement.replicas,
            "checkpoints": placement.checkpoints,
        }
    )


def restore(machine: Machine, text: str) -> None:
    """Bring a new machine for the same pipeline and nodes to the state that `dump` wrote."""
    known: dict[str, Any] = json.loads(text)
    machine.head, machine.good, machine.attempt = known["head"], known["good"], known["attempt"]
    machine.missing, machine.lost = frozenset(known["missing"]), frozenset(known["lost"])
    machine.tentative, machine.drained = frozenset(known["tentative"]), frozenset(known["drained"])
    machine.newest = {task: (version[0], version[1]) for task, version in known["newest"].items()}
    machine.copies = {task: {node: Copy(*c) for node, c in copies.items()} for task, copies in known["copies"].items()}
    machine.fork = {task: (batch, attempt, frozenset(nodes)) for task, (batch, attempt, nodes) in known["fork"].items()}
    machine.outputs = {
        task: {int(batch): attempt for batch, attempt in kept.items()} for task, kept in known["outputs"].items()
    }
    machine.placement = Placement(
        machine.placement.nodes, frozenset(known["plan"]), known["primaries"], known["replicas"], known["checkpoints"]
    )
