"""Masking of passwords in all errors, messages and printed lines."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import unquote

from ppa_core.settings import current

_HIDDEN = "***"
_EXAMPLE = r"(?!:password@|:PASSWORD@)"
_USER = re.compile(rf"(?<=://){_EXAMPLE}(?:\S*@|:[^@\n]*@|:[^@\s]+)")
"""Everything before the last '@' of a URL; without a user name also a password that has spaces or is cut off before '@'."""
_QUERY = re.compile(r"(?i)(?<=[?&]password=)[^&#\s'\"]+")
_PIECE = re.compile(r"[A-Za-z0-9_-]{6,}")
_SECRET = re.compile(r"(?i)pass(word|wd|phrase)?$|secret|token|credential|api_?key|private_?key")


_given: list[str] = []
"""Pieces of the passwords on the command line and in the environment, longest first."""


def remember(texts: Iterable[str]) -> None:
    """Mask the passwords of these URLs from now on instead of the previous ones, also if only a part of the URL is quoted."""
    found = {secret for text in texts for secret in secrets_of(text)}
    _given[:] = sorted({piece for secret in found for piece in _PIECE.findall(secret)}, key=len, reverse=True)


def remember_more(texts: Iterable[str]) -> None:
    """Mask the passwords of these URLs too."""
    found = {piece for text in texts for secret in secrets_of(text) for piece in _PIECE.findall(secret)}
    if found - set(_given):
        _given[:] = sorted(found.union(_given), key=len, reverse=True)


def remember_given(argv: Sequence[str] | None) -> None:
    """Mask the passwords of a command line, by default this program's, and of this program's environment variables."""
    remember([*(sys.argv[1:] if argv is None else argv), *current().urls])


def masked(text: str) -> str:
    """The text with *** in place of user and password of every URL in it."""
    for piece in _given:
        text = text.replace(piece, _HIDDEN)
    if "://" not in text:
        return text
    return _QUERY.sub(_HIDDEN, _USER.sub(lambda found: _HIDDEN + "@" * found[0].endswith("@"), text))


def has_password(text: str) -> bool:
    """Whether the text contains a URL with a password."""
    return bool(secrets_of(text))


def is_secret(name: str) -> bool:
    """Whether an option of that name is a secret."""
    return bool(_SECRET.search(name))


def secrets_of(text: str) -> set[str]:
    """The passwords in a URL, both percent-encoded and decoded."""
    found = {match[1] for match in re.finditer(r"(?i)[?&]password=(.+)", text)}
    if "://" in text and "@" in text:
        _, colon, password = text.partition("://")[2].rpartition("@")[0].partition(":")
        found.add(password if colon else "")
    return {secret for raw in found if raw for secret in (raw, unquote(raw))}


def shown_options(options: Mapping[str, Any]) -> str:
    """Options as name=value, with secrets masked."""
    shown = (f"{name}={_HIDDEN if is_secret(name) else masked(repr(value))}" for name, value in options.items())
    return ", ".join(shown) or "no options"


def without_secrets(text: str, options: Mapping[str, Any]) -> str:
    """The text with all secrets of the options masked."""
    texts = {name: value for name, value in options.items() if isinstance(value, str)}
    secret = {value for name, value in texts.items() if is_secret(name) and value}
    for each in sorted(secret.union(*(secrets_of(value) for value in texts.values())), key=len, reverse=True):
        text = text.replace(each, _HIDDEN)
    return masked(text)
