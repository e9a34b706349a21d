"""The ledger store: the run's ledger is written to all nodes in parallel and read from the node with the newest one."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from concurrent.futures import Future, wait

from ppa_core.engine.ledger import Ledger, load
from ppa_core.nodes import ledger
from ppa_core.nodes.errors import NodeDown, NodeSlow
from ppa_core.nodes.store import Store
from ppa_core.terminal.logs import Threads

LATE_SECONDS = 0.3
"""How long a write waits for the last nodes. One that answers later gets the next ledger after it has answered."""


_OF_AN_EPOCH = 10_000_000_000
"""Numbers of one driver: a later driver's are always higher."""


class LedgerStore:
    """Numbered states of one run. Only one thread may write."""

    def __init__(self, stores: Mapping[str, Store]) -> None:
        self.number = 0
        self._stores = stores
        self._threads = Threads(max(1, len(stores)), thread_name_prefix="ledger")
        self._busy: dict[str, Future[NodeDown | None]] = {}

    def read(self) -> Ledger | None:
        """The newest state in any node; None for a new run. BadInput if all are damaged."""
        found = ledger.newest(self._stores.values())
        if found is None:
            return None
        return load(found[1])

    def start(self, epoch: int) -> None:
        """The driver of this epoch writes from now on."""
        self.number = epoch * _OF_AN_EPOCH

    def write(self, content: bytes, without: Collection[str]) -> dict[str, str]:
        """Write a state to all nodes except `without` and those that have not yet answered an earlier write; the nodes that are
        down, with the reasons.

        It waits until all have answered, but no longer than `LATE_SECONDS` for the last ones. Slow nodes are not reported: they
        may have stored it.
        """
        self.number += 1
        text = content.decode()
        ready = [name for name in self._stores if name not in without and self._is_free(name)]
        writes = {name: self._threads.submit(ledger.write, self._stores[name], self.number, text) for name in ready}
        self._busy.update(writes)
        done, late = wait(writes.values(), LATE_SECONDS)
        if late and not done and ready:
            wait(writes.values(), return_when="FIRST_COMPLETED")
        errors = [error for write in writes.values() if write.done() and (error := write.result()) is not None]
        return {error.node: error.reason for error in errors if not isinstance(error, NodeSlow)}

    def _is_free(self, name: str) -> bool:
        return name not in self._busy or self._busy[name].done()
