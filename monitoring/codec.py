"""Records as compact JSON.

A record is written as the list of its fields' values in order, without defaults at the end: `[17, 1763251200.5, 0.51]`. The
schema version in `keys.py` stands for that order. What is read is not trusted: every value is checked against the field's type
and bounds before a record is made, and nothing is unpickled. An event is written as `ppa_core.engine.event_codec` has it, and
read as strictly.
"""

from __future__ import annotations

import dataclasses
import json
import math
import types
import typing
import zlib
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Literal, TypeVar, Union, get_args, get_origin

from monitoring.records import StoredEvent
from ppa_core.engine import event_codec
from ppa_core.engine.event_codec import NotAnEvent
from ppa_core.engine.event_fields import MOST_TEXT
from ppa_core.engine.run_events import RunEvent

MAX_TEXT = MOST_TEXT
"""Characters in one text. A longer text is cut when written, and malformed when read."""
MAX_ITEMS = 200_000
"""Items in one list or mapping."""
MAX_NUMBER = 1e18
MAX_BYTES = 4 << 20
"""Bytes of one value, decompressed."""
PACK_FROM = 400
"""Longer values are compressed."""

_PACKED = b"z"

T = TypeVar("T")
Check = Callable[[Any], Any]

_COLUMNS: dict[Any, set[type]] = {int: {int}, float: {int, float}}
"""Types whose lists are checked as a whole, which is faster: they have one value for each task."""


class Malformed(ValueError):
    """A value that is not a valid record; the message says why without repeating the value."""


def dumps(record: Any) -> bytes:
    """A record or an event as bytes, compressed if it is long."""
    event = record.event if isinstance(record, StoredEvent) else record
    if isinstance(event, RunEvent):
        content = event_codec.encode(event)
    else:
        content = json.dumps(_plain(record), separators=(",", ":"), ensure_ascii=True, allow_nan=False).encode()
    return _PACKED + zlib.compress(content, 1) if len(content) > PACK_FROM else content


def loads(kind: type[T], content: object) -> T:
    """The record of that type; Malformed if the content is not exactly one."""
    if not isinstance(content, bytes):
        raise Malformed("not bytes")
    if kind is StoredEvent:
        return typing.cast(T, StoredEvent(_event(_unpacked(content))))
    try:
        value = json.loads(_unpacked(content).decode("utf-8"), parse_constant=_no_constant, parse_int=_whole)
    except Malformed:
        raise
    except (ValueError, RecursionError):
        raise Malformed("not JSON") from None
    return typing.cast(T, _checker(typing.cast(Any, kind))(value))


def as_document(record: Any) -> Any:
    """A record as a JSON document with the names of its fields."""
    if isinstance(record, StoredEvent):
        return {**event_codec.as_document(record.event), "id": record.id}
    if dataclasses.is_dataclass(record):
        return {field.name: as_document(getattr(record, field.name)) for field in dataclasses.fields(record)}
    if isinstance(record, dict):
        return {str(key): as_document(value) for key, value in record.items()}
    return [as_document(item) for item in record] if isinstance(record, tuple | list) else record


def _event(content: bytes) -> RunEvent:
    try:
        return event_codec.decode(content)
    except NotAnEvent as error:
        raise Malformed(str(error)) from None


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value):
        fields = dataclasses.fields(value)
        row = [getattr(value, field.name) for field in fields]
        while row and row[-1] == _default(fields[len(row) - 1]):
            row.pop()
        return [_plain(item) for item in row]
    if isinstance(value, tuple | list):
        if not value or isinstance(value[0], int | float | str):  # a column of plain values
            return value
        return [_plain(item) for item in value]
    return {key: _plain(item) for key, item in value.items()} if isinstance(value, dict) else value


def _default(field: dataclasses.Field[Any]) -> Any:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return field.default


