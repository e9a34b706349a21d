"""The ledger in the nodes: the state from which a restarted driver resumes (`ppa_core.engine.ledger`), stored in all nodes.

After every event that changes it, the machine's state is written to all nodes in parallel, as JSON with a number. A restarted
driver uses the undamaged one with the highest number.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from concurrent.futures import Executor

from ppa_core.errors import BadInput
from ppa_core.nodes.store import NodeDataLost, NodeDown, NodeFull, Store

_log = logging.getLogger(__name__)


def save(stores: Iterable[Store], number: int, text: str, threads: Executor) -> list[NodeDown]:
    """Write the state to all nodes in parallel; the errors of those that did not answer. Full nodes are only logged."""

    def write(store: Store) -> NodeDown | None:
        try:
            store.write_ledger(number, text)
        except NodeFull:
            _log.warning("a node is full: the ledger was not written there", exc_info=True)
        except NodeDown as error:
            _log.info("a node does not answer: the ledger was not written there", exc_info=True)
            return error
        return None

    return [error for error in threads.map(write, stores) if error is not None]


def newest(stores: Iterable[Store]) -> tuple[int, str] | None:
    """The newest state in any node. BadInput if all are damaged: a new run must not overwrite them."""
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
        raise BadInput(
            f"nodes {where}", f"{damaged[0].reason}, and no node has an undamaged one; choose another name for the run"
        )
    return max(found, default=None)
