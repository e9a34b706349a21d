"""Commands from an operator to a pipeline: `CommandSender` sends them and waits for outcomes, `Channel` receives them.

A command is carried out at most once, whatever is done to the monitor's Redis: it expires after seconds and has a number, and
accepted numbers are also stored outside that Redis: in the ledger (by the driver, before it does anything) and in a private
file. If a pipeline ends before it reports an outcome, the next one reports the outcome "unknown" and does not run the command.
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
from ppa_core.engine.event_codec import cut
from ppa_core.engine.numbers import parse
from ppa_core.errors import PpaError

_log = logging.getLogger(__name__)

_OUTCOMES = ("done", "failed", "refused", "unknown")
_SENT = 1_000


class CommandSender:
    """Sends commands. It can write only to the stream of commands, and reads with a user that cannot write."""

    def __init__(self, address: Address, signer: Signer) -> None:
        self._connection = Connection(address, timeout=2.0, role="sender")
        self._outcomes = Connection(address, timeout=2.0, role="reader")
        self._signer, self._sender = signer, SenderNumbers(address.directory)
        self._digests: dict[str, str] = {}
        self._forged = False

    @property
    def trouble(self) -> str:
        """A warning about forged outcomes; empty if there were none."""
        return (
            "an outcome that the pipeline did not sign was ignored: someone else writes to the monitor" if self._forged else ""
        )

    def send(self, pipeline: RunKey, command: Command, who: str, lifetime: float = LIFETIME) -> str:
        """Send a command and return its id; does not wait for the pipeline."""
        check_sending(who, lifetime)
        with self._sender.next(pipeline) as id_:
            _, token = self._signer.sign(command, pipeline, who, lifetime, id_=id_)
            with self._outcomes.pipeline() as pipe:
                self._outcomes.read(pipe)  # checks the schema version
            with self._connection.pipeline() as pipe:  # the run sets the expiry of the stream
                pipe.xadd(keys.commands(pipeline), {"token": token}, maxlen=keys.COMMANDS)
                (answer,) = self._connection.execute(pipe)
        if isinstance(answer, Exception):
            raise MonitorDown(f"the monitor at {self._connection.place} does not accept the command")
        self._digests[id_] = digest(token)
        if len(self._digests) > _SENT:
            del self._digests[next(iter(self._digests))]
        return id_

    def wait(self, pipeline: RunKey, id_: str, timeout: float = 10.0) -> CommandOutcome | None:
        """The outcome of a command, signed by the pipeline; None if there is none within the timeout."""
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
            raise CommandRefused("the outcome of another command")
        if outcome not in _OUTCOMES:
            raise ValueError
        return CommandOutcome(float(at), id_, outcome, cut(text))

    def close(self) -> None:
        self._connection.close()
        self._outcomes.close()


class Channel:
    """Receives commands, for one thread. No method raises if the monitor does not answer: commands wait, or expire.

    `carried_out` are the numbers of commands in the run's ledger.
    """

    def __init__(
        self, address: Address, pipeline: RunKey, signer: Signer, carried_out: Mapping[str, Any] | None = None
    ) -> None:
        self.pipeline, self.trouble = pipeline, ""
        self._connection, self._signer = Connection(address, timeout=1.0), signer
        self._inbox = Inbox(self._connection, keys.commands(pipeline))
        self._refusals = RefusalCounter()
        known = ChannelState.load(address, pipeline)
        self._state, self._new = known or ChannelState(), known is None
        self._state.numbers.learn(carried_out or {})
        self._accepted: dict[str, Token] = {}
        self._pending: list[tuple[int, audit.Write]] = []
        """Pending writes, each with the number of the audit log's line that it contains, or 0."""
        self._confirmed = -math.inf
        for id_, (who, what, digest_) in list(self._state.open.items()):
            self._close_command(id_, who, what, digest_, "unknown", "the driver ended before its outcome was known")

    def learn(self, carried_out: Mapping[str, Any]) -> None:
        """Add the numbers of commands in the run's ledger."""
        self._state.numbers.learn(carried_out)

    def poll(self) -> list[Token]:
        """New commands to carry out now, oldest first. Each must be acknowledged."""
        found: list[Token] = []
        before = self._state.number
        try:
            self._prepare()
            self._write_pending()
            for fields in self._inbox.read():
                token = self._accept(fields)
                if token:
                    found.append(token)
            if self._inbox.repaired:
                self._log_line("", "", "", "refused", self._inbox.repaired)
                self._inbox.repaired = ""
            self.trouble = ""
        except PpaError as error:
            _log.info("commands could not be read", exc_info=True)
            self.trouble = str(error)  # commands accepted before the error are still carried out
        for text in self._refusals.due():
            self._log_line("", "", "", "refused", text)
        if self._state.number > before:
            self._save()  # before anything is carried out
        if self._pending:
            self._try_write()
        return found

    def acknowledge(self, id_: str, outcome: str, text: str = "") -> None:
        """Report the outcome of a command: "done", "failed" or "unknown", with a text."""
        token = self._accepted.pop(id_, None)
        if token is None:
            return
        kind = outcome if outcome in ("done", "failed", "unknown") else "failed"
        self._close_command(id_, token.who, str(token.command), token.digest, kind, text)
        self._save()
        self._try_write()

    def close(self) -> None:
        for text in self._refusals.due(closing=True):
            self._log_line("", "", "", "refused", text)
        if self._pending:
            self._save()
            self._try_write()
        self._connection.close()

    # -------------------------------------------------------------------------------------------------------------- receiving

    def _accept(self, fields: Mapping[bytes, bytes]) -> Token | None:
        now = time.time()
        try:
            token = self._signer.verify(fields.get(b"token"), self.pipeline, now)
            self._accept_number(token, now)
        except CommandRefused as refused:
            self._refuse(refused, now)
            return None
        self._accepted[token.id] = token
        self._state.open[token.id] = [token.who, cut(token.command), token.digest]
        self._log_line(token.id, token.who, cut(token.command), "accepted")
        return token

    def _accept_number(self, token: Token, now: float) -> None:
        """Accept a command's number, or refuse it if it was used before; log the numbers that never arrived."""
        sender, number = parse(token.id)
        before = self._state.numbers.highest(sender)
        if not self._state.numbers.take(token.id, now):
            raise CommandRefused(
                "received before, or after a later command of its sender: a command is carried out at most once", token
            )
        if number > before + 1:
            which = f"command {before + 1}" if number == before + 2 else f"commands {before + 1} to {number - 1}"
            self._log_line(f"{sender}-{number - 1}", token.who, "", "missing", f"{which} of this sender never arrived")

    def _refuse(self, refused: CommandRefused, now: float) -> None:
        """Log a refused command. Its sender is known only if the signature is valid."""
        token, reason = refused.token, refused.reason
        new = False
        if token and token.pipeline == self.pipeline:
            try:
                self._accept_number(token, now)  # it has arrived, although too late
                new = True
            except CommandRefused as again:
                reason = again.reason
        if token and new:
            self._write_outcome(token.id, token.digest, "refused", reason)
        if token and (new or self._refusals.one_more()):
            self._log_line(token.id, token.who, cut(token.command), "refused", reason)
        else:
            self._refusals.count(reason)

    # ---------------------------------------------------------------------------------------------------------------- writing

    def _close_command(self, id_: str, who: str, what: str, digest_: str, outcome: str, text: str) -> None:
        self._state.open.pop(id_, None)
        self._write_outcome(id_, digest_, outcome, text)
        self._log_line(id_, who, cut(what), outcome, text)

    def _write_outcome(self, id_: str, digest_: str, outcome: str, text: str) -> None:
        """Write the signed outcome of a command."""
        words = [self.pipeline.name, self.pipeline.run, id_, digest_, round(time.time(), 3), outcome, cut(text)]
        value = self._signer.sign_document("outcome", words)
        name = keys.outcome(self.pipeline, id_)
        self._pending.append((0, lambda pipe: pipe.set(name, value, ex=keys.OUTCOME_EXPIRE)))

    def _log_line(self, id_: str, who: str, what: str, outcome: Any, text: str = "") -> None:
        """Add a line to the audit log."""
        line = AuditRecord(round(time.time(), 3), str(self.pipeline), id_, who, what, outcome, cut(text))
        write = audit.append(self._signer, self.pipeline, self._state, line)
        self._pending.append((self._state.number, write))

    def _prepare(self) -> None:
        """Continue the existing log if this folder has no state of it; sign the head every few seconds."""
        if self._new:
            with self._connection.pipeline() as pipe:
                pipe.get(keys.audit_head(self.pipeline))
                (value,) = self._connection.read(pipe)
            head = audit.Head.verified(self._signer, self.pipeline, value)
            if head is not None and not self._state.number:
                state = self._state
                state.number, state.mac, state.first, state.written = head.number, head.mac, head.first, head.number
            self._new = False
        if time.monotonic() - self._confirmed > audit.CONFIRM:
            self._inbox.repair()
            self._pending.append((0, audit.confirm(self._signer, self.pipeline, self._state)))
            self._pending.append((0, lambda pipe: pipe.expire(keys.commands(self.pipeline), keys.EXPIRE)))
            private.sweep(self._connection.address, self.pipeline)
            self._confirmed = time.monotonic()

    def _save(self) -> None:
        address = self._connection.address
        if not self._state.save(address, self.pipeline):
            self.trouble = f"the state of commands cannot be written to {str(address.directory)!r}"

    def _write_pending(self) -> None:
        before = self._state.written
        while self._pending:
            part = self._pending[:50]
            with self._connection.pipeline() as pipe:
                for _, write in part:
                    write(pipe)
                answers = self._connection.execute(pipe)
            for answer in answers:
                if isinstance(answer, Exception) and str(answer).startswith("OOM"):
                    raise MonitorDown(f"the monitor at {self._connection.place} is full")
            self._state.written = max(self._state.written, *(number for number, _ in part))
            del self._pending[:50]
        if self._state.written > before:
            self._save()

    def _try_write(self) -> None:
        try:
            self._write_pending()
        except PpaError as error:
            _log.info("the audit log could not be written", exc_info=True)
            self.trouble = str(error)
            del self._pending[: -keys.COMMANDS]  # bounded while the monitor does not answer
