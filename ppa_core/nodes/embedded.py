"""Embedded nodes: Redis servers that are children of a supervisor process (`process/supervisor.py` says why) and end with it.

They listen on Unix sockets in a folder that only their owner can enter, and on no port.
"""

from __future__ import annotations

import logging
import os
import secrets
import shutil
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

from ppa_core.closeable import Closeable
from ppa_core.errors import RequestError, Unavailable
from ppa_core.nodes.acl import DATA_RULES, DATA_USER
from ppa_core.nodes.node_servers import NodeServers
from ppa_core.nodes.votes import needs_witness
from ppa_core.placement.nodes import Cluster, Node, Role
from ppa_core.process.supervised import Supervised

_log = logging.getLogger(__name__)

_SOCKET_BYTES = 103
"""Maximum length of a socket's path: 107 bytes on Linux, 103 on macOS."""
_WITNESS_MB = 16
_SHORT = "/tmp"
"""For sockets, if the path of the folder for temporary files is too long."""


class EmbeddedNodes(Closeable):
    """Running servers, one for each node of `cluster`.

    They stop with `close`, with the `with` block, and with this process, even if it is killed.
    """

    def __init__(self, primaries: int, standbys: int, racks: int, memory_mb: int, rules: str) -> None:
        self._sockets: Path | None = None
        self._supervisor = Supervised(
            "the embedded nodes have stopped, because their supervisor process ended; start the run again"
        )
        try:
            self._servers = NodeServers(self._supervisor, memory_mb, rules)
            self._sockets = self._folder(f"s{primaries + standbys}.sock")
            self.cluster = _fresh(primaries, standbys, racks, self._sockets)
            for node in self.cluster.nodes:
                self._servers.start(node)
            for node in self.cluster.nodes:
                self._servers.wait(node)
        except BaseException:
            self.close()
            raise

    @property
    def pids(self) -> dict[str, int]:
        """The process id of each server that was not killed."""
        return self._servers.pids

    def kill(self, name: str) -> None:
        """SIGKILL a node's server; it has ended when this returns. It is not restarted automatically."""
        self._servers.kill(self.cluster[name])

    def hang(self, name: str) -> None:
        """SIGSTOP a node's server: it keeps its connections and says nothing more."""
        os.kill(self.pids[self.cluster[name].name], signal.SIGSTOP)

    def resume(self, name: str) -> None:
        """Let a server that hangs continue, with all that it holds."""
        os.kill(self.pids[self.cluster[name].name], signal.SIGCONT)

    def restart(self, name: str) -> None:
        """Restart a node's server at the same address, empty; if it still runs, it is killed first."""
        self.kill(name)
        self._servers.start(self.cluster[name])
        self._servers.wait(self.cluster[name])

    def close(self) -> None:
        """Stop all servers; they have ended when this returns."""
        self._supervisor.close()
        if self._sockets:
            shutil.rmtree(self._sockets, ignore_errors=True)  # still there if the supervisor was killed

    def _folder(self, longest: str) -> Path:
        """A private folder for sockets; the supervisor removes it when it ends."""
        reason = ""
        for directory in (None, _SHORT):
            try:
                folder = self._supervisor.folder("ppa-nodes-", directory)
            except OSError as error:
                _log.info("no folder for sockets could be created", exc_info=True)
                reason = str(error)
                continue
            if len(os.fsencode(folder)) + 1 + len(longest) <= _SOCKET_BYTES:
                return folder
            reason = f"the path {str(folder)!r} is too long for sockets"
        raise Unavailable(f"embedded nodes need a folder for their sockets: {reason}; set TMPDIR to a folder with a short path")


def launch(primaries: int, standbys: int, racks: int, memory_mb: int, rules: str = DATA_RULES) -> EmbeddedNodes:
    """Start embedded nodes: primaries n1… over the racks r1…, standbys s1… over the racks s1…, `memory_mb` each.

    Use it as a context manager. `rules` are the access rules of their user. Unavailable if no server program is installed.
    """
    limits = {"primaries": (primaries, 1), "standbys": (standbys, 0), "racks": (racks, 1), "memory_mb": (memory_mb, 1)}
    for what, (number, least) in limits.items():
        if number < least:
            raise RequestError(what, f"{number} is too small; the minimum is {least}")
    return EmbeddedNodes(primaries, standbys, racks, memory_mb, rules)


@contextmanager
def launch_witness(nodes: Sequence[Node]) -> Iterator[Node | None]:
    """A server with a vote on which driver runs, beside this process; None if the votes of the nodes cannot be halved."""
    if not needs_witness(nodes):
        yield None
        return
    with launch(1, 0, 1, _WITNESS_MB) as running:
        yield replace(running.cluster.nodes[0], name="witness", rack="witness")


def _fresh(primaries: int, standbys: int, racks: int, folder: Path) -> Cluster:
    """Nodes with sockets in a folder and a new password."""
    password = secrets.token_urlsafe(24)

    def node(name: str, rack: str, role: Role) -> Node:
        return Node(name, rack, role, f"unix://{DATA_USER}:{password}@{quote(str(folder / name))}.sock", host=name)

    nodes = [node(f"n{i + 1}", f"r{i % racks + 1}", "primary") for i in range(primaries)]
    return Cluster([*nodes, *(node(f"s{i + 1}", f"s{i % racks + 1}", "standby") for i in range(standbys))])
