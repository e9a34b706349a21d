"""A Redis server given by its URL, for sources and sinks that use streams."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from redis.exceptions import AuthenticationError, RedisError
from redis.exceptions import ConnectionError as NoConnection
from redis.exceptions import TimeoutError as NoAnswer

from ppa_core.errors import BadInput, Unavailable
from ppa_core.pipeline.sources.metered import Metered
from ppa_core.placement.nodes import Cluster, Node
from ppa_core.redis_client import open_redis
from ppa_core.safety.passwords import from_file, with_password

_TIMEOUT = 5.0


class NotReached(Unavailable):
    """The server does not respond at the moment."""


@dataclass(frozen=True)
class RedisServer:
    """A server. Its URL contains the password, which neither `repr` nor errors show, or names a file with it."""

    url: str = field(repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "url", from_file(self.url))
        try:
            Cluster([self._node])
        except BadInput as error:
            raise BadInput("redis url", error.reason) from None

    @property
    def _node(self) -> Node:
        return Node("redis", "redis", "primary", self.url)

    @property
    def address(self) -> str:
        """The URL without user, password, database and options."""
        return self._node.address

    def or_password(self, password: str | None) -> RedisServer:
        """The server, with the password from an environment variable if that is set and the URL has none."""
        return RedisServer(with_password(self.url, password)) if password and not self._node.password else self

    @contextmanager
    def calls(self, metered: bool = False) -> Iterator[Any]:
        """A client. Raises NotReached if the server does not respond, and Unavailable for other errors.

        With `metered`, a call with a too large response raises TooMuch.
        """
        try:
            yield _client(self.url, metered)
        except AuthenticationError as error:
            raise Unavailable(f"{self.address}: {self._node.hide(str(error))}; check the password in its url") from None
        except (NoConnection, NoAnswer) as error:
            raise NotReached(f"{self.address}: no answer: {self._node.hide(str(error))}; is the server running?") from None
        except RedisError as error:
            raise Unavailable(f"{self.address}: {self._node.hide(str(error))}") from None


def split_key(text: str, password: str | None) -> tuple[RedisServer, str]:
    """The server and the key in `redis://…#key`, with the password from an environment variable if the URL has none."""
    url, found, key = text.rpartition("#")
    if not found or not key:
        raise BadInput("redis url", "no key; write redis://host:6379#key")
    return RedisServer(url).or_password(password), key


@lru_cache(maxsize=8)
def _client(url: str, metered: bool) -> Any:
    """One client per process and server; it reconnects after a fork."""
    return open_redis(url, _TIMEOUT, connect=_TIMEOUT, **({"parser_class": Metered} if metered else {}))
