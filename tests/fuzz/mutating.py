"""Mutated bytes and mutated JSON, from a generator of random numbers alone: the same generator gives the same mutants."""

from __future__ import annotations

import json
from copy import deepcopy
from random import Random
from typing import Any

# fmt: off
TOKENS: tuple[bytes, ...] = (
    b"\x00", b"\xff", b"\xff\xfe", b"\xef\xbb\xbf", b"\n", b"\r", b"\r\n", b"\t", b'"', b"'", b'""', b",", b";", b":", b"\\",
    b"\\u0000", b"{", b"}", b"[", b"]", b"[" * 60, b'{"a":' * 40, b"null", b"true", b"NaN", b"Infinity", b"-0", b"1e999", b"-1",
    b"0x1F", b"9223372036854775808", b"-9223372036854775809", b"9" * 400, b"0." + b"3" * 300, b"1998-13-45", b"\xed\xa0\x80",
    b"\xf0\x9f\x8e\xb2", b"\xe2\x80\xa8", b"\x1b[2J", b"../../etc/passwd", b"%s%n", b"=1+1", b"<script>", b"__class__",
    b"x" * 3000, b"PAR1", b"\x1f\x8b",
)
VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2, 0.5, -0.0, 1e308, -1e308, 1e-320, 2**31, 2**63, 2**70, 10**30, "", " ", "a", "x" * 300,
    "\x00", "\ud800", "\u202e", "é\U0001f3b2", "1", "full", "one-to-one", [], {}, [[]], [0], [None] * 30, {"": {}},
    {"name": []}, float("nan"), float("inf"),
)
# fmt: on


def mutant(content: bytes, random: Random) -> bytes:
    """The content with one to a few changes; it may come out as it was."""
    found = bytearray(content)
    for _ in range(random.choice((1, 1, 1, 2, 3, 6))):
        _change(found, random)
    return bytes(found)


def _change(found: bytearray, random: Random) -> None:
    at = random.randrange(len(found) + 1)
    some = min(random.choice((1, 1, 2, 4, 16, 200)), len(found) - at)
    match random.randrange(8):
        case 0 if at < len(found):
            found[at] ^= 1 << random.randrange(8)
        case 1 if at < len(found):
            found[at] = random.randrange(256)
        case 2:
            del found[at : at + some]
        case 3:
            found[at:at] = found[at : at + some] * random.choice((1, 2, 30))
        case 4:
            found[at:at] = random.choice(TOKENS)
        case 5:
            found[at : at + some] = random.choice(TOKENS)
        case 6:
            del found[at:]
        case _:
            other = random.randrange(len(found) + 1)
            found[at : at + some], found[other : other + some] = found[other : other + some], found[at : at + some]


def mutant_document(document: Any, random: Random) -> Any:
    """A copy of a JSON document with one to a few changes in it."""
    found = json.loads(json.dumps(document))
    for _ in range(random.choice((1, 1, 1, 2, 4))):
        found = _changed(found, random)
    return found


def _changed(value: Any, random: Random) -> Any:
    """The value with a change somewhere in it."""
    inside = list(value) if isinstance(value, dict) else list(range(len(value))) if isinstance(value, list) else []
    if not inside or random.random() < 0.1:
        return _other(value, random)
    at = random.choice(inside)
    match random.randrange(8):
        case 0 if isinstance(value, dict):
            del value[at]
        case 1 if isinstance(value, dict):
            value[random.choice((str(at) + "x", "", "name", "tasks", random.choice(inside)))] = value.pop(at)
        case 2 if isinstance(value, list):
            del value[at]
        case 3 if isinstance(value, list):
            value[at:at] = [value[at]] * random.choice((1, 3, 40))
        case _:
            value[at] = _changed(value[at], random)
    return value


def _other(value: Any, random: Random) -> Any:
    if isinstance(value, str) and random.random() < 0.5:
        return mutant(value.encode("utf-8", "surrogatepass"), random).decode("utf-8", "replace")
    if type(value) is int and random.random() < 0.5:
        return value + random.choice((-1, 1, 10, 10**6, -(10**6)))
    return deepcopy(random.choice(VALUES))
