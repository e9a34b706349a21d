"""The Redis servers of nodes, as children of a supervisor: each is configured by its node's URL, and has one user."""

from __future__ import annotations

import time
from collections.abc import Sequence
from urllib.parse import unquote, urlsplit

from redis.exceptions import RedisError

from ppa_core.errors import Unavailable
from ppa_core.nodes.acl import DATA_USER, NO_DEFAULT_USER, quoted, user_line
from ppa_core.nodes.servers import find_program
from ppa_core.placement.nodes import Node
from ppa_core.process.supervised import Supervised
from ppa_core.redis_client import open_redis

_START_SECONDS = 20.0
_ASK_SECONDS = 1.0
_LOOK_AGAIN = 0.01
_CONFIG = """
{listen}
{no_default_user}
{user}
save ""
appendonly no
maxmemory {memory}mb
maxmemory-policy noeviction
daemonize no
databases 1
loglevel warning
logfile ""
"""


class NodeServers:
    """Starts and kills servers; their data is in memory only. Unavailable if no server program is installed."""

    def __init__(self, supervisor: Supervised, memory_mb: int, rules: str) -> None:
        self._supervisor, self._memory_mb, self._rules = supervisor, memory_mb, rules
        self._executable = find_program().path
        self._pids: dict[str, int] = {}

    @property
    def pids(self) -> dict[str, int]:
        """The process id of each server that was not killed."""
        return dict(self._pids)

    def start(self, node: Node, prefix: Sequence[str] = ()) -> None:
        """Start a node's server at the address in its URL; `prefix` as in `Supervised.start`."""
        assert node.password
        config = _CONFIG.format(
            listen=_listen(node.url), no_default_user=NO_DEFAULT_USER,
            user=user_line(DATA_USER, node.password, self._rules), memory=self._memory_mb,
        )  # fmt: skip
        self._pids[node.name] = self._supervisor.start(_child(node), self._executable, config, prefix)

    def wait(self, node: Node) -> None:
        """Wait until a node's server accepts its password. Unavailable if it does not start."""
        end = time.monotonic() + _START_SECONDS
        with open_redis(node.url, _ASK_SECONDS) as client:
            while True:
                try:
                    client.ping()
                    return
                except RedisError:
                    state = self._supervisor.state(_child(node))
                if not state.running or time.monotonic() > end:
                    reason = node.hide(" ".join(state.log.split())[-300:]) or f"no answer in {_START_SECONDS:g} s"
                    raise Unavailable(f"{_child(node)}: {self._executable} did not start: {reason}")
                time.sleep(_LOOK_AGAIN)

    def kill(self, node: Node) -> None:
        """SIGKILL a node's server; it has ended when this returns. Does nothing if it is not running."""
        self._supervisor.kill(_child(node))
        self._pids.pop(node.name, None)

    def runs(self, node: Node) -> bool:
        return self._supervisor.state(_child(node)).running


def _listen(url: str) -> str:
    """Where a server listens: on a Unix socket and no port, or on one address."""
    parts = urlsplit(url)
    if parts.scheme == "unix":
        return f"port 0\nunixsocket {quoted(unquote(parts.path))}\nunixsocketperm 700"
    return f"bind {parts.hostname}\nport {parts.port}"


def _child(node: Node) -> str:
    """A server's name among the supervisor's children."""
    return f"node {node.name}"
