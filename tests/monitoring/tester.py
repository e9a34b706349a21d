"""A user who may do anything in the monitor, which no user of the program may: for tests that put garbage there."""

from __future__ import annotations

from typing import cast

from monitoring.acl import Role
from monitoring.connection import Address, Connection

TESTER = cast(Role, "tester")
RULES = "~* +@all"


def as_tester(address: Address) -> Connection:
    return Connection(address, role=TESTER)
