"""The look of each state: colour, symbol and word, so that the colour is never the only signal."""

from __future__ import annotations

from dataclasses import dataclass

from monitoring.report import COLOURS
from monitoring.task_records import TaskState


@dataclass(frozen=True)
class Look:
    """Colour, plotly symbol and name of one state."""

    colour: str
    symbol: str
    word: str


EXTERNAL = "external"
"""A task of an external source: its data can be replayed, so it does not fail."""

LOOKS: dict[str, Look] = {
    "failed": Look(COLOURS["failed"], "x", "failed"),
    "recovering": Look(COLOURS["recovering"], "hourglass", "recovering"),
    "tentative": Look(COLOURS["tentative"], "triangle-up", "tentative"),
    "taken_over": Look(COLOURS["taken_over"], "diamond", "taken over by its replica"),
    "running": Look(COLOURS["running"], "circle", "running"),
    "replicated": Look(COLOURS["replicated"], "square", "running, replicated"),
    EXTERNAL: Look("#B0B0B0", "hexagon", "external source"),
}
"""The worst first: an operator drawn as one symbol looks like its worst task."""

SEVERITY: dict[str, int] = {state: place for place, state in enumerate(LOOKS)}

STATUS_COLOURS = {"accurate": COLOURS["running"], "tentative": COLOURS["failed"], "corrected": COLOURS["taken_over"]}
STATUS_LETTERS = {"accurate": "A", "tentative": "T", "corrected": "C"}


def state_word(state: TaskState | str) -> str:
    return LOOKS[state].word if state in LOOKS else "unknown"
