"""The users of the monitor's Redis and their permissions.

    writer  the pipeline: writes records, receives commands, writes outcomes
    sender  sends commands: can only append to the commands of a run, and reads nothing
    reader  pages, `python -m monitoring`, Prometheus, and waiting for an outcome: can only read

The default user is disabled. No user can use CONFIG, DEBUG, MODULE, SAVE, FLUSHALL, SHUTDOWN, scripts, or keys of others. The
rules use only what Redis 6.2, 7, 8 and Valkey have in common. `docs/monitoring.md` has them for a server that the user runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from ppa_core.nodes.acl import NO_DEFAULT_USER, user_line

Role = Literal["writer", "sender", "reader"]

_READ = "+ping +get +hgetall +zrevrange +xrange +xrevrange"
_WRITE = "+exists +set +unlink +expire +hset +zadd +zrange +zrem +zremrangebyrank +xadd +xdel +xlen +xtrim +xinfo|stream"

RULES: dict[str, str] = {
    "writer": f"~ppa:monitor:* {_READ} {_WRITE}",
    "sender": "~ppa:monitor:*:*:commands +ping +xadd",
    "reader": f"~ppa:monitor:* {_READ}",
}


def config(passwords: Mapping[str, str]) -> str:
    """The users as lines of a server's configuration, with hashes of their passwords."""
    return "\n".join([NO_DEFAULT_USER, *(user_line(role, passwords[role], rules) for role, rules in RULES.items())])
