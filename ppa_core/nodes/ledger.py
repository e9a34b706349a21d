"""The ledger in the nodes: what a restarted driver must know (`ppa_core.engine.ledger`), kept in several nodes at once.

After every event that changes what is published, the machine's state goes to all nodes at once as JSON, numbered. A restarted
driver takes the highest number that any node has undamaged.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from concurrent.futures import Executor

from ppa_core.errors import BadInput
from ppa_core.nodes.store import NodeDataLost, NodeDown, NodeFull, Store

_log = logging.getLogger(__name__)


def save(stores: Iterable[Store], number: int, text: str, threads: Executor) -> list[NodeDown]:
    """Write the state to all nodes at once; those that did not answer. A full one has no room for it, and is none of these."""

    def write(store: Store) -> NodeDown | None:
        try:
            store.write_ledger(number, text)
        except NodeFull:
            _log.warning("a node is full: it has no new ledger", exc_info=True)
        except NodeDown as error:
            _log.info("a node did not take the ledger", exc_info=True)
            return error
        return None

    return [error for error in threads.map(write, stores) if error is not None]


def newest(stores: Iterable[Store]) -> tuple[int, str] | None:
    """The newest state that any node has. BadInput if there are only damaged ones: the run is not to begin anew over them."""
    found: list[tuple[int, str]] = []
    damaged: list[NodeDataLost] = []
    for store in stores:
        try:
            kept = store.read_ledger()
        except NodeDataLost as error:
            _log.warning("a node's ledger is damaged", exc_info=True)
            damaged.append(error)
            continue
        except NodeDown:
            _log.info("a node's ledger cannot be read", exc_info=True)
            continue
        if kept:
            found.append(kept)
    if damaged and not found:
        where = ", ".join(error.node for error in damaged)
        raise BadInput(f"nodes {where}", f"{damaged[0].reason}, and no node has a sound one; give the run another name")
    return max(found, default=None)
