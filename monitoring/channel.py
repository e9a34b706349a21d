"""From operator to pipeline and back: `CommandSender` sends commands and waits for outcomes, `Channel` is the pipeline's end.

At most once, whatever is done to the monitor's Redis: a command holds for seconds and has a number of its sender, and what was
taken is known outside that Redis: in the ledger (the driver writes it there before it does anything) and in a private file.
What was taken and not acknowledged when a pipeline ended is acknowledged as unknown by the next one; it is not done again.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Mapping
from typing import Any

from monitoring import audit, keys, private
from monitoring.commands import Command
from monitoring.connection import Address, Connection, MonitorDown
from monitoring.inbox import Inbox
from monitoring.private import ChannelState, SenderNumbers
from monitoring.records import AuditRecord, CommandOutcome, RunKey
from monitoring.refusals import RefusalCounter
from monitoring.signing import LIFETIME, CommandRefused, Signer, Token, check_sending, digest
from ppa_core.engine.numbers import parse
from ppa_core.engine.run_events import cut
from ppa_core.errors import PpaError

_log = logging.getLogger(__name__)

_OUTCOMES = ("done", "failed", "refused", "unknown")
_SENT = 1_000


class CommandSender:
    """The sending end: it writes to the stream of commands and to nothing else, and reads as a user that cannot write."""

    def __init__(self, address: Address, signer: Signer) -> None:
        self._connection = Connection(address, timeout=2.0, role="sender")
        self._outcomes = Connection(address, timeout=2.0, role="reader")
        self._signer, self._sender = signer, SenderNumbers(address.directory)
        self._digests: dict[str, str] = {}
        self._forged = False

    @property
    def trouble(self) -> str:
        """What is wrong with the answers that came, if anything."""
        return (
            "an answer that the pipeline did not sign was passed over: someone else writes to the monitor"
            if self._forged
            else ""
        )

    def send(self, pipeline: RunKey, command: Command, who: str, lifetime: float = LIFETIME) -> str:
        """Send a command; its id. Returns before the pipeline has seen it."""
        check_sending(who, lifetime)
        with self._sender.next(pipeline) as id_:
            _, token = self._signer.sign(command, pipeline, who, lifetime, id_=id_)
            with self._outcomes.pipeline() as pipe:
                self._outcomes.read(pipe)  # is it a monitor that this program knows?
            with self._connection.pipeline() as pipe:  # the run gives the stream its expiry
                pipe.xadd(keys.commands(pipeline), {"token": token}, maxlen=keys.COMMANDS)
                (answer,) = self._connection.execute(pipe)
        if isinstance(answer, Exception):
            raise MonitorDown(f"the monitor at {self._connection.place} does not take the command")
        self._digests[id_] = digest(token)
        if len(self._digests) > _SENT:
            del self._digests[next(iter(self._digests))]
        return id_

    def wait(self, pipeline: RunKey, id_: str, timeout: float = 10.0) -> CommandOutcome | None:
        """What came of a command, by the pipeline's own word; None if there is no such word within the time."""
        end = time.monotonic() + timeout
        while True:
            with self._outcomes.pipeline() as pipe:
                pipe.get(keys.outcome(pipeline, id_))
                (content,) = self._outcomes.read(pipe)
            if content is not None:
                try:
                    return self._outcome(pipeline, id_, content)
                except (CommandRefused, TypeError, ValueError):
                    self._forged = True
            if time.monotonic() >= end:
                return None
            time.sleep(0.05)

    def _outcome(self, pipeline: RunKey, id_: str, content: object) -> CommandOutcome:
        name, run, of, known, at, outcome, text = self._signer.verify_document("outcome", content)
        if (name, run, of) != (pipeline.name, pipeline.run, id_) or known != self._digests.get(id_, known):
            raise CommandRefused("it is the outcome of another command")
        if outcome not in _OUTCOMES:
            raise ValueError
        return CommandOutcome(float(at), id_, outcome, cut(text))

    def close(self) -> None:
        self._connection.close()
        self._outcomes.close()


