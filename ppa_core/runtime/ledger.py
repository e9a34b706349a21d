"""The ledger: what a restarted driver must know, kept in several nodes at once.

After every event that changes what is published, the machine's state goes to all nodes as JSON, numbered. A restarted driver
takes the highest number that any node has undamaged. What was under way is not in it: it is run again.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from ppa_core.errors import BadInput
from ppa_core.runtime.machine import Machine
from ppa_core.runtime.placement import Placement
from ppa_core.runtime.recovery import Copy
from ppa_core.runtime.store import NodeDown, NodeForgot, NodeFull, Store


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


def save(stores: Iterable[Store], number: int, text: str) -> list[NodeDown]:
    """Write the state to all nodes; those that did not answer. One that is full has no room for it, and is none of these."""
    down = []
    for store in stores:
        try:
            store.write_ledger(number, text)
        except NodeFull:
            continue
        except NodeDown as error:
            down.append(error)
    return down


def newest(stores: Iterable[Store]) -> tuple[int, str] | None:
    """The newest state that any node has. BadInput if there are only damaged ones: the run is not to begin anew over them."""
    found: list[tuple[int, str]] = []
    damaged: list[NodeForgot] = []
    for store in stores:
        try:
            kept = store.read_ledger()
        except NodeForgot as error:
            damaged.append(error)
            continue
        except NodeDown:
            continue
        if kept:
            found.append(kept)
    if damaged and not found:
        where = ", ".join(error.node for error in damaged)
        raise BadInput(f"nodes {where}", f"{damaged[0].reason}, and no node has a sound one; give the run another name")
    return max(found, default=None)
