"""Health: which nodes answer, and still have what they were given."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from ppa_core.errors import Unavailable
from ppa_core.nodes.servers import check_patched, is_loopback
from ppa_core.nodes.store import NodeDataLost, NodeDown, NodeSlow, Store
from ppa_core.placement.nodes import Node

_log = logging.getLogger(__name__)

MISSES = 3
"""Heartbeats in a row that a node may be too slow to answer before it is taken for dead."""

_ASKED_AT_ONCE = 16
_CHECK_SECONDS = 2.0


class NodeHealth:
    """Asks nodes for a sign of life, all at once. A node that refuses is dead; a slow one is asked again, `MISSES` times.

    A node bears the mark of the run from `renew` on. Without it, it has been restarted or emptied: as good as dead.
    """

    def __init__(self, stores: Mapping[str, Store]) -> None:
        self.stores = stores
        self._missed: dict[str, int] = {}
        self._threads = ThreadPoolExecutor(_ASKED_AT_ONCE, thread_name_prefix="heartbeat")

    def failed(self, nodes: Collection[str]) -> dict[str, str]:
        """Those of the nodes that are dead or have lost their memory, and why."""
        errors = self._ask(nodes, _check)
        for name in nodes:
            error = errors.get(name)
            slow = isinstance(error, NodeSlow)
            self._missed[name] = 0 if error is None else self._missed.get(name, 0) + 1 if slow else MISSES
        return {name: error.reason for name, error in errors.items() if self._missed[name] >= MISSES}

    def reset(self, nodes: Collection[str]) -> list[str]:
        """Those of the nodes that answer; they are empty now, and marked."""
        silent = self._ask(nodes, _renew)
        return [name for name in nodes if name not in silent]

    def memory(self, nodes: Collection[str]) -> dict[str, int]:
        """Bytes that nodes use, of those that answer."""
        found: dict[str, int] = {}

        def read(store: Store) -> None:
            found[store.node.name] = store.used_memory()

        self._ask(nodes, read)
        return found

    def _ask(self, nodes: Collection[str], question: Callable[[Store], None]) -> dict[str, NodeDown]:
        """What went wrong, by node."""

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
    """Look at nodes before a run starts: which do not answer, and why.

    Unavailable if none answers; BadInput if a password is refused, or if a server on the network is not patched and the user
    does not assert with `patched` that it is.
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
        raise Unavailable(f"no node answers ({silent[0]}); start them, or correct the nodes file")
    return silent


def _check(store: Store) -> None:
    if not store.marked():
        raise NodeDataLost(store.node.name, "it was restarted or emptied, and has lost all that it held")


def _renew(store: Store) -> None:
    store.forget()
    store.mark()
