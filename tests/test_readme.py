"""What the README shows is true: its Python runs, its topology file loads, its commands print what stands there."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from ppa_core.cli import main
from ppa_core.queries import load_query
from ppa_core.topology import loads

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PLANNING = (ROOT / "docs" / "planning.md").read_text(encoding="utf-8")


def blocks(language: str, text: str = PLANNING) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def test_the_word_count_counts_words(tmp_path: Path) -> None:
    (example,) = blocks("python", README)
    (tmp_path / "words.py").write_text(example)
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.csv").write_text("line\nto be or\nnot to be\n")
    query = load_query(f"{tmp_path}/words.py:words", folder=str(tmp_path / "in"))
    assert [operator.tasks for operator in query.pipeline.operators] == [2, 2, 4, 1]
    assert query.pipeline.operators[2].lookback_batches == 10


def test_python_example_prints_what_the_readme_says(capsys: pytest.CaptureFixture[str]) -> None:
    (example,) = blocks("python")
    exec(compile(example, "README.md", "exec"), {})
    (expected,) = blocks("text")
    assert capsys.readouterr().out == expected


def test_topology_file_loads() -> None:
    (document,) = blocks("json")
    assert len(loads(document).tasks) == 10


def test_commands_print_what_the_readme_says(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    shown = 0
    for block in blocks("console"):
        for command, expected in re.findall(r"^\$ \.venv/bin/python -m ppa_core (.*)\n((?:(?!\$ ).*\n)*)", block, re.MULTILINE):
            assert main(shlex.split(command)) == 0
            assert _without_times(capsys.readouterr().out) == _without_times(expected)
            shown += 1
    assert shown >= 3


def _without_times(text: str) -> str:
    lines = [re.sub(r'"seconds": [\d.e-]+', '"seconds": 0', line).rstrip() for line in text.splitlines()]
    return "\n".join(line for line in lines if not re.match(r"(│ +)?time ", line))


def test_pictures_and_links_are_there() -> None:
    for page in (ROOT / "README.md", *(ROOT / "docs").glob("*.md")):
        for target in re.findall(r"\]\((?!http)([^)#]+)\)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).is_file(), f"{page.name}: {target}"
