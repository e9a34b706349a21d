"""Redis clients: how connections to nodes, the monitor, sources and sinks are opened."""

from __future__ import annotations

from typing import Any

from redis import Redis
from redis.backoff import NoBackoff
from redis.retry import Retry

CONNECT_SECONDS = 1.0


def open_redis(url: str, timeout: float, connect: float = CONNECT_SECONDS, **options: Any) -> Any:
    """A client that connects when it is first used and can be shared by threads. `options` are redis-py's.

    There are no retries: a call ends within `timeout` seconds, and connecting within `connect` seconds. RESP2 is supported by
    Redis 6.2 and all later servers. CLIENT SETINFO is not sent, because few users have the permission.
    """
    return Redis.from_url(  # Any, because redis-py's types include asyncio: every call would need a cast
        url,
        socket_connect_timeout=min(connect, timeout),
        socket_timeout=timeout,
        retry=Retry(NoBackoff(), 0),
        protocol=2,
        driver_info=None,
        **options,
    )
