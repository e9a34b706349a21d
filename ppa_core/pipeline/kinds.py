"""Run-time type checks of users' arguments, made when a pipeline is defined."""

from __future__ import annotations

from collections.abc import Mapping, Sequence


def is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def is_names(value: object) -> bool:
    """Whether it is a string or a sequence of strings."""
    return isinstance(value, str) or (isinstance(value, Sequence) and all(isinstance(each, str) for each in value))


def is_mapping(value: object) -> bool:
    return isinstance(value, Mapping)
