"""Access rules of Redis servers, as lines of their configuration.

Embedded nodes have one user, who can only run the commands of a `Store`, on the keys of runs. The default user is off, so
nobody can run CONFIG, DEBUG, MODULE, SAVE, FLUSHALL, SHUTDOWN, KEYS and all other commands.
"""

from __future__ import annotations

import hashlib
import os

DATA_USER = "ppa"
DATA_COMMANDS = (
    "ping", "info", "scan", "unlink", "exists", "get", "set", "pttl", "hset", "hget", "hmget", "hexists", "hkeys",
    "hgetall", "hdel", "evalsha", "script|load", "multi", "exec",
)  # fmt: skip
"""The commands that `Store`, `Lease` and their scripts use."""
DATA_RULES = f"~ppa:* -@all {' '.join(f'+{command}' for command in DATA_COMMANDS)}"

NO_DEFAULT_USER = "user default off resetpass resetkeys resetchannels -@all"


def user_line(name: str, password: str, rules: str) -> str:
    """A user with a password and rules; the line contains only the password's hash."""
    return f"user {name} on #{hashlib.sha256(password.encode()).hexdigest()} resetkeys resetchannels {rules}"


def quoted(text: str) -> str:
    """A quoted argument for a server's configuration."""
    plain = "".join(
        f"\\x{byte:02x}" if byte < 32 or byte > 126 or chr(byte) in '"\\' else chr(byte) for byte in os.fsencode(text)
    )
    return f'"{plain}"'