def _unpacked(content: bytes) -> bytes:
    """Decompressed, but never to more than MAX_BYTES."""
    if not content.startswith(_PACKED):
        if len(content) > MAX_BYTES:
            raise Malformed("too large")
        return content
    opener = zlib.decompressobj()
    try:
        found = opener.decompress(content[1:], MAX_BYTES + 1)
    except zlib.error:
        raise Malformed("not valid compressed data") from None
    if len(found) > MAX_BYTES or not opener.eof:
        raise Malformed("too large")
    return found


def _no_constant(name: str) -> float:
    raise Malformed("not a finite number")


def _whole(digits: str) -> int:
    if len(digits) > 20:
        raise Malformed("a number with too many digits")
    return int(digits)


# ------------------------------------------------------------------------------------------------------------- checking


@lru_cache(maxsize=256)
def _checker(kind: Any) -> Check:
    """A function that converts a JSON value to that type or raises Malformed."""
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        return _record(kind)
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Literal:
        return _one_of(frozenset(arguments))
    if origin in (Union, types.UnionType):
        inner = _checker(next(argument for argument in arguments if argument is not types.NoneType))
        return lambda value: None if value is None else inner(value)
    if origin is tuple and len(arguments) == 2 and arguments[1] is Ellipsis:
        return _items(arguments[0])
    if origin is tuple:
        return _row(tuple(_checker(argument) for argument in arguments))
    if origin is dict:
        return _mapping(_any if arguments[1] is Any else _checker(arguments[1]))
    return {str: _text, int: _integer, float: _number, bool: _truth}[kind]


def _record(kind: type) -> Check:
    hints = typing.get_type_hints(kind)
    fields = [(_checker(hints[field.name]), field) for field in dataclasses.fields(kind)]
    needed = sum(_default(field) is dataclasses.MISSING for _, field in fields)

    def check(value: Any) -> Any:
        if not isinstance(value, list) or not needed <= len(value) <= len(fields):
            raise Malformed(f"not the fields of {kind.__name__}")
        found = [convert(item) for (convert, _), item in zip(fields, value, strict=False)]
        try:
            return kind(*found)
        except ValueError as error:
            raise Malformed(str(error)) from None

    return check


def _items(kind: Any) -> Check:
    inner = _checker(kind)

    def check(value: Any) -> tuple[Any, ...]:
        if not isinstance(value, list) or len(value) > MAX_ITEMS:
            raise Malformed("not a list")
        if kind in _COLUMNS and set(map(type, value)) <= _COLUMNS[kind]:
            if value and max(max(value), -min(value)) > MAX_NUMBER:
                raise Malformed("a number out of bounds")
            return tuple(value)
        return tuple(map(inner, value))

    return check


def _row(checks: tuple[Check, ...]) -> Check:
    def check(value: Any) -> tuple[Any, ...]:
        if not isinstance(value, list) or len(value) != len(checks):
            raise Malformed("not a row of the right length")
        return tuple(convert(item) for convert, item in zip(checks, value, strict=True))

    return check


def _mapping(inner: Check) -> Check:
    def check(value: Any) -> dict[str, Any]:
        if not isinstance(value, dict) or len(value) > MAX_ITEMS:
            raise Malformed("not a mapping")
        return {_text(key): inner(item) for key, item in value.items()}

    return check


def _one_of(choices: frozenset[Any]) -> Check:
    def check(value: Any) -> Any:
        if not isinstance(value, str) or value not in choices:
            raise Malformed("not one of the allowed values")
        return value

    return check


def _any(value: Any) -> Any:
    """JSON inside a document: its total size is limited, its content is checked where it is used."""
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str) or len(value) > MAX_TEXT:
        raise Malformed("not a text, or too long")
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:  # half of a surrogate pair, which cannot be displayed
        raise Malformed("not a text") from None
    return value


def _integer(value: Any) -> int:
    if type(value) is not int or abs(value) > MAX_NUMBER:
        raise Malformed("not a whole number")
    return value


def _number(value: Any) -> float:
    if type(value) not in (int, float) or not math.isfinite(value) or abs(value) > MAX_NUMBER:
        raise Malformed("not a number")
    return float(value)


def _truth(value: Any) -> bool:
    if type(value) is not bool:
        raise Malformed("neither true nor false")
    return value
