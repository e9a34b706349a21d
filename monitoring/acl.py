"""What each user of the monitor's Redis may do: the one list of it.

    writer  the pipeline: writes records, takes commands, answers them
    sender  who sends commands: appends to the commands of a run, and reads nothing
    reader  pages, `python -m monitoring`, Prometheus, and whoever waits for an outcome: reads

The default user is off, and nobody has CONFIG, DEBUG, MODULE, SAVE, FLUSHALL, SHUTDOWN, scripts, or keys that are not the
monitor's. The rules are in the words that Redis 6.2, 7, 8 and Valkey have in common. `docs/monitoring.md` has them for a server
that the user runs.
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
    """The users as lines of a server's configuration, which has the passwords' hashes only."""
    return "\n".join([NO_DEFAULT_USER, *(user_line(role, passwords[role], rules) for role, rules in RULES.items())])
