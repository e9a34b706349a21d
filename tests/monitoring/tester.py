"""A user who may do anything in the monitor, which no user of the program may: for tests that put garbage there."""

from __future__ import annotations

from typing import Any, cast

from monitoring.acl import Role
from monitoring.connection import Address, Connection

TESTER = cast(Role, "tester")
RULES = "~* +@all"


def as_tester(address: Address) -> Connection:
    return Connection(address, role=TESTER)


def run(connection: Connection, *commands: tuple[Any, ...]) -> list[Any]:
    """The answers to commands, in one round trip: also to such as only a tester, or an attacker, would give."""
    with connection.pipeline() as pipe:
        for command in commands:
            pipe.execute_command(*command)  # type: ignore[no-untyped-call]
        return connection.execute(pipe)
