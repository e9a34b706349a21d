"""A `Node`: one Redis server, the memory of one failure domain. A `Cluster` of them comes from a file
(`node_files.py`) or from `launch`.

Embedded nodes are real servers, started by a supervisor process (`supervisor.py` says why) and gone when it is. They listen on
Unix sockets in a folder that only their owner can enter, and on no port.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self, cast
from urllib.parse import parse_qs, quote, unquote, urlsplit

from redis import ConnectionPool, Redis
from redis.backoff import NoBackoff
from redis.exceptions import RedisError
from redis.retry import Retry

from ppa_core.errors import BadInput, RequestError, Unavailable
from ppa_core.runtime.acl import DATA_RULES, DATA_USER, NO_DEFAULT_USER, quoted, user_line
from ppa_core.runtime.servers import find_program

Role = Literal["primary", "standby"]

_ROLES = ("primary", "standby")
_SCHEMES = ("redis", "rediss", "unix")

_SUPERVISOR = Path(__file__).with_name("supervisor.py")
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


@dataclass(frozen=True)
class Node:
    """A Redis server in a rack. Its url holds the password: neither `repr` nor `address` shows it.

    `host` is the machine that it fails with: by default the one that the url names.
    """

    name: str
    rack: str
    role: Role
    url: str = field(repr=False)
    host: str = field(default="", repr=False)

    def __post_init__(self) -> None:
        if not self.host:
            with suppress(ValueError):  # not a url: whoever checks the node says so
                object.__setattr__(self, "host", urlsplit(self.url).hostname or "localhost")

    @property
    def address(self) -> str:
        """The server that the url names, without user, password, database and options."""
        parts = urlsplit(self.url)
        if parts.scheme == "unix":
            return f"unix://{parts.path}"
        host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
        return f"{parts.scheme}://{host}:{parts.port or 6379}"

    @property
    def is_socket(self) -> bool:
        """Whether the url names a Unix socket, which the network does not reach."""
        return urlsplit(self.url).scheme == "unix"

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
    for key, value in (("name", node.name), ("rack", node.rack), ("host", node.host or "-")):
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
        reason = "not a url: its port is no number from 1 to 65535"
        raise BadInput(place, f"{reason}; a '/', '#', '?' or '@' in a password is written as %2F, %23, %3F or %40") from None
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
            [sys.executable, "-I", str(_SUPERVISOR), str(os.getpid())],
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
