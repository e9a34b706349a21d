"""The ledger in the nodes: the state from which a restarted driver resumes (`ppa_core.engine.ledger`), stored in all nodes.

After every event that changes it, the machine's state is written to all nodes in parallel, as JSON with a number. A restarted
driver uses the undamaged one with the highest number.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

from ppa_core.errors import BadInput
from ppa_core.nodes.store import NodeDataLost, NodeDown, NodeFull, Store

_log = logging.getLogger(__name__)


def write(store: Store, number: int, text: str) -> NodeDown | NodeFull | None:
    """Write the state to a node; the error if it was not stored."""
    try:
        store.write_ledger(number, text)
    except NodeFull as error:
        _log.warning("a node is full: the ledger was not written there", exc_info=True)
        return error
    except NodeDown as error:
        _log.info("a node does not answer: the ledger was not written there", exc_info=True)
        return error
    return None


def newest(stores: Iterable[Store]) -> tuple[int, str] | None:
    """The newest state in any node. BadInput if all are damaged: a new run must not overwrite them."""
    asked = list(stores)
    with ThreadPoolExecutor(max(1, len(asked))) as threads:
        read = list(threads.map(_read, asked))
    found = [kept for kept in read if isinstance(kept, tuple)]
    damaged = [error for error in read if isinstance(error, NodeDataLost)]
    if damaged and not found:
        where = ", ".join(error.node for error in damaged)
        raise BadInput(
            f"nodes {where}", f"{damaged[0].reason}, and no node has an undamaged one; choose another name for the run"
        )
    return max(found, default=None)


def _read(store: Store) -> tuple[int, str] | NodeDataLost | None:
    try:
        return store.read_ledger()
    except NodeDataLost as error:
        _log.warning("a node's ledger is damaged", exc_info=True)
        return error
    except NodeDown:
        _log.info("a node's ledger cannot be read", exc_info=True)
        return None
