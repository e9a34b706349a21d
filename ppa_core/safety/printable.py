"""Text from elsewhere, made fit to be printed: the name of a file or a value in it must not steer a terminal."""

from __future__ import annotations


def printable(text: str, most: int | None = None) -> str:
    """A text with its control characters spelled out, shortened to `most` characters."""
    cut = text if most is None or len(text) <= most else text[: most - 1] + "…"
    return cut if cut.isprintable() else "".join(c if c.isprintable() else _spelled(c) for c in cut)


def _spelled(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")
