"""`Node`: a Redis server that holds task state. A `Cluster` of nodes comes from a nodes file (`files.py`) or from
`ppa_core.nodes.embedded.launch`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal
from urllib.parse import parse_qs, unquote, urlsplit

from ppa_core.errors import BadInput, RequestError
from ppa_core.redis_client import CONNECT_SECONDS, open_redis

Role = Literal["primary", "standby"]

_ROLES = ("primary", "standby")
_SCHEMES = ("redis", "rediss", "unix")


@dataclass(frozen=True)
class Node:
    """A Redis server in a rack. Its URL contains the password, which neither `repr` nor `address` shows.

    `host` is the machine that it fails together with, by default the host in the URL.
    """

    name: str
    rack: str
    role: Role
    url: str = field(repr=False)
    host: str = field(default="", repr=False)

    def __post_init__(self) -> None:
        if not self.host:
            with suppress(ValueError):  # not a URL: `Cluster` reports it
                object.__setattr__(self, "host", urlsplit(self.url).hostname or "localhost")

    @property
    def address(self) -> str:
        """The server's URL without user, password, database and options."""
        parts = urlsplit(self.url)
        if parts.scheme == "unix":
            return f"unix://{parts.path}"
        host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
        return f"{parts.scheme}://{host}:{parts.port or 6379}"

    @property
    def is_socket(self) -> bool:
        """Whether the URL is that of a Unix socket, which cannot be reached over the network."""
        return urlsplit(self.url).scheme == "unix"

    @property
    def password(self) -> str | None:
        parts = urlsplit(self.url)
        asked = parse_qs(parts.query).get("password", [None])[0]
        return asked or (unquote(parts.password) if parts.password else None)

    def hide(self, text: str) -> str:
        """The text with this node's password masked."""
        for secret in filter(None, (self.password, urlsplit(self.url).password)):
            text = text.replace(secret, "***")
        return text


@dataclass(frozen=True)
class Cluster:
    """Nodes with unique names and servers, at least one of them primary."""

    nodes: tuple[Node, ...]

    def __init__(self, nodes: Iterable[Node]) -> None:
        object.__setattr__(self, "nodes", tuple(nodes))
        for i, node in enumerate(self.nodes):
            _check(f"nodes[{i}]", node)
        for what, values in (("name", [n.name for n in self.nodes]), ("server", [n.address for n in self.nodes])):
            value, count = Counter(values).most_common(1)[0] if values else ("", 0)
            if count > 1:
                place = f"nodes[{_second(values, value)}]"
                raise BadInput(place, f"another node has the same {what} {value!r}; each node needs its own server")
        if not self.primaries:
            raise BadInput("nodes", "no primary node; at least one is required")

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
            raise BadInput(f"{place}.{key}", "it must have 1 to 100 printable characters, no comma, and no spaces at its ends")
    if node.role not in _ROLES:
        raise BadInput(f"{place}.role", f"{str(node.role)[:60]!r} is neither 'primary' nor 'standby'")
    _check_url(f"{place}.url", node.url)


def _check_url(place: str, url: str) -> None:
    """Refuse a URL that redis-py does not accept, without quoting any part that could be the password."""
    try:
        parts = urlsplit(url)
        known, port = parts.scheme in _SCHEMES, parts.port
    except ValueError:  # its text repeats the port, which is a piece of the password if that has an unquoted '/', '#' or '?'
        reason = "not a URL: its port is not a number from 1 to 65535"
        raise BadInput(place, f"{reason}; in a password, write '/', '#', '?' and '@' as %2F, %23, %3F and %40") from None
    if not known:
        raise BadInput(place, "it must begin with redis://, rediss:// or unix://")
    if parts.scheme == "unix" and not parts.path:
        raise BadInput(place, "no socket; write unix:///path/to/socket")
    if parts.scheme != "unix" and not parts.hostname:
        raise BadInput(place, "no host; write redis://:password@host:6379")
    if port == 0:
        raise BadInput(place, "port 0 is not valid")
    try:
        open_redis(url, CONNECT_SECONDS).connection_pool.make_connection()  # connects only when used
    except Exception as error:  # noqa: BLE001 - whatever redis-py finds wrong with the options; its text may repeat them
        raise BadInput(place, f"redis-py does not take its options ({type(error).__name__})") from None


def _second(values: list[str], value: str) -> int:
    return values.index(value, values.index(value) + 1)
