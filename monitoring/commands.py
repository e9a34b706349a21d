"""Commands from an operator to a running pipeline: one frozen type each, one union, one codec.

A command has the same name everywhere: on a button, on the command line, in JSON, in the audit log and in the driver. In JSON
it is an object whose `command` is that name. `read` checks types and bounds, as a document may come from anywhere.
"""

from __future__ import annotations

from typing import Annotated, Any, get_args

import msgspec
from msgspec import Meta, Struct

from ppa_core.errors import RequestError
from ppa_core.planners import PLANNERS

MAX_BUDGET = 1_000_000
Budget = Annotated[int, Meta(ge=0, le=MAX_BUDGET)]
_MOST_REASON = 200


class _Command(Struct, frozen=True, tag_field="command", forbid_unknown_fields=True):
    @property
    def word(self) -> str:
        """The name of the command."""
        return word_of(type(self))

    def __str__(self) -> str:
        return " ".join([self.word, *map(str, msgspec.structs.astuple(self))])


class Targeted(_Command, frozen=True):
    """A command for a node, or for all nodes of a rack."""

    target: str
    """`node:NAME` or `rack:NAME`."""

    def __post_init__(self) -> None:
        kind, _, name = self.target.partition(":")
        if kind not in ("node", "rack"):
            raise RequestError("target", "must be node:NAME or rack:NAME")
        _check_name(kind, name)


class SetBudget(_Command, frozen=True, tag="set-budget"):
    """Change the number of replicas and plan again."""

    budget: Budget


class ChoosePlanner(_Command, frozen=True, tag="choose-planner"):
    """Change the planner and plan again."""

    planner: str

    def __post_init__(self) -> None:
        _check_planner(self.planner)


class ApplyPlan(_Command, frozen=True, tag="apply-plan"):
    """Change to exactly this plan (tasks separated by commas); later plans use its budget and planner."""

    budget: Budget
    planner: str
    tasks: Annotated[tuple[str, ...], Meta(max_length=MAX_BUDGET)]

    def __post_init__(self) -> None:
        _check_planner(self.planner)
        if len(self.tasks) > self.budget:
            raise RequestError("tasks", f"{len(self.tasks)} tasks exceed the budget of {self.budget}")
        for task in self.tasks:
            _check_name("task", task)

    def __str__(self) -> str:
        return f"{self.word} of {len(self.tasks)} replicas, budget {self.budget}, planner {self.planner}"


class Replan(_Command, frozen=True, tag="replan"):
    """Plan again with the current rates."""


class Drain(Targeted, frozen=True, tag="drain"):
    """Move all tasks and copies away, so that the target can be taken down; no output becomes tentative."""


class Undrain(Targeted, frozen=True, tag="undrain"):
    """Use drained nodes again."""


class Fail(Targeted, frozen=True, tag="fail"):
    """Treat the target as lost although it still answers, until it is restored."""


class Kill(Targeted, frozen=True, tag="kill"):
    """Kill the processes of embedded nodes (SIGKILL)."""


class Restore(Targeted, frozen=True, tag="restore"):
    """Use drained, failed or killed nodes again; killed embedded nodes are started again, empty."""


class Pause(_Command, frozen=True, tag="pause"):
    """Start no further batch until resume."""


class Resume(_Command, frozen=True, tag="resume"):
    """Continue after a pause."""


class Stop(_Command, frozen=True, tag="stop"):
    """End the run after the current batch."""


Command = (
    SetBudget | ChoosePlanner | ApplyPlan | Replan | Drain | Undrain | Fail | Kill | Restore | Pause | Resume | Stop
)  # fmt: skip


def word_of(kind: type[_Command]) -> str:
    return str(kind.__struct_config__.tag)


COMMANDS: dict[str, type[Command]] = {word_of(kind): kind for kind in get_args(Command)}
_RENAMED = {
    "fail-over": "fail-over is now drain (graceful) or fail (forced)",
    "bring-back": "bring-back is now restore",
}


def document_of(command: Command) -> dict[str, Any]:
    """A command as a JSON document."""
    found: dict[str, Any] = msgspec.to_builtins(command)
    return found


def read(document: object, strict: bool = True) -> Command:
    """The command in a document; RequestError if it is not a valid one. `strict=False` also takes numbers written as text."""
    word = document.get("command") if isinstance(document, dict) else None
    if not isinstance(word, str):
        raise RequestError("command", "not a command")
    if word not in COMMANDS:
        known = f"unknown command; the commands are {', '.join(COMMANDS)}"
        raise RequestError("command", _RENAMED.get(word, known))
    try:
        found: Command = msgspec.convert(document, Command, strict=strict)
    except (msgspec.ValidationError, UnicodeError) as error:  # a key or a text may be half of a surrogate pair
        reason, _, field = str(error)[:_MOST_REASON].partition(" - at `$.")
        raise RequestError(f"{word} {field.rstrip('`')}".strip(), reason[:1].lower() + reason[1:]) from None
    return found


def _check_planner(planner: str) -> None:
    if planner not in PLANNERS:
        raise RequestError("planner", f"unknown planner; the planners are {', '.join(PLANNERS)}")


def _check_name(what: str, name: str) -> None:
    if not 1 <= len(name) <= 100 or not name.isprintable() or name != name.strip():
        raise RequestError(what, "a name has 1 to 100 printable characters, and no spaces at the start or end")
