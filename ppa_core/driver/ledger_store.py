"""The ledger store: the run's ledger is written to all nodes in parallel and read from the node with the newest one."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from concurrent.futures import Future, wait

from ppa_core.engine.ledger import Ledger, load
from ppa_core.nodes import ledger
from ppa_core.nodes.errors import NodeDown, NodeFull, NodeSlow
from ppa_core.nodes.store import Store
from ppa_core.nodes.votes import voters
from ppa_core.placement.nodes import Node
from ppa_core.terminal.logs import Threads

LATE_SECONDS = 0.3
"""How long a write waits for the last nodes. One that answers later gets the next ledger after it has answered."""


_WITNESS_TIMEOUT = 2.0
_OF_AN_EPOCH = 10_000_000_000
"""Numbers of one driver: a later driver's are always higher."""


class LedgerStore:
    """Numbered states of one run. Only one thread may write.

    With a standby driver (`strict`), a write waits for a majority of the voters, as the lease does: whoever takes over then
    reaches one that has it. The witness has the ledger too.
    """

    def __init__(self, stores: Mapping[str, Store], strict: bool = False, witness: Node | None = None) -> None:
        self.number = 0
        self._nodes = frozenset(stores)
        self._stores = dict(stores)
        self._voters = {node.name for node in voters([store.node for store in stores.values()])} if strict else set()
        if witness is not None:
            self._stores[witness.name] = Store(witness, next(iter(stores.values())).run, timeout=_WITNESS_TIMEOUT)
            self._voters.add(witness.name)
        self._threads = Threads(max(1, len(self._stores)), thread_name_prefix="ledger")
        self._busy: dict[str, Future[NodeDown | NodeFull | None]] = {}

    def read(self) -> Ledger | None:
        """The newest state in any node; None for a new run. BadInput if all are damaged."""
        found = ledger.newest(self._stores.values())
        return None if found is None else load(found[1])

    def start(self, epoch: int) -> None:
        """The driver of this epoch writes from now on."""
        self.number = epoch * _OF_AN_EPOCH
        for store in self._stores.values():
            store.epoch = epoch

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
        if late and not done:
            wait(writes.values(), return_when="FIRST_COMPLETED")
        while late and not self._is_safe(writes):
            _, late = wait(late, return_when="FIRST_COMPLETED")
        errors = [error for name, write in writes.items() if name in self._nodes and (error := _error(write)) is not None]
        return {error.node: error.reason for error in errors if isinstance(error, NodeDown) and not isinstance(error, NodeSlow)}

    def _is_safe(self, writes: Mapping[str, Future[NodeDown | NodeFull | None]]) -> bool:
        """Whether a majority of the voters has stored it; those where nobody listens do not count."""
        stored = sum(name in self._voters and write.done() and write.result() is None for name, write in writes.items())
        errors = {name: _error(write) for name, write in writes.items()}
        gone = sum(isinstance(error, NodeDown) and error.refused for name, error in errors.items() if name in self._voters)
        return not self._voters or 2 * stored > len(self._voters) - gone

    def _is_free(self, name: str) -> bool:
        return name not in self._busy or self._busy[name].done()


def _error(write: Future[NodeDown | NodeFull | None]) -> NodeDown | NodeFull | None:
    return write.result() if write.done() else None
