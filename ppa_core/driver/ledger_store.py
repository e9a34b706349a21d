"""The run's ledger in its nodes: written to all of them at once, read from whichever has the newest."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from concurrent.futures import ThreadPoolExecutor

from ppa_core.engine.ledger import Ledger, load
from ppa_core.nodes.ledger import newest, save
from ppa_core.nodes.store import NodeSlow, Store

_WRITTEN_AT_ONCE = 16


class LedgerStore:
    """Numbered states of one run. One thread writes."""

    def __init__(self, stores: Mapping[str, Store]) -> None:
        self.number = 0
        self._stores = stores
        self._threads = ThreadPoolExecutor(_WRITTEN_AT_ONCE, thread_name_prefix="ledger")

    def read(self) -> Ledger | None:
        """The newest state that a node has; None if the run is new. BadInput if there are only damaged ones."""
        found = newest(self._stores.values())
        if found is None:
            return None
        self.number, text = found
        return load(text)

    def write(self, content: bytes, without: Collection[str]) -> dict[str, str]:
        """Write a state to all nodes but these; the nodes that are down, and why. A slow one may have taken it."""
        self.number += 1
        alive = [store for name, store in self._stores.items() if name not in without]
        down = save(alive, self.number, content.decode(), self._threads)
        return {error.node: error.reason for error in down if not isinstance(error, NodeSlow)}
