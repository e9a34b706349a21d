"""From operator to pipeline and back: `Operator` sends commands and waits for outcomes, `Channel` is the pipeline's end.

At most once: a command is taken by setting its nonce, which only the first to do so can, also across restarts of the driver.
The nonce outlives the command's own time, so when it is forgotten the command has expired. What was taken and not acknowledged
when a driver died is acknowledged as unknown by the next one; it is not carried out again.
"""

from __future__ import annotations

import secrets
import time
from typing import Any

from monitoring import keys
from monitoring.codec import Malformed, cut, dumps, loads
from monitoring.commands import Command
from monitoring.connection import Address, Connection, MonitorDown
from monitoring.records import AuditRecord, Outcome, Pipeline
from monitoring.signing import LIFETIME, MAX_LIFETIME, SKEW, Refused, Signer, Token
from ppa_core.errors import PpaError

_NONCE_EXPIRE = int(MAX_LIFETIME + 2 * SKEW)
_AT_ONCE = 100


class Operator:
    """The sending end. It sends as a user that reads nothing, and reads as one that cannot write."""

    def __init__(self, address: Address, signer: Signer) -> None:
        self._connection, self._signer = Connection(address, timeout=2.0, role="sender"), signer
        self._outcomes = Connection(address, timeout=2.0, role="reader")

    def send(self, pipeline: Pipeline, command: Command, who: str, lifetime: float = LIFETIME) -> str:
        """Send a command and note it in the audit log; its id. Returns before the pipeline has seen it."""
        id_, body, signature = self._signer.sign(command, pipeline, who, lifetime)
        line = AuditRecord(round(time.time(), 3), str(pipeline), id_, who.strip(), cut(command), "sent")
        entry = ("XADD", keys.commands(pipeline), "MAXLEN", "~", keys.COMMANDS, "*", "body", body, "sig", signature)
        self._outcomes.read()  # is it a monitor that this program knows?
        answers = self._connection.run(entry, _audit(line))  # the pipeline gives the stream its expiry
        if isinstance(answers[0], Exception):
            raise MonitorDown(f"the monitor at {self._connection.place} does not take the command")
        return id_

    def wait(self, pipeline: Pipeline, id_: str, timeout: float = 10.0) -> Outcome | None:
        """What came of a command; None if there is no word of it within the time."""
        end = time.monotonic() + timeout
        while True:
            (content,) = self._outcomes.read(("GET", keys.outcome(pipeline, id_)))
            if isinstance(content, bytes):
                try:
                    return loads(Outcome, content)
                except Malformed:
                    pass
            if time.monotonic() >= end:
                return None
            time.sleep(0.05)

    def close(self) -> None:
        self._connection.close()
        self._outcomes.close()


