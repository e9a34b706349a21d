"""Escaping of untrusted text before it is printed: file names and values must not send control sequences to a terminal."""

from __future__ import annotations


def printable(text: str, most: int | None = None) -> str:
    """The text with control characters escaped, shortened to `most` characters."""
    cut = text if most is None or len(text) <= most else text[: most - 1] + "…"
    return cut if cut.isprintable() else "".join(c if c.isprintable() else _spelled(c) for c in cut)


def _spelled(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")
