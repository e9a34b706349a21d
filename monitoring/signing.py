"""Signatures with the operator's key, which is needed to send commands to a pipeline and to sign their outcomes.

A `Token` is a command for one run with its operator, the time it was sent, its expiry, and its sender and number. It is written
as canonical JSON and signed by itsdangerous: HMAC-SHA256 over these bytes, compared in constant time before the content is
parsed. Commands, outcomes, lines of the audit log and its head each have their own salt, and therefore their own key, so that
none of them can be used as another.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import math
import os
import secrets
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import itsdangerous
from itsdangerous import BadSignature, want_bytes

from monitoring.commands import Command, document_of, read
from monitoring.connection import DIRECTORY
from monitoring.records import RunKey
from ppa_core.engine.numbers import parse
from ppa_core.errors import BadInput, PpaError, RequestError
from ppa_core.safety.owned import read_private
from ppa_core.settings import OPERATOR_KEY_VARIABLE, ProgramSettings, current

KEY_VARIABLE = OPERATOR_KEY_VARIABLE
KEY_FILE = "operator.key"
MIN_KEY = 16
LIFETIME = 10.0
"""Default seconds until a command expires."""
MAX_LIFETIME = 60.0
SKEW = 5.0
"""Seconds by which the clocks of operator and pipeline may differ."""
MAX_SIGNED = 20_000
Purpose = Literal["command", "outcome", "audit", "head"]
_WHO = 100
_MAX_BYTES = 10_000


class CommandRefused(PpaError):
    """A command that is not carried out, and the `reason`. `token` is set only if the signature is valid."""

    def __init__(self, reason: str, token: Token | None = None) -> None:
        super().__init__(reason)
        self.reason, self.token = reason, token


@dataclass(frozen=True)
class Token:
    """A command with its sender and expiry, verified."""

    id: str
    """`<sender>-<number>`, unique in a run."""
    pipeline: RunKey
    command: Command
    who: str
    issued: float
    expires: float
    digest: str = ""
    """Of the signed token. An outcome contains it, so that it cannot be used for another command."""


class _Exact(itsdangerous.Signer):
    """HMAC-SHA256 with a key derived from the salt, where a signature has exactly one valid encoding.

    The library decodes base64 before it compares, and ignores characters that are not base64. A signature that was altered like
    that would be accepted; here it is refused.
    """

    default_digest_method = staticmethod(hashlib.sha256)
    default_key_derivation = "hmac"

    def verify_signature(self, value: str | bytes, sig: str | bytes) -> bool:
        return hmac.compare_digest(self.get_signature(value), want_bytes(sig))


@dataclass(frozen=True)
class Signer:
    """Signs and verifies with the operator's key, which is never shown."""

    key: bytes = field(repr=False)

    def __post_init__(self) -> None:
        if len(self.key) < MIN_KEY:
            raise BadInput("operator's key", f"shorter than {MIN_KEY} bytes; use a longer one, such as 32 random bytes in hex")

    @classmethod
    def find(cls, directory: Path = DIRECTORY, settings: ProgramSettings | None = None) -> Signer:
        """The key of the settings, else of the folder; if there is none, a new key is created there."""
        given = (settings or current()).operator_key
        return cls(given.encode()) if given else cls(_key_of(directory / KEY_FILE))

    @classmethod
    def known(cls, directory: Path = DIRECTORY, settings: ProgramSettings | None = None) -> Signer | None:
        """As `find`, but None instead of a new key."""
        if (settings or current()).operator_key or (directory / KEY_FILE).exists():
            return cls.find(directory, settings)
        return None

    def sign(
        self,
        command: Command,
        pipeline: RunKey,
        who: str,
        lifetime: float = LIFETIME,
        now: float | None = None,
        id_: str | None = None,
    ) -> tuple[str, bytes]:
        """The id of a new token, and the signed token. Without an id it is the first command of a new sender."""
        check_sending(who, lifetime)
        issued = round(time.time() if now is None else now, 3)
        id_ = id_ or f"{new_sender()}-1"
        document = {
            "id": id_, "pipeline": [pipeline.name, pipeline.run], "command": document_of(command), "who": who.strip(),
            "issued": issued, "expires": round(issued + lifetime, 3),
        }  # fmt: skip
        return id_, self.sign_document("command", document)

    def signature(self, purpose: Purpose, content: bytes) -> str:
        return self._signer_of(purpose).get_signature(content).decode("ascii")

    def sign_document(self, purpose: Purpose, document: Any) -> bytes:
        """A document and its signature in one value."""
        return self._signer_of(purpose).sign(canonical(document))

    def verify_document(self, purpose: Purpose, value: object) -> Any:
        """The document in a value of `sign_document`; CommandRefused if the signature is not valid."""
        try:
            return json.loads(self._content(purpose, value))
        except (ValueError, RecursionError):
            raise CommandRefused("signed, but not a document") from None

    def verify(self, value: bytes | None, pipeline: RunKey, now: float) -> Token:
        """The token in a value; CommandRefused if it is not signed, is for another run, or has expired."""
        value = value or b""
        body = self._content("command", value)
        try:
            token = _token(json.loads(body), digest(value))
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            raise CommandRefused("signed, but not a command") from None
        except RequestError as error:
            raise CommandRefused(f"signed, but not a valid command: {error}") from None
        if token.pipeline != pipeline:
            raise CommandRefused("it is for another run", token)
        if token.issued > now + SKEW:
            raise CommandRefused("it was sent in the future; check the clocks", token)
        if token.expires < now or token.expires - token.issued > MAX_LIFETIME:
            raise CommandRefused("it has expired", token)
        return token

    def _content(self, purpose: Purpose, value: object) -> bytes:
        """The signed content of a value. The signature is verified before anything is parsed."""
        if not isinstance(value, bytes) or b"." not in value:
            raise CommandRefused("not signed")
        if len(value) > MAX_SIGNED:
            raise CommandRefused("too large")
        try:
            return self._signer_of(purpose).unsign(value)
        except BadSignature:
            raise CommandRefused("the signature is not valid") from None

    def _signer_of(self, purpose: Purpose) -> _Exact:
        return _Exact(self.key, salt=f"ppa {purpose}")


