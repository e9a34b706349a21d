"""A `Node`: one Redis server, the memory of one failure domain. A `Cluster` of them comes from a file
(`node_files.py`) or from `launch`.

Embedded nodes are real servers on loopback, started by a supervisor process (`supervisor.py` says why) and gone when it is.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self, cast
from urllib.parse import parse_qs, unquote, urlsplit

from redis import ConnectionPool, Redis
from redis.backoff import NoBackoff
from redis.exceptions import RedisError
from redis.retry import Retry

from ppa_core.errors import BadInput, RequestError, Unavailable
from ppa_core.runtime.servers import find_program

Role = Literal["primary", "standby"]

_ROLES = ("primary", "standby")
_SCHEMES = ("redis", "rediss", "unix")

_SUPERVISOR = Path(__file__).with_name("supervisor.py")
_START_SECONDS = 20.0
_END_SECONDS = 10.0
_PORTS = range(16_000, 32_000)
"""Below the ports of outgoing connections: one of those could take a dead node's port, or connect to itself there."""
_CONFIG = """
bind 127.0.0.1
protected-mode yes
port {port}
requirepass {password}
save ""
appendonly no
maxmemory {memory}mb
maxmemory-policy noeviction
daemonize no
databases 1
loglevel warning
logfile ""
"""


@dataclass(frozen=True)
class Node:
    """A Redis server in a rack. Its url holds the password: neither `repr` nor `address` shows it."""

    name: str
    rack: str
    role: Role
    url: str = field(repr=False)

    @property
    def address(self) -> str:
        """The server that the url names, without user, password, database and options."""
        parts = urlsplit(self.url)
        if parts.scheme == "unix":
            return f"unix://{parts.path}"
        host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
        return f"{parts.scheme}://{host}:{parts.port or 6379}"

    @property
    def password(self) -> str | None:
        parts = urlsplit(self.url)
        asked = parse_qs(parts.query).get("password", [None])[0]
        return asked or (unquote(parts.password) if parts.password else None)

    def hide(self, text: str) -> str:
        """The text without this node's password."""
        for secret in filter(None, (self.password, urlsplit(self.url).password)):
            text = text.replace(secret, "***")
        return text


@dataclass(frozen=True)
class Cluster:
    """Nodes with names and servers of their own, at least one of them primary."""

    nodes: tuple[Node, ...]

    def __init__(self, nodes: Iterable[Node]) -> None:
        object.__setattr__(self, "nodes", tuple(nodes))
        for i, node in enumerate(self.nodes):
            _check(f"nodes[{i}]", node)
        for what, values in (("name", [n.name for n in self.nodes]), ("server", [n.address for n in self.nodes])):
            value, count = Counter(values).most_common(1)[0] if values else ("", 0)
            if count > 1:
                place = f"nodes[{_second(values, value)}]"
                raise BadInput(place, f"another node has the same {what} {value!r}; each node is a server of its own")
        if not self.primaries:
            raise BadInput("nodes", "none is primary; at least one node must be")

    def __getitem__(self, name: str) -> Node:
        if name not in self._by_name:
            raise RequestError(f"node {name!r}", f"not in the cluster; its nodes are {', '.join(self._by_name)}")
        return self._by_name[name]

    @cached_property
    def _by_name(self) -> dict[str, Node]:
        return {node.name: node for node in self.nodes}

    @property
    def primaries(self) -> tuple[Node, ...]:
        return tuple(node for node in self.nodes if node.role == "primary")

    @property
    def standbys(self) -> tuple[Node, ...]:
        return tuple(node for node in self.nodes if node.role == "standby")

    def rack(self, name: str) -> tuple[Node, ...]:
        """The nodes in a rack."""
        return tuple(node for node in self.nodes if node.rack == name)


def _check(place: str, node: Node) -> None:
    for key, value in (("name", node.name), ("rack", node.rack)):
        if not value or value != value.strip() or "," in value or not value.isprintable() or len(value) > 100:
            raise BadInput(f"{place}.{key}", "it has 1 to 100 printable characters, no comma, and no blanks at its ends")
    if node.role not in _ROLES:
        raise BadInput(f"{place}.role", f"{str(node.role)[:60]!r} is neither 'primary' nor 'standby'")
    _check_url(f"{place}.url", node.url)


