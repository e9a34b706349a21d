"""The page docs/events.md, generated from the types: `python -m ppa_core.engine.event_table > docs/events.md`."""

from __future__ import annotations

import sys
import typing
from collections.abc import Iterator
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

from msgspec import Struct

from ppa_core.engine.event_fields import TaskFigures
from ppa_core.engine.run_events import RunEvent
from ppa_core.engine.standing import MeasuredRates, Standing

_HEAD = """# Events

What happens in a run: one type for each kind of event (`ppa_core/engine/run_events.py`). The driver reports them as JSON
lines; they go unchanged to `run --json` and `on_event` (as dictionaries), to the monitor, and from there to pages, reports
and `tail --json`. This page is generated: `python -m ppa_core.engine.event_table > docs/events.md`.

Every event also has `kind`, `at` (seconds since 1970), `batch` (the batch that it belongs to, or the last one that was run; -1:
before the first) and `cause`: the id of the incident or of the operator's command that it belongs to, or an empty string.

| `kind` | type | what happened | fields |
|---|---|---|---|
"""
_COMMON = ("at", "batch", "cause")
_WORDS: dict[Any, str] = {str: "string", int: "integer", float: "number", bool: "boolean"}
_PARTS = (TaskFigures, Standing, MeasuredRates)


def table() -> str:
    """The page, as it is in docs/events.md."""
    return _HEAD + "".join(map(_row, get_args(RunEvent))) + "".join(_part(kind) for kind in _PARTS)


def _row(kind: type[Struct]) -> str:
    fields = "; ".join(_fields(kind))
    return f"| `{kind.__struct_config__.tag}` | `{kind.__name__}` | {_first(kind)} | {fields or '-'} |\n"


def _part(kind: type) -> str:
    rows = "".join(f"- {field}\n" for field in _fields(kind))
    return f"\n## {kind.__name__}\n\n{_first(kind)}\n\n{rows}"


def _fields(kind: type) -> Iterator[str]:
    for name, hint in typing.get_type_hints(kind).items():
        if name not in _COMMON or not issubclass(kind, Struct):
            yield f"`{name}`: {_words(hint)}"


def _words(hint: Any) -> str:
    """A type in words, as it is in JSON."""
    origin, inner = get_origin(hint), get_args(hint)
    if origin is Literal:
        return " or ".join(f"`{choice}`" for choice in inner)
    if origin in (Union, UnionType):
        return " or ".join("null" if one is NoneType else _words(one) for one in inner)
    if origin is tuple and inner[-1] is Ellipsis:
        return f"list of {_words(inner[0])}"
    if origin is tuple:
        return f"[{', '.join(map(_words, inner))}]"
    if origin is dict:
        return f"object of {_words(inner[1])}"
    if hint in _PARTS:
        return f"[{hint.__name__}](#{hint.__name__.lower()})"
    return _WORDS[hint]


def _first(kind: type) -> str:
    """The docstring as one line."""
    return " ".join((kind.__doc__ or "").split())


if __name__ == "__main__":
    sys.stdout.write(table())
