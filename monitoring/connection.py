"""Where the monitor is, and how to talk to it: a url, or the embedded server of a folder (`server.py`).

PpaError
└── Unavailable
    ├── MonitorDown      the monitor does not answer, or there is none
    └── UnknownSchema    it keeps something that this program does not know
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

from redis import Redis
from redis.client import Pipeline
from redis.exceptions import AuthenticationError, AuthorizationError, NoPermissionError, ReadOnlyError, RedisError

from monitoring import keys
from monitoring.acl import Role
from ppa_core.errors import BadInput, Unavailable
from ppa_core.nodes.servers import check_patched, is_loopback
from ppa_core.placement.nodes import Cluster, Node
from ppa_core.redis_client import open_redis
from ppa_core.settings import MONITOR_READ_URL_VARIABLE, MONITOR_URL_VARIABLE, ProgramSettings, current

_log = logging.getLogger(__name__)

URL_VARIABLE, READ_URL_VARIABLE = MONITOR_URL_VARIABLE, MONITOR_READ_URL_VARIABLE
DIRECTORY = current().monitor_directory
SOCKET_TIMEOUT = 5.0
SERVER_FILE = "server.json"
"""In the folder of an embedded server: its socket, its process, and each user's password; readable by its owner alone."""


class MonitorDown(Unavailable):
    """The monitor does not answer; the message says where it should be and what to do."""


class UnknownSchema(Unavailable):
    """The monitor was written by a version of this program that keeps other things."""


@dataclass(frozen=True)
class Address:
    """Where the monitor is. With a `url` it is a server that the user runs; without, the embedded one of `directory`.

    `read_url` names a user of that server who can only read; without it, readers use `url` too. `patched` is the user's word
    that the server has its fixes, whatever its version says.
    """

    url: str | None = field(default=None, repr=False)
    directory: Path = DIRECTORY
    read_url: str | None = field(default=None, repr=False)
    patched: bool = False

    def __post_init__(self) -> None:
        for variable, url in ((URL_VARIABLE, self.url), (READ_URL_VARIABLE, self.read_url)):
            if url is not None:
                check_url(url, variable)

    @classmethod
    def find(
        cls,
        url: str | None = None,
        directory: Path | None = None,
        settings: ProgramSettings | None = None,
        patched: bool = False,
    ) -> Address:
        """The url that is given, else that of the settings, else the folder's embedded server."""
        settings = settings or current()
        chosen = url or settings.monitor_url
        return cls(chosen, directory or DIRECTORY, settings.monitor_read_url if chosen else None, patched)

    def current(self, role: Role = "writer") -> str:
        """The url to use now. An embedded server may come back at another socket, so it is asked for at every connection."""
        if self.url is None:
            return embedded_url(self.directory, role)
        return self.read_url if self.read_url is not None and role == "reader" else self.url

    def check(self) -> None:
        """BadInput if the server that the user runs refuses the password or was never patched; one that is away may be back."""
        roles: tuple[Role, ...] = ("writer", "reader")
        for role in roles if self.url is not None else ():
            connection = Connection(self, role=role)
            try:
                with connection.pipeline() as pipe:
                    pipe.ping()
                    connection.execute(pipe)
            except MonitorDown:
                _log.info("the monitor does not answer", exc_info=True)
            connection.close()


def check_url(url: str, variable: str = URL_VARIABLE) -> None:
    """Refuse what is no url of a Redis server, without repeating any of it."""
    try:
        Cluster([Node("monitor", "monitor", "primary", url)])
    except BadInput as error:
        raise BadInput(variable, error.reason) from None


def embedded_url(directory: Path, role: Role = "writer") -> str:
    """The url of the folder's server for a user, as it was started last; MonitorDown if there was none."""
    known = last_start(directory)
    try:
        url = f"unix://{role}:{quote(known['passwords'][role], safe='')}@{quote(private_socket(directory, known))}"
        check_url(url)
    except (KeyError, TypeError, ValueError, BadInput):
        remedy = f"start a pipeline or `python -m monitoring serve`, or name a Redis server in {URL_VARIABLE}"
        raise MonitorDown(f"no monitor has been started in {str(directory)!r}; {remedy}") from None
    return url


