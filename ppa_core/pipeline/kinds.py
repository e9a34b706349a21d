"""What a value really is, whatever it is declared to be: users' arguments are checked when a pipeline is defined."""

from __future__ import annotations

from collections.abc import Mapping, Sequence


def is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def is_names(value: object) -> bool:
    """Whether it is a text, or several."""
    return isinstance(value, str) or (isinstance(value, Sequence) and all(isinstance(each, str) for each in value))


def is_mapping(value: object) -> bool:
    return isinstance(value, Mapping)