class Channel:
    """The pipeline's end. `poll` and `acknowledge` never raise for a monitor that is away: a command waits, or expires."""

    def __init__(self, address: Address, pipeline: Pipeline, signer: Signer) -> None:
        self.pipeline, self.trouble = pipeline, ""
        self._connection, self._signer = Connection(address, timeout=1.0), signer
        self._me = secrets.token_hex(8)
        self._taken: dict[str, Token] = {}
        self._ever: set[str] = set()
        self._cursor: str | None = None
        self._owed: list[tuple[tuple[Any, ...], ...]] = []
        """What could not be said while the monitor was away."""

    def poll(self) -> list[Token]:
        """Commands that were not seen before and are to be carried out now, oldest first. Each must be acknowledged."""
        found: list[Token] = []
        try:
            self._settle()
            if self._cursor is None:
                self._cursor = self._opened()
            command = ("XRANGE", keys.commands(self.pipeline), f"({self._cursor}", "+", "COUNT", _AT_ONCE)
            (entries,) = self._connection.read(command)
            for id_, fields in entries if isinstance(entries, list) else ():
                token = self._take(fields or {})
                if token:
                    found.append(token)
                self._cursor = id_.decode()
                self._owed.append((("SET", keys.cursor(self.pipeline), self._cursor, "EX", keys.CURSOR_EXPIRE),))
            self.trouble = ""
        except PpaError as error:
            self.trouble = str(error)  # what was taken before is carried out all the same
        self._try_settle()
        return found

    def acknowledge(self, id_: str, outcome: str, text: str = "") -> None:
        """Say what came of a command: "done" or "failed", and in words."""
        token = self._taken.pop(id_, None)
        if token is None:
            return
        self._owed.append(self._closing(token.id, token.who, str(token.command), outcome, text))
        self._try_settle()

    def close(self) -> None:
        self._try_settle()
        self._connection.close()

    # ------------------------------------------------------------------------------------------------------------- inside

    def _take(self, fields: dict[bytes, bytes]) -> Token | None:
        try:
            token = self._signer.verify(fields.get(b"body"), fields.get(b"sig"), self.pipeline, time.time())
            self._claim(token)
        except Refused as refused:
            self._refuse(refused)
            return None
        self._taken[token.id] = token
        line = AuditRecord(round(time.time(), 3), str(self.pipeline), token.id, token.who, cut(token.command), "accepted")
        self._owed.append((_audit(line),))
        return token

    def _claim(self, token: Token) -> None:
        """Take a command for good, or find that it was taken before."""
        nonce, accepted = keys.nonce(self.pipeline, token.id), keys.accepted(self.pipeline)
        note = dumps(AuditRecord(token.issued, str(self.pipeline), token.id, token.who, cut(token.command), "accepted"))
        won, holder, count = self._connection.run(
            ("SET", nonce, self._me, "NX", "EX", _NONCE_EXPIRE), ("GET", nonce), ("HLEN", accepted)
        )
        if isinstance(won, Exception) or isinstance(holder, Exception):
            raise MonitorDown(f"the monitor at {self._connection.place} takes no writes")
        mine = holder == self._me.encode() and token.id not in self._ever
        if not won and not mine:  # taken by us but the answer was lost: that is ours still
            raise Refused("it was sent before: a command is carried out at most once", token)
        if isinstance(count, int) and count < keys.OPEN_COMMANDS:
            self._connection.run(("HSET", accepted, token.id, note), ("EXPIRE", accepted, keys.EXPIRE))
        self._ever.add(token.id)

    def _refuse(self, refused: Refused) -> None:
        """Note it in the log. Who is behind it is only known if the signature is right."""
        token, now = refused.token, round(time.time(), 3)
        id_, who, what = (token.id, token.who, cut(token.command)) if token else ("", "", "")
        said: list[tuple[Any, ...]] = [_audit(AuditRecord(now, str(self.pipeline), id_, who, what, "refused", refused.reason))]
        if token and token.id not in self._ever:
            content = dumps(Outcome(now, token.id, "refused", refused.reason))
            said.append(("SET", keys.outcome(self.pipeline, token.id), content, "NX", "EX", keys.OUTCOME_EXPIRE))
        self._owed.append(tuple(said))

    def _opened(self) -> str:
        """Where the driver before this one had read to; what it had taken and not acknowledged is closed as unknown."""
        cursor, left = self._connection.read(("GET", keys.cursor(self.pipeline)), ("HGETALL", keys.accepted(self.pipeline)))
        for content in left.values() if isinstance(left, dict) else ():
            try:
                known = loads(AuditRecord, content)
            except Malformed:
                continue
            said = "the driver ended before its outcome was known"
            self._owed.append(self._closing(known.command, known.who, known.what, "unknown", said))
        text = cursor.decode("ascii", "replace") if isinstance(cursor, bytes) else ""
        first, _, second = text.partition("-")
        return text if first.isdecimal() and second.isdecimal() and len(text) < 40 else "0-0"

    def _closing(self, id_: str, who: str, what: str, outcome: str, text: str) -> tuple[tuple[Any, ...], ...]:
        now = round(time.time(), 3)
        kind: Any = outcome if outcome in ("done", "failed", "unknown") else "failed"
        content = dumps(Outcome(now, id_, kind, cut(text)))
        return (
            ("SET", keys.outcome(self.pipeline, id_), content, "EX", keys.OUTCOME_EXPIRE),
            ("HDEL", keys.accepted(self.pipeline), id_),
            _audit(AuditRecord(now, str(self.pipeline), id_, who, cut(what), kind, cut(text))),
        )

    def _settle(self) -> None:
        while self._owed:
            self._connection.run(*(command for group in self._owed[:50] for command in group))
            del self._owed[:50]

    def _try_settle(self) -> None:
        try:
            self._settle()
        except PpaError as error:
            self.trouble = str(error)
            del self._owed[: -keys.COMMANDS]  # bounded while the monitor is away


def _audit(line: AuditRecord) -> tuple[Any, ...]:
    return ("XADD", keys.AUDIT_KEY, "MAXLEN", "~", keys.AUDIT, "*", "r", dumps(line))
