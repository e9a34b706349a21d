"""What an operator can tell a running pipeline. Frozen and valid once they exist; JSON in and out."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any, ClassVar

from ppa_core.errors import RequestError
from ppa_core.planners import PLANNERS

MAX_BUDGET = 1_000_000
_MODES = ("graceful", "forced")


@dataclass(frozen=True)
class Command:
    """Root of the commands; `word` is what a command is called on the wire and on the command line."""

    word: ClassVar[str] = ""

    def to_json(self) -> dict[str, Any]:
        return {"command": self.word, **asdict(self)}

    def __str__(self) -> str:
        return " ".join([self.word, *(str(value) for value in asdict(self).values())])


@dataclass(frozen=True)
class SetBudget(Command):
    """Plan anew with another number of replicas."""

    word: ClassVar[str] = "set-budget"
    budget: int

    def __post_init__(self) -> None:
        if type(self.budget) is not int or not 0 <= self.budget <= MAX_BUDGET:
            raise RequestError("budget", f"not a whole number from 0 to {MAX_BUDGET}")


@dataclass(frozen=True)
class ChoosePlanner(Command):
    """Plan anew with another planner."""

    word: ClassVar[str] = "choose-planner"
    planner: str

    def __post_init__(self) -> None:
        if self.planner not in tuple(PLANNERS):  # a tuple, so that a list from outside is refused and does not raise
            raise RequestError("planner", f"there is none of that name; there are {', '.join(PLANNERS)}")


@dataclass(frozen=True)
class ApplyPlan(Command):
    """Go over to this very plan; its budget and planner hold for what is planned later."""

    word: ClassVar[str] = "apply-plan"
    budget: int
    planner: str
    tasks: tuple[str, ...]
    """On the command line with commas between them."""

    def __post_init__(self) -> None:
        SetBudget(self.budget)
        ChoosePlanner(self.planner)
        tasks: object = self.tasks  # a list from outside
        if not isinstance(tasks, list | tuple) or len(tasks) > self.budget:
            raise RequestError("tasks", "not a list of at most as many tasks as the budget")
        for task in tasks:
            _check_name("task", task)
        object.__setattr__(self, "tasks", tuple(tasks))

    def __str__(self) -> str:
        return f"{self.word} of {len(self.tasks)} replicas, budget {self.budget}, planner {self.planner}"


@dataclass(frozen=True)
class Replan(Command):
    """Plan anew with the rates measured now."""

    word: ClassVar[str] = "replan"


@dataclass(frozen=True)
class FailOver(Command):
    """Empty a node or a rack. graceful: copy out, then switch, with no tentative output. forced: treat it as dead."""

    word: ClassVar[str] = "fail-over"
    target: str
    """`node:NAME` or `rack:NAME`."""
    mode: str = "graceful"

    def __post_init__(self) -> None:
        _check_target(self.target)
        if self.mode not in _MODES:
            raise RequestError("mode", f"neither {' nor '.join(_MODES)}")


@dataclass(frozen=True)
class Kill(Command):
    """Really kill an embedded node, or all of a rack: a drill."""

    word: ClassVar[str] = "kill"
    target: str

    def __post_init__(self) -> None:
        _check_target(self.target)


@dataclass(frozen=True)
class BringBack(Command):
    """Use a node again; an embedded one that was killed is started first."""

    word: ClassVar[str] = "bring-back"
    node: str

    def __post_init__(self) -> None:
        _check_name("node", self.node)


@dataclass(frozen=True)
class Pause(Command):
    """Start no further batch until told to resume."""

    word: ClassVar[str] = "pause"


@dataclass(frozen=True)
class Resume(Command):
    """Go on after a pause."""

    word: ClassVar[str] = "resume"


@dataclass(frozen=True)
class Stop(Command):
    """End the run after the batch under way."""

    word: ClassVar[str] = "stop"


COMMANDS: dict[str, type[Command]] = {
    kind.word: kind for kind in (SetBudget, ChoosePlanner, ApplyPlan, Replan, FailOver, Kill, BringBack, Pause, Resume, Stop)
}


def from_json(document: Any) -> Command:
    """The command in a document; RequestError if it is none."""
    word = document.get("command") if isinstance(document, dict) else None
    kind = COMMANDS.get(word) if isinstance(word, str) else None
    if kind is None:
        raise RequestError("command", f"there is none of that name; there are {', '.join(COMMANDS)}")
    values = {name: value for name, value in document.items() if name != "command"}
    known = {field.name for field in fields(kind)}
    if set(values) - known:
        raise RequestError(kind.word, "it has a field that is unknown")
    try:
        return kind(**values)
    except TypeError:
        raise RequestError(kind.word, "a field is missing") from None


def _check_target(target: object) -> None:
    kind, colon, name = target.partition(":") if isinstance(target, str) else ("", "", "")
    if not colon or kind not in ("node", "rack"):
        raise RequestError("target", "neither node:NAME nor rack:NAME")
    _check_name(kind, name)


def _check_name(what: str, name: object) -> None:
    if not isinstance(name, str) or not 1 <= len(name) <= 100 or not name.isprintable() or name != name.strip():
        raise RequestError(what, "a name has 1 to 100 printable characters and no blanks at its ends")
