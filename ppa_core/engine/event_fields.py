"""The fields of events: their types, with the limits that a reader enforces, and the figures of a batch by task."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

MOST_TEXT = 2_000
MOST_REASON = 20_000
MOST_ITEMS = 200_000
MOST_NUMBER = 10**18

Text = Annotated[str, Meta(max_length=MOST_TEXT)]
Reason = Annotated[str, Meta(max_length=MOST_REASON)]
"""Why a driver or a run ended, with the last lines of its log."""
Count = Annotated[int, Meta(ge=-MOST_NUMBER, le=MOST_NUMBER)]
Number = Annotated[float, Meta(ge=-MOST_NUMBER, le=MOST_NUMBER)]
Texts = Annotated[tuple[Text, ...], Meta(max_length=MOST_ITEMS)]
Counts = Annotated[tuple[Count, ...], Meta(max_length=MOST_ITEMS)]
Numbers = Annotated[tuple[Number, ...], Meta(max_length=MOST_ITEMS)]
Places = Annotated[dict[Text, Text], Meta(max_length=MOST_ITEMS)]


class TaskFigures(Struct, frozen=True):
    """Figures of a batch by task: one column per figure, one item per task."""

    task: Texts
    rows_in: Counts
    rows_out: Counts
    seconds: Numbers
    state_bytes: Counts
    checkpoint_bytes: Counts

    def __post_init__(self) -> None:
        if len({len(getattr(self, name)) for name in self.__struct_fields__}) > 1:
            raise ValueError("columns of different length")
