"""The audit log of a run: written by the pipeline alone, every line signed and chained to the one before.

A line is an entry `<number>-0` of a stream: its record (`r`), the signature of the line before (`prev`) and its own (`mac`),
made over the run, the number, `prev` and the record. So a line that was altered, moved, removed or put in shows, and where. The
`Head` says which line is the newest and which the oldest that was not trimmed; it is signed anew every few seconds, so that an
old one that was put back shows by its age. Where the pipeline's private file is at hand (`private.py`), that is the head.
"""

from __future__ import annotations

import hmac
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from redis.client import Pipeline

from monitoring import keys
from monitoring.codec import Malformed, dumps, loads
from monitoring.private import Memory
from monitoring.records import AuditRecord, RunKey
from monitoring.signing import CommandRefused, Signer, canonical

SLACK = 500
"""Lines above the cap before the oldest are trimmed, all at once."""
CONFIRM = 5.0
"""Seconds between two signatures of the head."""
_SHOWN = 20

Write = Callable[[Pipeline], object]
"""Something to write, when there is a round trip for it."""


@dataclass(frozen=True)
class Head:
    """The newest line, its signature, the oldest line that is kept, and when the pipeline said so."""

    number: int
    mac: str
    first: int
    at: float

    @classmethod
    def opened(cls, signer: Signer, pipeline: RunKey, value: object) -> Head | None:
        """The head in a signed value; None if it is none of that run."""
        try:
            name, run, number, mac, first, at = signer.opened("head", value)
            head = cls(int(number), str(mac), int(first), float(at))
        except (CommandRefused, TypeError, ValueError):
            return None
        return head if (name, run) == (pipeline.name, pipeline.run) else None


@dataclass(frozen=True)
class Chain:
    """A run's audit log, checked: its genuine lines, oldest first, and what is wrong with it, by place."""

    pipeline: RunKey
    lines: tuple[AuditRecord, ...]
    first: int
    last: int
    problems: tuple[str, ...]
    confirmed: float | None
    """When the pipeline said last which line is the newest; None if that is not known."""

    @property
    def intact(self) -> bool:
        return not self.problems

    def __str__(self) -> str:
        if self.problems:
            return f"audit log BROKEN: {'; '.join(self.problems)}"
        if not self.last:
            return "audit log empty"
        ago = (
            "" if self.confirmed is None else f", confirmed by the pipeline {max(0.0, time.time() - self.confirmed):.0f} s ago"
        )
        return f"audit log intact from #{self.first} up to #{self.last}{ago}"


def mac_of(signer: Signer, pipeline: RunKey, number: int, prev: str, record: bytes) -> str:
    place = canonical([pipeline.name, pipeline.run, number, prev])
    return signer.signature("audit", place + b"\n" + record)


def append(signer: Signer, pipeline: RunKey, memory: Memory, line: AuditRecord) -> Write:
    """What writes one more line; the memory knows of it already."""
    record, number = dumps(line), memory.number + 1
    mac = mac_of(signer, pipeline, number, memory.mac, record)
    name = keys.audit(pipeline)
    entry: dict[Any, Any] = {"r": record, "prev": memory.mac, "mac": mac}
    memory.number, memory.mac = number, mac
    trimmed = number - memory.first >= keys.AUDIT + SLACK
    if trimmed:
        memory.first = number - keys.AUDIT + 1
    first, confirmed = memory.first, confirm(signer, pipeline, memory)

    def write(pipe: Pipeline) -> None:
        pipe.xadd(name, entry, f"{number}-0")
        if trimmed:
            pipe.xtrim(name, minid=f"{first}-0", approximate=False)
        pipe.expire(name, keys.EXPIRE)
        confirmed(pipe)

    return write


def confirm(signer: Signer, pipeline: RunKey, memory: Memory) -> Write:
    """What says which line is the newest, now."""
    document = [pipeline.name, pipeline.run, memory.number, memory.mac, memory.first, round(time.time(), 3)]
    value = signer.signed("head", document)
    return lambda pipe: pipe.set(keys.audit_head(pipeline), value, ex=keys.EXPIRE)


def check(
    signer: Signer, pipeline: RunKey, head: Head | None, memory: Memory | None, entries: Sequence[Any], whole: bool
) -> Chain:
    """Look at every entry, oldest first. `head` and `memory` were read before them; `whole`: there are no older entries."""
    lines: list[AuditRecord] = []
    problems: list[str] = []
    macs: dict[int, str] = {}
    first = max(head.first if head else 1, memory.first if memory else 1)
    newest, mac = (memory.written, memory.mac) if memory else (head.number, head.mac) if head else (0, "")
    next_ = first if whole else 0
    prev: str | None = "" if next_ == 1 else None
    for entry in entries:
        number, place = _number(entry)
        if 0 < number < first:
            continue  # about to be trimmed
        found = _genuine(signer, pipeline, number, entry) if number else None
        if 0 < next_ < number and (found or number <= newest):
            problems.append(_missing(next_, number - 1))
            prev = None
        if found is None:
            problems.append(f"{place} was altered or moved, or is not the pipeline's")
            prev = None
        else:
            line, before, own = found
            if prev is not None and before != prev:
                problems.append(f"{place} does not follow the line before it")
            lines.append(line)
            macs[number], prev = own, own
        if found or next_ <= number <= newest:
            next_ = number + 1
    if newest >= max(next_, first):
        problems.append(_missing(max(next_, first), newest) + ", the newest of the log")
    if head is None and (lines or (memory and memory.written)):
        problems.append("the signed head of the log is missing or altered")
    if not (memory and memory.number > memory.written) and macs.get(newest, mac) != mac:
        problems.append(f"#{newest} is not the line that the pipeline wrote last")
    if len(problems) > _SHOWN:
        problems[_SHOWN:] = [f"and {len(problems) - _SHOWN} places more"]
    begin = min(macs, default=0)
    return Chain(pipeline, tuple(lines), begin, max(macs, default=0), tuple(problems), head.at if head else None)


def _number(entry: Any) -> tuple[int, str]:
    """The number of a line, 0 if it can be none, and what to call it."""
    name = entry[0].decode("ascii", "replace") if isinstance(entry[0], bytes) else "?"
    number, _, rest = name.partition("-")
    return (int(number), f"#{number}") if rest == "0" and number.isdecimal() else (0, f"entry {name[:50]}")


def _genuine(signer: Signer, pipeline: RunKey, number: int, entry: Any) -> tuple[AuditRecord, str, str] | None:
    """The line in an entry, the signature before it and its own; None if the pipeline did not write it there."""
    fields = entry[1] if isinstance(entry[1], dict) else {}
    record, prev, mac = (fields.get(name, b"") for name in (b"r", b"prev", b"mac"))
    try:
        before = prev.decode("ascii")
        if not hmac.compare_digest(mac_of(signer, pipeline, number, before, record).encode(), mac):
            return None
        line = loads(AuditRecord, record)
    except (UnicodeDecodeError, Malformed):
        return None
    return (line, before, mac.decode("ascii")) if math.isfinite(line.at) else None


def _missing(first: int, last: int) -> str:
    return f"#{first} is missing" if first == last else f"#{first} to #{last} are missing"
