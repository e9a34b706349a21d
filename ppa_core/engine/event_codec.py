"""The codec of events: a `RunEvent` as one line of JSON, and back."""

from __future__ import annotations

from typing import Any

import msgspec

from ppa_core.engine.event_fields import MOST_TEXT
from ppa_core.engine.run_events import RunEvent

_encoder = msgspec.json.Encoder()
_decoder: msgspec.json.Decoder[RunEvent] = msgspec.json.Decoder(RunEvent)


class NotAnEvent(ValueError):
    """Bytes that are not an event; the message says why, without repeating them."""


def encode(event: RunEvent) -> bytes:
    """An event as one line of JSON, without the line feed."""
    return _encoder.encode(event)


def decode(line: bytes | str) -> RunEvent:
    """The event in a line; NotAnEvent if it is not one. Types and limits are checked: the line may be hostile."""
    try:
        return _decoder.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise NotAnEvent(str(error)[:200]) from None


def as_document(event: RunEvent) -> dict[str, Any]:
    """An event as a dictionary with its `kind`, as `run --json` prints it."""
    found: dict[str, Any] = msgspec.json.decode(encode(event))
    return found


def kind_of(event: RunEvent) -> str:
    """The `kind` of an event's type in JSON."""
    return str(event.__struct_config__.tag)


def cut(value: object, most: int = MOST_TEXT) -> str:
    """Any value as a text that fits into a field of an event."""
    text = str(value).encode("utf-8", "backslashreplace").decode("utf-8")
    return text if len(text) <= most else text[: most - 1] + "…"
