"""`status`, `tail`, `incidents`, `report`, `send` and `audit`: the commands of `python -m monitoring`, under this name too."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

COMMANDS = {
    "tail": "print events as they come, until interrupted",
    "status": "the pipeline as it is now",
    "incidents": "the incidents there were",
    "report": "one incident as a page that stands by itself",
    "send": "send a signed command to the pipeline, and wait for its outcome",
    "audit": "who told which pipeline what, and what came of it; exit 1 if the log was tampered with",
}


def register(commands: Any) -> None:
    """For the list of all commands; `words` finds these before anything is parsed, so that others need not load the monitor."""
    for name, help_text in COMMANDS.items():
        commands.add_parser(name, help=help_text)


def words(argv: Sequence[str]) -> list[str] | None:
    """The command line as the monitor's own, if it is one of its commands."""
    place = next((i for i, word in enumerate(argv) if word != "--json"), None)
    if place is None or argv[place] not in COMMANDS:
        return None
    return [argv[place], *argv[:place], *argv[place + 1 :]]


def main(argv: Sequence[str], called: str) -> int:
    """Run one of the monitor's commands and return its exit code."""
    from monitoring import cli

    return cli.main(argv, called)