class Channel:
    """The pipeline's end, for one thread. No method raises for a monitor that is away: a command waits, or expires.

    `carried_out` are the numbers that the run's ledger has.
    """

    def __init__(
        self, address: Address, pipeline: RunKey, signer: Signer, carried_out: Mapping[str, Any] | None = None
    ) -> None:
        self.pipeline, self.trouble = pipeline, ""
        self._connection, self._signer = Connection(address, timeout=1.0), signer
        self._inbox = Inbox(self._connection, keys.commands(pipeline))
        self._refusals = RefusalCounter()
        known = ChannelState.load(address, pipeline)
        self._memory, self._fresh = known or ChannelState(), known is None
        self._memory.numbers.learn(carried_out or {})
        self._taken: dict[str, Token] = {}
        self._owed: list[tuple[int, audit.Write]] = []
        """What is to be said, each with the number of the audit log's line in it."""
        self._confirmed = -math.inf
        for id_, (who, what, digest_) in list(self._memory.open.items()):
            self._close_command(id_, who, what, digest_, "unknown", "the driver ended before its outcome was known")

    def learn(self, carried_out: Mapping[str, Any]) -> None:
        """Take note of what the run's ledger says was carried out."""
        self._memory.numbers.learn(carried_out)

    def poll(self) -> list[Token]:
        """Commands that were not seen before and are to be carried out now, oldest first. Each must be acknowledged."""
        found: list[Token] = []
        before = self._memory.number
        try:
            self._begin()
            self._settle()
            for fields in self._inbox.read():
                token = self._take(fields)
                if token:
                    found.append(token)
            if self._inbox.repaired:
                self._line("", "", "", "refused", self._inbox.repaired)
                self._inbox.repaired = ""
            self.trouble = ""
        except PpaError as error:
            _log.info("commands could not be read", exc_info=True)
            self.trouble = str(error)  # what was taken before is carried out all the same
        for text in self._refusals.due():
            self._line("", "", "", "refused", text)
        if self._memory.number > before:
            self._remember()  # before anything is carried out
        if self._owed:
            self._try_settle()
        return found

    def acknowledge(self, id_: str, outcome: str, text: str = "") -> None:
        """Say what came of a command: "done", "failed" or "unknown", and in words."""
        token = self._taken.pop(id_, None)
        if token is None:
            return
        kind = outcome if outcome in ("done", "failed", "unknown") else "failed"
        self._close_command(id_, token.who, str(token.command), token.digest, kind, text)
        self._remember()
        self._try_settle()

    def close(self) -> None:
        for text in self._refusals.due(closing=True):
            self._line("", "", "", "refused", text)
        if self._owed:
            self._remember()
            self._try_settle()
        self._connection.close()

    # ------------------------------------------------------------------------------------------------------------- taking

    def _take(self, fields: Mapping[bytes, bytes]) -> Token | None:
        now = time.time()
        try:
            token = self._signer.verify(fields.get(b"token"), self.pipeline, now)
            self._number(token, now)
        except CommandRefused as refused:
            self._refuse(refused, now)
            return None
        self._taken[token.id] = token
        self._memory.open[token.id] = [token.who, cut(token.command), token.digest]
        self._line(token.id, token.who, cut(token.command), "accepted")
        return token

    def _number(self, token: Token, now: float) -> None:
        """Take a command's number for good, or find that it was taken before; say which ones never arrived."""
        sender, number = parse(token.id)
        before = self._memory.numbers.highest(sender)
        if not self._memory.numbers.take(token.id, now):
            raise CommandRefused("it, or a later one of its sender, came before: a command is carried out at most once", token)
        if number > before + 1:
            which = f"command {before + 1}" if number == before + 2 else f"commands {before + 1} to {number - 1}"
            self._line(f"{sender}-{number - 1}", token.who, "", "missing", f"{which} of this sender never arrived")

    def _refuse(self, refused: CommandRefused, now: float) -> None:
        """Note it in the log. Who is behind it is only known if the signature is right."""
        token, reason = refused.token, refused.reason
        new = False
        if token and token.pipeline == self.pipeline:
            try:
                self._number(token, now)  # it has arrived, if too late
                new = True
            except CommandRefused as again:
                reason = again.reason
        if token and new:
            self._say(token.id, token.digest, "refused", reason)
        if token and (new or self._refusals.one_more()):
            self._line(token.id, token.who, cut(token.command), "refused", reason)
        else:
            self._refusals.count(reason)

    # ------------------------------------------------------------------------------------------------------------- saying

    def _close_command(self, id_: str, who: str, what: str, digest_: str, outcome: str, text: str) -> None:
        self._memory.open.pop(id_, None)
        self._say(id_, digest_, outcome, text)
        self._line(id_, who, cut(what), outcome, text)

    def _say(self, id_: str, digest_: str, outcome: str, text: str) -> None:
        """The signed outcome of a command."""
        words = [self.pipeline.name, self.pipeline.run, id_, digest_, round(time.time(), 3), outcome, cut(text)]
        value = self._signer.sign_document("outcome", words)
        name = keys.outcome(self.pipeline, id_)
        self._owed.append((0, lambda pipe: pipe.set(name, value, ex=keys.OUTCOME_EXPIRE)))

    def _line(self, id_: str, who: str, what: str, outcome: Any, text: str = "") -> None:
        """One more line of the audit log."""
        line = AuditRecord(round(time.time(), 3), str(self.pipeline), id_, who, what, outcome, cut(text))
        write = audit.append(self._signer, self.pipeline, self._memory, line)
        self._owed.append((self._memory.number, write))

    def _begin(self) -> None:
        """Go on with the log that is there, if this folder knows of none; say every few seconds which line is the newest."""
        if self._fresh:
            with self._connection.pipeline() as pipe:
                pipe.get(keys.audit_head(self.pipeline))
                (value,) = self._connection.read(pipe)
            head = audit.Head.verified(self._signer, self.pipeline, value)
            if head is not None and not self._memory.number:
                memory = self._memory
                memory.number, memory.mac, memory.first, memory.written = head.number, head.mac, head.first, head.number
            self._fresh = False
        if time.monotonic() - self._confirmed > audit.CONFIRM:
            self._inbox.repair()
            self._owed.append((0, audit.confirm(self._signer, self.pipeline, self._memory)))
            self._owed.append((0, lambda pipe: pipe.expire(keys.commands(self.pipeline), keys.EXPIRE)))
            private.sweep(self._connection.address, self.pipeline)
            self._confirmed = time.monotonic()

    def _remember(self) -> None:
        address = self._connection.address
        if not self._memory.save(address, self.pipeline):
            self.trouble = f"what was carried out cannot be written in {str(address.directory)!r}"

    def _settle(self) -> None:
        before = self._memory.written
        while self._owed:
            part = self._owed[:50]
            with self._connection.pipeline() as pipe:
                for _, write in part:
                    write(pipe)
                answers = self._connection.execute(pipe)
            for answer in answers:
                if isinstance(answer, Exception) and str(answer).startswith("OOM"):
                    raise MonitorDown(f"the monitor at {self._connection.place} is full")
            self._memory.written = max(self._memory.written, *(number for number, _ in part))
            del self._owed[:50]
        if self._memory.written > before:
            self._remember()

    def _try_settle(self) -> None:
        try:
            self._settle()
        except PpaError as error:
            _log.info("the audit log could not be written", exc_info=True)
            self.trouble = str(error)
            del self._owed[: -keys.COMMANDS]  # bounded while the monitor is away
