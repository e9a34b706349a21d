"""Who may do what on a Redis server: lines for its config.

Embedded nodes have one user, who may run the commands of a `Store` on the keys of runs. The default user is off, so CONFIG,
DEBUG, MODULE, SAVE, FLUSHALL, SHUTDOWN, KEYS and the rest are nobody's.
"""

from __future__ import annotations

import hashlib
import os

DATA_USER = "ppa"
DATA_COMMANDS = (
    "ping", "info", "scan", "unlink", "exists", "get", "set", "pexpire", "pttl", "hset", "hget", "hmget", "hexists", "hkeys",
    "hgetall", "hdel", "evalsha", "script|load", "multi", "exec",
)  # fmt: skip
"""What `Store` and `Lease` send, and what their scripts call."""
DATA_RULES = f"~ppa:* -@all {' '.join(f'+{command}' for command in DATA_COMMANDS)}"
EVERYTHING = "~* &* +@all"

NO_DEFAULT_USER = "user default off resetpass resetkeys resetchannels -@all"


def user_line(name: str, password: str, rules: str) -> str:
    """A user with a password and rules; the line holds the password's hash only."""
    return f"user {name} on #{hashlib.sha256(password.encode()).hexdigest()} resetkeys resetchannels {rules}"


def quoted(text: str) -> str:
    """A text as an argument in a server's config."""
    plain = "".join(
        f"\\x{byte:02x}" if byte < 32 or byte > 126 or chr(byte) in '"\\' else chr(byte) for byte in os.fsencode(text)
    )
    return f'"{plain}"'
