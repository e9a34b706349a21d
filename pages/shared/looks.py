"""How states look: a colour, a mark and a word each, so that no colour is ever the only signal."""

from __future__ import annotations

from dataclasses import dataclass

from monitoring.report import COLOURS
from monitoring.task_records import TaskState


@dataclass(frozen=True)
class Look:
    """How one state is drawn: its colour, plotly's name of its mark, and what it is called."""

    colour: str
    symbol: str
    word: str


EXTERNAL = "external"
"""A task of a source that never fails: it has no state."""

LOOKS: dict[str, Look] = {
    "failed": Look(COLOURS["failed"], "x", "failed"),
    "recovering": Look(COLOURS["recovering"], "hourglass", "recovering"),
    "tentative": Look(COLOURS["tentative"], "triangle-up", "tentative"),
    "taken_over": Look(COLOURS["taken_over"], "diamond", "taken over by its replica"),
    "running": Look(COLOURS["running"], "circle", "running"),
    "replicated": Look(COLOURS["replicated"], "square", "running, replicated"),
    EXTERNAL: Look("#B0B0B0", "hexagon", "source that never fails"),
}
"""The gravest first: an operator drawn as one mark looks like its gravest task."""

GRAVITY: dict[str, int] = {state: place for place, state in enumerate(LOOKS)}

STATUS_COLOURS = {"accurate": COLOURS["running"], "tentative": COLOURS["failed"], "corrected": COLOURS["taken_over"]}
STATUS_LETTERS = {"accurate": "A", "tentative": "T", "corrected": "C"}


def state_word(state: TaskState | str) -> str:
    return LOOKS[state].word if state in LOOKS else "unknown"