def check_sending(who: str, lifetime: float) -> None:
    """RequestError if the operator's name or the lifetime is not valid."""
    if not 1 <= len(who.strip()) <= _WHO or not who.isprintable():
        raise RequestError("who", f"a name must have 1 to {_WHO} printable characters")
    if not 0 < lifetime <= MAX_LIFETIME:
        raise RequestError("lifetime", f"must be more than 0 and at most {MAX_LIFETIME:g} seconds")


def canonical(document: Any) -> bytes:
    """Canonical JSON: equal documents give equal bytes."""
    return json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False).encode()


def digest(token: bytes) -> str:
    return hashlib.sha256(token).hexdigest()


def new_sender() -> str:
    return secrets.token_hex(8)


def _token(document: Any, digest_: str) -> Token:
    id_, who, (name, run) = document["id"], document["who"], document["pipeline"]
    issued, expires = document["issued"], document["expires"]
    if not all(type(time_) in (int, float) and math.isfinite(time_) for time_ in (issued, expires)):
        raise ValueError
    if not all(isinstance(text, str) and 0 < len(text) <= 200 for text in (id_, who, name, run)):
        raise ValueError
    parse(id_)
    return Token(id_, RunKey(name, run), read(document["command"]), who, issued, expires, digest_)


def _key_of(path: Path) -> bytes:
    """The key in a private file, which is created if there is none."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(secrets.token_hex(32))
        try:
            os.link(draft, path)  # atomic, and never replaces an existing key
        except FileExistsError:
            pass
        finally:
            draft.unlink()
        return read_private(path, _MAX_BYTES).strip()
    except OSError as error:
        raise BadInput(str(path), f"the operator's key cannot be read or made: {error.strerror}") from error
