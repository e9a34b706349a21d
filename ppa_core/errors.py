"""Every error that a user can cause or meet.

PpaError
├── BadInput            what was asked cannot be done as asked (exit code 2)
│   ├── TopologyError   a topology file or definition is wrong
│   └── RequestError    an argument is wrong: a budget, a planner's name, a task's name
└── Unavailable         what is needed is missing on this machine (exit code 1)
"""

from __future__ import annotations

from ppa_core.safety.masking import masked
from ppa_core.safety.printable import printable


class PpaError(Exception):
    """Root of the errors that carry a message for a user; passwords in urls are not in it."""

    def __init__(self, message: str = "") -> None:
        super().__init__(masked(message))


class BadInput(PpaError):
    """Input that is refused: `place` says where, `reason` why and, where it helps, what to do.

    Both may quote the input, so they are made printable.
    """

    def __init__(self, place: str, reason: str) -> None:
        self.place = printable(masked(place))
        self.reason = printable(masked(reason))
        super().__init__(f"{self.place}: {self.reason}")

    def __reduce__(self) -> tuple[type[BadInput], tuple[str, str]]:
        return type(self), (self.place, self.reason)


class TopologyError(BadInput):
    """A topology that is refused."""


class RequestError(BadInput):
    """An argument that is refused."""


class Unavailable(PpaError):
    """Something that the work needs is not here; the message names the remedy."""
