"""The address of the monitor, and connections to it: a URL, or the embedded server of a folder (`server.py`).

PpaError
└── Unavailable
    ├── MonitorDown      the monitor does not answer, or was never started
    └── UnknownSchema    the monitor has another schema version
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
"""In the folder of an embedded server: its socket, its process id and each user's password; only its owner can read it."""


class MonitorDown(Unavailable):
    """The monitor does not answer; the message says where it is expected and what to do."""


class UnknownSchema(Unavailable):
    """The monitor was written by a version of this program with another schema."""


@dataclass(frozen=True)
class Address:
    """Where the monitor is: at `url`, a server that the user runs; without a URL, the embedded server of `directory`.

    `read_url` is for readers, with a Redis user that can only read; without it, readers use `url` too. With `patched` the user
    confirms that the server has the security fixes although its version does not show it.
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
        """The given URL, else the URL of the settings, else the embedded server of the folder."""
        settings = settings or current()
        chosen = url or settings.monitor_url
        return cls(chosen, directory or DIRECTORY, settings.monitor_read_url if chosen else None, patched)

    def current(self, role: Role = "writer") -> str:
        """The URL to connect to. Read at every connect: an embedded server can have another socket after a restart."""
        if self.url is None:
            return embedded_url(self.directory, role)
        return self.read_url if self.read_url is not None and role == "reader" else self.url

    def check(self) -> None:
        """BadInput if the user's server refuses the password or lacks security fixes; it may also be down at the moment."""
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
    """BadInput if it is not the URL of a Redis server; the message does not repeat any part of it."""
    try:
        Cluster([Node("monitor", "monitor", "primary", url)])
    except BadInput as error:
        raise BadInput(variable, error.reason) from None


def embedded_url(directory: Path, role: Role = "writer") -> str:
    """The URL of the folder's server for a user, as of its last start; MonitorDown if it was never started."""
    known = last_start(directory)
    try:
        url = f"unix://{role}:{quote(known['passwords'][role], safe='')}@{quote(private_socket(directory, known))}"
        check_url(url)
    except (KeyError, TypeError, ValueError, BadInput):
        remedy = f"start a pipeline or `python -m monitoring serve`, or set {URL_VARIABLE} to the URL of a Redis server"
        raise MonitorDown(f"no monitor has been started in {str(directory)!r}; {remedy}") from None
    return url


def last_start(directory: Path) -> dict[str, Any]:
    """The content of the server file; empty if there is none."""
    try:
        known = json.loads((directory / SERVER_FILE).read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return known if isinstance(known, dict) else {}


def private_socket(directory: Path, known: Mapping[str, Any]) -> str:
    """The path of the folder's socket; ValueError unless only the folder's owner can have created it.

    If the socket's temporary folder was removed, another user could create one with that name and receive the password.
    """
    path = Path(str(known["socket"]))
    try:
        place, owner = path.parent.stat(), directory.stat().st_uid
    except OSError:
        raise ValueError("its folder does not exist") from None
    if not path.is_absolute() or place.st_uid != owner or place.st_mode & 0o077:
        raise ValueError("its folder is not private")
    return str(path)


def hide_password(url: str, text: str) -> str:
    """The text without the URL's password."""
    return _node(url).hide(text)


def without_credentials(url: str) -> str:
    """The server of a URL, without user and password."""
    return _node(url).address


def _node(url: str) -> Node:
    return Node("monitor", "", "primary", url)


class Connection:
    """A connection to the monitor. Threads may share it. Nothing is retried; a call ends within the timeout.

    Errors are MonitorDown, BadInput (the password is refused, or a server reached over TCP lacks security fixes, checked once)
    and UnknownSchema. None of them shows the password.
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
        """Commands for one round trip, which `execute` or `read` sends inside the block; not a transaction."""
        with self._guard() as client, client.pipeline(transaction=False) as pipe:
            yield pipe

    def execute(self, pipe: Pipeline) -> list[Any]:
        """The answers to the commands; the answer to a refused command is its error."""
        answers: list[Any] = pipe.execute(raise_on_error=False)
        for answer in answers:
            if isinstance(answer, ReadOnlyError):  # it has become a Redis replica: as if it were down
                raise answer
        return answers

    def read(self, pipe: Pipeline) -> list[Any]:
        """As `execute`; UnknownSchema if the monitor has another schema version than this program."""
        pipe.get(keys.SCHEMA_KEY)
        *answers, schema = self.execute(pipe)
        self.check_schema(schema)
        return answers

    def check_schema(self, schema: object) -> None:
        if schema is None or schema == str(keys.SCHEMA).encode():
            return
        found = schema.decode("utf-8", "backslashreplace")[:20] if isinstance(schema, bytes) else "unreadable"
        raise UnknownSchema(
            f"the monitor at {self.place} has schema version {found!r}, this program needs {keys.SCHEMA}: "
            "use the version of this program that wrote it, or another Redis database"
        )

    @property
    def place(self) -> str:
        return without_credentials(self._url) if self._url else "its address"

    @contextmanager
    def _guard(self) -> Iterator[Redis]:
        """The client; errors of redis-py are raised as errors of this project."""
        client = self._client()
        try:
            self._check_patched(client)
            yield client
        except (AuthenticationError, AuthorizationError, NoPermissionError) as error:
            raise BadInput(
                f"monitor at {self.place}", f"the server refuses the user or password ({self._reason(error)})"
            ) from None
        except (RedisError, OSError) as error:
            place, reason = self.place, self._reason(error)
            self._forget_if_moved()
            remedy = "" if self.address.url is not None else "; `python -m monitoring serve` starts it again with its history"
            raise MonitorDown(f"the monitor at {place} does not answer: {reason}{remedy}") from None

    def _check_patched(self, client: Redis) -> None:
        """Refuse a server with known vulnerabilities if it is reached over TCP, where others can reach it too."""
        url = self._url or ""
        if not self._checked and not url.startswith("unix:"):
            try:
                info = client.info("server")
            except NoPermissionError:
                info = {}
            check_patched(f"monitor at {self.place}", info, is_loopback(url), self.address.patched)
        self._checked = True

    def _forget_if_moved(self) -> None:
        """Close the client if the embedded server has another socket now. Otherwise keep it: other threads may use it."""
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
        return hide_password(self._url, text)[:300] if self._url else type(error).__name__