def _check_url(place: str, url: str) -> None:
    """Refuse what redis-py would not understand, without repeating any part that could be the password."""
    try:
        parts = urlsplit(url)
        known, port = parts.scheme in _SCHEMES, parts.port
    except ValueError:  # its text repeats the port, which is a piece of the password if that has an unquoted '/', '#' or '?'
        raise BadInput(place, "not a url; a '/', '#', '?' or '@' in a password is written as %2F, %23, %3F or %40") from None
    if not known:
        raise BadInput(place, "it begins with none of redis://, rediss:// and unix://")
    if parts.scheme == "unix" and not parts.path:
        raise BadInput(place, "it names no socket; write unix:///path/to/socket")
    if parts.scheme != "unix" and not parts.hostname:
        raise BadInput(place, "it names no host; write redis://:password@host:6379")
    if port == 0:
        raise BadInput(place, "port 0 is none that a server listens on")
    try:
        ConnectionPool.from_url(url).make_connection()  # connects only when used
    except Exception as error:  # noqa: BLE001 - whatever redis-py finds wrong with the options; its text may repeat them
        raise BadInput(place, f"redis-py does not take its options ({type(error).__name__})") from None


def _second(values: list[str], value: str) -> int:
    return values.index(value, values.index(value) + 1)


class _PortTaken(Unavailable):
    """Another process took the port before the server did."""


class Embedded:
    """Running servers, one for each node of `cluster`.

    They end with `close`, with the context, and with this process, however it ends.
    """

    def __init__(self, cluster: Cluster, executable: str, memory_mb: int) -> None:
        self.cluster = cluster
        self._executable = executable
        self._memory_mb = memory_mb
        self._lock = threading.Lock()
        self._supervisor = subprocess.Popen(
            [sys.executable, "-I", str(_SUPERVISOR), str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,
        )
        try:
            self._pids = {node.name: self._start(node) for node in cluster.nodes}
            for node in cluster.nodes:
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

    def _start(self, node: Node) -> int:
        config = _CONFIG.format(port=urlsplit(node.url).port, password=node.password, memory=self._memory_mb)
        answer = self._request("start", node.name, self._executable, config)
        if "error" in answer:
            raise Unavailable(f"node {node.name}: {self._executable} cannot be started: {answer['error']}")
        return int(answer["pid"])

    def _await(self, node: Node) -> None:
        """Return when the node's server answers to its password."""
        end = time.monotonic() + _START_SECONDS
        with Redis.from_url(node.url, socket_timeout=1, socket_connect_timeout=1, retry=Retry(NoBackoff(), 0)) as client:
            while True:
                try:
                    client.ping()
                    return
                except RedisError:
                    state = self._request("log", node.name)
                if "Address already in use" in state["log"]:
                    raise _PortTaken(f"node {node.name}: its address {node.address} is taken by another process")
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
                answer = b""
        if not answer:
            raise Unavailable("the embedded nodes have ended: their supervisor is gone; start the run again")
        return cast(dict[str, Any], json.loads(answer))


def launch(primaries: int, standbys: int, racks: int, memory_mb: int) -> Embedded:
    """Start embedded nodes: primaries n1… over the racks r1…, standbys s1… over the racks s1…, `memory_mb` each.

    Use it as a context manager. Unavailable if there is no server to start.
    """
    limits = {"primaries": (primaries, 1), "standbys": (standbys, 0), "racks": (racks, 1), "memory_mb": (memory_mb, 1)}
    for what, (number, least) in limits.items():
        if number < least:
            raise RequestError(what, f"{number}; at least {least}")
    executable = find_program().path
    for _ in range(4):
        try:
            return Embedded(_fresh(primaries, standbys, racks), executable, memory_mb)
        except _PortTaken:
            continue
    return Embedded(_fresh(primaries, standbys, racks), executable, memory_mb)


def _fresh(primaries: int, standbys: int, racks: int) -> Cluster:
    """Nodes at free ports with a new password."""
    password, ports = secrets.token_urlsafe(24), _free_ports(primaries + standbys)
    urls = [f"redis://:{password}@127.0.0.1:{port}/0" for port in ports]
    nodes = [Node(f"n{i + 1}", f"r{i % racks + 1}", "primary", urls[i]) for i in range(primaries)]
    nodes += [Node(f"s{i + 1}", f"s{i % racks + 1}", "standby", urls[primaries + i]) for i in range(standbys)]
    return Cluster(nodes)


def _free_ports(count: int) -> list[int]:
    found: list[int] = []
    for port in secrets.SystemRandom().sample(_PORTS, len(_PORTS)):
        if len(found) == count:
            return found
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            found.append(port)
    raise Unavailable(f"{count} free ports on 127.0.0.1 are needed between {_PORTS.start} and {_PORTS.stop}")
