"""Node health: which nodes answer and still have their data."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence

from ppa_core.errors import Unavailable
from ppa_core.nodes.servers import check_patched, is_loopback
from ppa_core.nodes.store import NodeDataLost, NodeDown, Store
from ppa_core.placement.nodes import Node
from ppa_core.terminal.logs import Threads

_log = logging.getLogger(__name__)

CLEARED = "it was restarted or cleared and has lost its data"

_ASKED_AT_ONCE = 16
_CHECK_SECONDS = 2.0


class NodeHealth:
    """Asks nodes in parallel, and waits for their answers, within the timeout of their stores.

    `reset` writes the run's mark into a node. A node without the mark was restarted or cleared: it has lost its data.
    """

    def __init__(self, stores: Mapping[str, Store]) -> None:
        self.stores = stores
        self._threads = Threads(_ASKED_AT_ONCE, thread_name_prefix="heartbeat")

    def check(self, nodes: Collection[str]) -> dict[str, NodeDown]:
        """The errors of nodes that do not answer in time (NodeSlow), have ended, or have lost their data."""
        return self._ask(nodes, _check)

    def reset(self, nodes: Collection[str]) -> list[str]:
        """Clear and mark the nodes; those that answered."""
        silent = self._ask(nodes, _renew)
        return [name for name in nodes if name not in silent]

    def memory(self, nodes: Collection[str]) -> dict[str, int]:
        """The memory that nodes use, in bytes, for those that answer."""
        found: dict[str, int] = {}

        def read(store: Store) -> None:
            found[store.node.name] = store.used_memory()

        self._ask(nodes, read)
        return found

    def _ask(self, nodes: Collection[str], question: Callable[[Store], None]) -> dict[str, NodeDown]:
        """Call `question` for all nodes in parallel; the errors, by node."""

        def ask(name: str) -> NodeDown | None:
            try:
                question(self.stores[name])
            except NodeDown as error:
                _log.debug("node %s does not answer", name, exc_info=True)
                return error
            return None

        names = sorted(nodes)
        answers = zip(names, self._threads.map(ask, names), strict=True)
        return {name: error for name, error in answers if error is not None}


def check_nodes(nodes: Sequence[Node], patched: bool = False) -> list[str]:
    """Check nodes before a run starts; a list of those that do not answer, with the reasons.

    Unavailable if none answers; BadInput if a password is refused, or if a server on the network is not patched and the user
    does not confirm with `patched` that it is.
    """
    silent = []
    for node in nodes:
        try:
            with Store(node, "check", timeout=_CHECK_SECONDS) as store:
                store.ping()
                if not node.is_socket:
                    check_patched(f"node {node.name}", store.server_info(), is_loopback(node.url), patched)
        except NodeDown as error:
            _log.info("node %s does not answer", node.name, exc_info=True)
            silent.append(f"{error.node}: {error.reason}")
    if len(silent) == len(nodes):
        raise Unavailable(f"no node answers ({silent[0]}); start the nodes, or correct the nodes file")
    return silent


def _check(store: Store) -> None:
    if not store.marked():
        raise NodeDataLost(store.node.name, CLEARED)


def _renew(store: Store) -> None:
    store.forget()
    store.mark()
