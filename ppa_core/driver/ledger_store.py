"""The ledger store: the run's ledger is written to all nodes in parallel and read from the node with the newest one."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from ppa_core.engine.ledger import Ledger, load
from ppa_core.nodes.ledger import newest, save
from ppa_core.nodes.store import NodeSlow, Store
from ppa_core.terminal.logs import Threads

_WRITTEN_AT_ONCE = 16


class LedgerStore:
    """Numbered states of one run. Only one thread may write."""

    def __init__(self, stores: Mapping[str, Store]) -> None:
        self.number = 0
        self._stores = stores
        self._threads = Threads(_WRITTEN_AT_ONCE, thread_name_prefix="ledger")

    def read(self) -> Ledger | None:
        """The newest state in any node; None for a new run. BadInput if all are damaged."""
        found = newest(self._stores.values())
        if found is None:
            return None
        self.number, text = found
        return load(text)

    def write(self, content: bytes, without: Collection[str]) -> dict[str, str]:
        """Write a state to all nodes except `without`; the nodes that are down, with the reasons. Slow nodes are not
        reported: they may have stored it."""
        self.number += 1
        alive = [store for name, store in self._stores.items() if name not in without]
        down = save(alive, self.number, content.decode(), self._threads)
        return {error.node: error.reason for error in down if not isinstance(error, NodeSlow)}
