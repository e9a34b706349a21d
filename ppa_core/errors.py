"""Errors with a message for the user.

PpaError
├── BadInput            an argument or input is invalid (exit code 2)
│   ├── TopologyError   a topology file or definition is invalid
│   └── RequestError    an argument is invalid: a budget, a planner's name, a task's name
└── Unavailable         something required is missing or does not respond (exit code 1)
"""

from __future__ import annotations

from ppa_core.safety.masking import masked
from ppa_core.safety.printable import printable


class PpaError(Exception):
    """Base class of errors with a message for the user. Passwords in URLs are masked in the message."""

    def __init__(self, message: str = "") -> None:
        super().__init__(masked(message))


class BadInput(PpaError):
    """Invalid input: `place` says where, `reason` says why and, if possible, how to fix it.

    Both may quote the input, so control characters in them are escaped.
    """

    def __init__(self, place: str, reason: str) -> None:
        self.place = printable(masked(place))
        self.reason = printable(masked(reason))
        super().__init__(f"{self.place}: {self.reason}")

    def __reduce__(self) -> tuple[type[BadInput], tuple[str, str]]:
        return type(self), (self.place, self.reason)


class TopologyError(BadInput):
    """An invalid topology."""


class RequestError(BadInput):
    """An invalid argument."""


class Unavailable(PpaError):
    """Something required is missing or does not respond; the message says how to fix it."""