def last_start(directory: Path) -> dict[str, Any]:
    """What is written down about the folder's server; empty if there was none."""
    try:
        known = json.loads((directory / SERVER_FILE).read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return known if isinstance(known, dict) else {}


def private_socket(directory: Path, known: Mapping[str, Any]) -> str:
    """The path of the folder's socket; ValueError unless it is where only the folder's owner can have put it.

    In a temporary folder that is gone anybody could make another one of that name, and be told the password.
    """
    path = Path(str(known["socket"]))
    try:
        place, owner = path.parent.stat(), directory.stat().st_uid
    except OSError:
        raise ValueError("its folder is gone") from None
    if not path.is_absolute() or place.st_uid != owner or place.st_mode & 0o077:
        raise ValueError("its folder is not private")
    return str(path)


def hide(url: str, text: str) -> str:
    """The text without the url's password."""
    return _node(url).hide(text)


def shown(url: str) -> str:
    """The server that a url names, without user and password."""
    return _node(url).address


def _node(url: str) -> Node:
    return Node("monitor", "", "primary", url)


class Connection:
    """A connection to the monitor that may be shared by threads. Nothing is tried twice; a call ends within the timeouts.

    What goes wrong is raised as MonitorDown, BadInput (the password is refused, or over TCP the server was never patched, which
    is asked once) or UnknownSchema; none shows the password.
    """

    def __init__(self, address: Address, timeout: float = SOCKET_TIMEOUT, role: Role = "writer") -> None:
        self.address, self._timeout, self._role = address, timeout, role
        self._checked = False
        self._url: str | None = None
        self._opened: Redis | None = None

    def __repr__(self) -> str:
        return f"Connection({self.address!r})"

    def close(self) -> None:
        opened, self._opened, self._url = self._opened, None, None
        if opened is not None:
            opened.close()

    @contextmanager
    def pipeline(self) -> Iterator[Pipeline]:
        """Commands for one round trip, made by `execute` or `read` inside the block; not a transaction."""
        with self._guard() as client, client.pipeline(transaction=False) as pipe:
            yield pipe

    def execute(self, pipe: Pipeline) -> list[Any]:
        """The answers to a pipeline's commands; a command that is refused has its error as its answer."""
        answers: list[Any] = pipe.execute(raise_on_error=False)
        for answer in answers:
            if isinstance(answer, ReadOnlyError):  # it became a replica: writes wait until it, or its address, is back
                raise answer
        return answers

    def read(self, pipe: Pipeline) -> list[Any]:
        """As `execute`, but only where the schema is the one that this program knows, or there is nothing yet."""
        pipe.get(keys.SCHEMA_KEY)
        *answers, schema = self.execute(pipe)
        self.check_schema(schema)
        return answers

    def check_schema(self, schema: object) -> None:
        if schema is None or schema == str(keys.SCHEMA).encode():
            return
        found = schema.decode("utf-8", "backslashreplace")[:20] if isinstance(schema, bytes) else "unreadable"
        raise UnknownSchema(
            f"the monitor at {self.place} keeps schema {found!r} and this program knows schema {keys.SCHEMA}: "
            "use the version of the program that wrote it, or another Redis database"
        )

    @property
    def place(self) -> str:
        return shown(self._url) if self._url else "its address"

    @contextmanager
    def _guard(self) -> Iterator[Redis]:
        """The client, with what redis-py raises turned into this project's errors."""
        client = self._client()
        try:
            self._check_patched(client)
            yield client
        except (AuthenticationError, AuthorizationError, NoPermissionError) as error:
            raise BadInput(f"monitor at {self.place}", f"it refuses the user or password ({self._reason(error)})") from None
        except (RedisError, OSError) as error:
            place, reason = self.place, self._reason(error)
            self._forget_if_moved()
            remedy = "" if self.address.url is not None else "; `python -m monitoring serve` starts it again, with its history"
            raise MonitorDown(f"the monitor at {place} does not answer: {reason}{remedy}") from None

    def _check_patched(self, client: Redis) -> None:
        """Over TCP anyone on the network can reach the server: one with known holes is refused."""
        url = self._url or ""
        if not self._checked and not url.startswith("unix:"):
            try:
                info = client.info("server")
            except NoPermissionError:
                info = {}
            check_patched(f"monitor at {self.place}", info, is_loopback(url), self.address.patched)
        self._checked = True

    def _forget_if_moved(self) -> None:
        """An embedded server may be elsewhere when it is back. Otherwise the client stays: other threads may be using it."""
        with suppress(MonitorDown):
            if self.address.current(self._role) == self._url:
                return
        self.close()

    def _client(self) -> Redis:
        if self._opened is None:
            url = self.address.current(self._role)
            self._opened = open_redis(url, self._timeout)
            self._url = url
        return self._opened

    def _reason(self, error: Exception) -> str:
        text = str(error) or type(error).__name__
        return hide(self._url, text)[:300] if self._url else type(error).__name__
