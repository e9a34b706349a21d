"""The audit log of a run. Only the pipeline writes it; every line is signed and chained to the previous line.

A line is an entry `<number>-0` of a stream: its record (`r`), the signature of the previous line (`prev`) and its own (`mac`)
over the run, the number, `prev` and the record. So every line that was altered, moved, removed or inserted is detected. The
`Head` has the numbers of the newest line and of the oldest line that was not trimmed. It is signed every few seconds, so that
an old head that someone restored is detected by its age. On the pipeline's machine the private file (`private.py`) replaces it.
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
from monitoring.private import ChannelState
from monitoring.records import AuditRecord, RunKey
from monitoring.signing import CommandRefused, Signer, canonical

SLACK = 500
"""Lines above the cap before the oldest are trimmed."""
CONFIRM = 5.0
"""Seconds between two signatures of the head."""
_SHOWN = 20

Write = Callable[[Pipeline], object]
"""Adds commands to a round trip."""


@dataclass(frozen=True)
class Head:
    """The newest line, its signature, the oldest line that was not trimmed, and when the pipeline signed this."""

    number: int
    mac: str
    first: int
    at: float

    @classmethod
    def verified(cls, signer: Signer, pipeline: RunKey, value: object) -> Head | None:
        """The head in a signed value; None if it is not a head of that run."""
        try:
            name, run, number, mac, first, at = signer.verify_document("head", value)
            head = cls(int(number), str(mac), int(first), float(at))
        except (CommandRefused, TypeError, ValueError):
            return None
        return head if (name, run) == (pipeline.name, pipeline.run) else None


@dataclass(frozen=True)
class Chain:
    """A verified audit log: its genuine lines, oldest first, and its problems."""

    pipeline: RunKey
    lines: tuple[AuditRecord, ...]
    first: int
    last: int
    problems: tuple[str, ...]
    confirmed: float | None
    """When the pipeline last signed the head; None if unknown."""

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


def append(signer: Signer, pipeline: RunKey, state: ChannelState, line: AuditRecord) -> Write:
    """Writes one more line; the state is updated now."""
    record, number = dumps(line), state.number + 1
    mac = mac_of(signer, pipeline, number, state.mac, record)
    name = keys.audit(pipeline)
    entry: dict[Any, Any] = {"r": record, "prev": state.mac, "mac": mac}
    state.number, state.mac = number, mac
    trimmed = number - state.first >= keys.AUDIT + SLACK
    if trimmed:
        state.first = number - keys.AUDIT + 1
    first, confirmed = state.first, confirm(signer, pipeline, state)

    def write(pipe: Pipeline) -> None:
        pipe.xadd(name, entry, f"{number}-0")
        if trimmed:
            pipe.xtrim(name, minid=f"{first}-0", approximate=False)
        pipe.expire(name, keys.EXPIRE)
        confirmed(pipe)

    return write


def confirm(signer: Signer, pipeline: RunKey, state: ChannelState) -> Write:
    """Writes a newly signed head."""
    document = [pipeline.name, pipeline.run, state.number, state.mac, state.first, round(time.time(), 3)]
    value = signer.sign_document("head", document)
    return lambda pipe: pipe.set(keys.audit_head(pipeline), value, ex=keys.EXPIRE)


def check(
    signer: Signer, pipeline: RunKey, head: Head | None, state: ChannelState | None, entries: Sequence[Any], whole: bool
) -> Chain:
    """Verify every entry, oldest first. `head` and `state` were read before. `whole`: there are no older entries."""
    lines: list[AuditRecord] = []
    problems: list[str] = []
    macs: dict[int, str] = {}
    first = max(head.first if head else 1, state.first if state else 1)
    newest, mac = (state.written, state.mac) if state else (head.number, head.mac) if head else (0, "")
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
            problems.append(f"{place} was altered or moved, or was not written by the pipeline")
            prev = None
        else:
            line, before, own = found
            if prev is not None and before != prev:
                problems.append(f"{place} does not follow the previous line")
            lines.append(line)
            macs[number], prev = own, own
        if found or next_ <= number <= newest:
            next_ = number + 1
    if newest >= max(next_, first):
        problems.append(_missing(max(next_, first), newest) + " at the end of the log")
    if head is None and (lines or (state and state.written)):
        problems.append("the signed head of the log is missing or altered")
    if not (state and state.number > state.written) and macs.get(newest, mac) != mac:
        problems.append(f"#{newest} is not the last line that the pipeline wrote")
    if len(problems) > _SHOWN:
        problems[_SHOWN:] = [f"and {len(problems) - _SHOWN} more problems"]
    begin = min(macs, default=0)
    return Chain(pipeline, tuple(lines), begin, max(macs, default=0), tuple(problems), head.at if head else None)


def _number(entry: Any) -> tuple[int, str]:
    """The number of a line, 0 if it is not a line, and its name in messages."""
    name = entry[0].decode("ascii", "replace") if isinstance(entry[0], bytes) else "?"
    number, _, rest = name.partition("-")
    return (int(number), f"#{number}") if rest == "0" and number.isdecimal() else (0, f"entry {name[:50]}")


def _genuine(signer: Signer, pipeline: RunKey, number: int, entry: Any) -> tuple[AuditRecord, str, str] | None:
    """The line in an entry, the previous signature and its own; None if the pipeline did not write it there."""
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
