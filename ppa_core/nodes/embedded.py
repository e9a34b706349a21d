"""Embedded nodes: real servers, started by a supervisor process (`process/supervisor.py` says why) and gone when it is.

They listen on Unix sockets in a folder that only their owner can enter, and on no port.
"""

from __future__ import annotations

import json
import logging
import os
import secrets
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self, cast
from urllib.parse import quote, unquote, urlsplit

from redis import Redis
from redis.backoff import NoBackoff
from redis.exceptions import RedisError
from redis.retry import Retry

from ppa_core.errors import RequestError, Unavailable
from ppa_core.nodes.acl import DATA_RULES, DATA_USER, NO_DEFAULT_USER, quoted, user_line
from ppa_core.nodes.servers import find_program
from ppa_core.placement.nodes import Cluster, Node, Role
from ppa_core.process import supervisor

_log = logging.getLogger(__name__)

_START_SECONDS = 20.0
_END_SECONDS = 10.0
_SOCKET_BYTES = 103
"""Longest path of a socket: Linux takes 107 bytes, macOS 103."""
_SHORT = "/tmp"
"""Where sockets go if the path of the folder for temporary files is too long for them."""
_CONFIG = """
port 0
unixsocket {socket}
unixsocketperm 700
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


class Embedded:
    """Running servers, one for each node of `cluster`.

    They end with `close`, with the context, and with this process, however it ends.
    """

    def __init__(self, primaries: int, standbys: int, racks: int, memory_mb: int, rules: str) -> None:
        self._executable = find_program().path
        self._memory_mb = memory_mb
        self._rules = rules
        self._lock = threading.Lock()
        self._sockets: Path | None = None
        self._supervisor = subprocess.Popen(
            [sys.executable, "-I", supervisor.__file__, str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,
        )
        try:
            self._sockets = self._folder(f"s{primaries + standbys}.sock")
            self.cluster = _fresh(primaries, standbys, racks, self._sockets)
            self._pids = {node.name: self._start(node) for node in self.cluster.nodes}
            for node in self.cluster.nodes:
                self._await(node)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    @property
    def pids(self) -> dict[str, int]:
        """The process of each server that was not killed."""
        return dict(self._pids)

    def kill(self, name: str) -> None:
        """SIGKILL a node's server; it is gone when this returns. A killed one stays killed."""
        self._request("kill", self.cluster[name].name)
        self._pids.pop(name, None)

    def restart(self, name: str) -> None:
        """Start a node's server again at the same address, empty; one that still runs is killed first."""
        self.kill(name)
        self._pids[name] = self._start(self.cluster[name])
        self._await(self.cluster[name])

    def close(self) -> None:
        """End all servers; they are gone when this returns."""
        assert self._supervisor.stdin and self._supervisor.stdout
        with self._lock:
            self._supervisor.stdin.close()  # the sign to end
            try:
                self._supervisor.wait(_END_SECONDS)
            except subprocess.TimeoutExpired:
                self._supervisor.kill()
                self._supervisor.wait()
            self._supervisor.stdout.close()
            if self._sockets:
                shutil.rmtree(self._sockets, ignore_errors=True)  # a supervisor that was killed has left it

    def _folder(self, longest: str) -> Path:
        """A folder for sockets that goes with the supervisor and that only its owner can enter."""
        reason = ""
        for directory in ((), (_SHORT,)):
            answer = self._request("folder", "ppa-nodes-", *directory)
            if "error" in answer:
                reason = answer["error"]
            elif len(os.fsencode(answer["folder"])) + 1 + len(longest) <= _SOCKET_BYTES:
                return Path(answer["folder"])
            else:
                reason = f"the path {answer['folder']!r} is too long for sockets"
        raise Unavailable(f"embedded nodes need a folder for their sockets: {reason}; name a short one in TMPDIR")

    def _start(self, node: Node) -> int:
        assert node.password
        config = _CONFIG.format(
            socket=quoted(unquote(urlsplit(node.url).path)), no_default_user=NO_DEFAULT_USER,
            user=user_line(DATA_USER, node.password, self._rules), memory=self._memory_mb,
        )  # fmt: skip
        answer = self._request("start", node.name, self._executable, config)
        if "error" in answer:
            raise Unavailable(f"node {node.name}: {self._executable} cannot be started: {answer['error']}")
        return int(answer["pid"])

    def _await(self, node: Node) -> None:
        """Return when the node's server answers to its password."""
        end = time.monotonic() + _START_SECONDS
        quick = Retry(NoBackoff(), 0)
        with Redis.from_url(node.url, socket_timeout=1, socket_connect_timeout=1, retry=quick, protocol=2) as client:
            while True:
                try:
                    client.ping()
                    return
                except RedisError:
                    state = self._request("log", node.name)
                if not state["running"] or time.monotonic() > end:
                    reason = node.hide(" ".join(state["log"].split())[-300:]) or f"no answer in {_START_SECONDS:g} s"
                    raise Unavailable(f"node {node.name}: {self._executable} did not start: {reason}")
                time.sleep(0.01)

    def _request(self, *request: str) -> dict[str, Any]:
        assert self._supervisor.stdin and self._supervisor.stdout
        with self._lock:
            try:
                self._supervisor.stdin.write(json.dumps(request).encode() + b"\n")
                answer = self._supervisor.stdout.readline()
            except (OSError, ValueError):
                _log.info("the supervisor does not answer", exc_info=True)
                answer = b""
        if not answer:
            raise Unavailable("the embedded nodes have ended: their supervisor is gone; start the run again")
        return cast(dict[str, Any], json.loads(answer))


def launch(primaries: int, standbys: int, racks: int, memory_mb: int, rules: str = DATA_RULES) -> Embedded:
    """Start embedded nodes: primaries n1… over the racks r1…, standbys s1… over the racks s1…, `memory_mb` each.

    Use it as a context manager. `rules` are their user's. Unavailable if there is no server to start.
    """
    limits = {"primaries": (primaries, 1), "standbys": (standbys, 0), "racks": (racks, 1), "memory_mb": (memory_mb, 1)}
    for what, (number, least) in limits.items():
        if number < least:
            raise RequestError(what, f"{number}; at least {least}")
    return Embedded(primaries, standbys, racks, memory_mb, rules)


def _fresh(primaries: int, standbys: int, racks: int, folder: Path) -> Cluster:
    """Nodes with sockets in a folder and a new password."""
    password = secrets.token_urlsafe(24)

    def node(name: str, rack: str, role: Role) -> Node:
        return Node(name, rack, role, f"unix://{DATA_USER}:{password}@{quote(str(folder / name))}.sock", host=name)

    nodes = [node(f"n{i + 1}", f"r{i % racks + 1}", "primary") for i in range(primaries)]
    return Cluster([*nodes, *(node(f"s{i + 1}", f"s{i % racks + 1}", "standby") for i in range(standbys))])
