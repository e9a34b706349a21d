"""SECURITY.md: every test that it names is there, and every attack is named in it."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "SECURITY.md").read_text(encoding="utf-8")


def test_every_test_that_is_named_is_there() -> None:
    named = set(re.findall(r"`((?:tests/[\w/]+/)?test_\w+\.py)`", TEXT))
    assert named
    for name in named:
        path = ROOT / name if "/" in name else ROOT / "tests/security" / name
        assert path.is_file(), name


def test_every_attack_is_named() -> None:
    files = {path.name for path in (ROOT / "tests/security").glob("test_*.py")} - {Path(__file__).name}
    assert {name for name in files if f"`{name}`" not in TEXT} == set()


def test_every_line_says_who_may_not_what_and_what_shows_it() -> None:
    rows = [line for line in TEXT.splitlines() if line.startswith("|")][2:]
    assert len(rows) > 15
    for row in rows:
        _, _, may_not, shown = (cell.strip() for cell in row.strip("|").split("|"))
        assert may_not, row
        assert "test_" in shown, row
