"""How this program opens a connection to a Redis server: nodes, the monitor, sources and sinks alike."""

from __future__ import annotations

from typing import Any

from redis import Redis
from redis.backoff import NoBackoff
from redis.retry import Retry

CONNECT_SECONDS = 1.0


def open_redis(url: str, timeout: float, connect: float = CONNECT_SECONDS, **options: Any) -> Any:
    """A client, which connects when it is first used and may be shared by threads. `options` are redis-py's.

    Nothing is tried twice: a call ends within `timeout` seconds, and a connection is refused after `connect` at the latest.
    RESP2 is what Redis 6.2 and all later servers speak. CLIENT SETINFO is not sent: few users may.
    """
    return Redis.from_url(  # Any, because redis-py's methods are typed for asyncio as well: a cast at every call
        url,
        socket_connect_timeout=min(connect, timeout),
        socket_timeout=timeout,
        retry=Retry(NoBackoff(), 0),
        protocol=2,
        driver_info=None,
        **options,
    )
