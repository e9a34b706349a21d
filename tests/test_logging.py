"""Whatever is caught, of any kind, and survived, is logged with its traceback."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]

WITHOUT = {
    "ppa_core/pipeline/sources/reader.py",  # a process of its own without a log: the reason is its answer
    "ppa_core/terminal/logs.py",  # a log that cannot be written
}
BROAD = {"Exception", "BaseException"}


def handlers() -> Iterator[tuple[str, ast.ExceptHandler]]:
    for place in ("ppa_core", "monitoring", "pages"):
        for path in sorted((ROOT / place).rglob("*.py")):
            name = str(path.relative_to(ROOT))
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.ExceptHandler) and name not in WITHOUT and _is_broad(node.type):
                    yield f"{name}:{node.lineno}", node


def _is_broad(caught: ast.expr | None) -> bool:
    return caught is None or any(isinstance(node, ast.Name) and node.id in BROAD for node in ast.walk(caught))


def _logs(node: ast.AST) -> bool:
    """Whether a traceback is logged: by `exception`, or with exc_info."""
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
        return False
    whole = any(word.arg == "exc_info" for word in node.keywords) or node.func.attr == "exception"
    return whole and isinstance(node.func.value, ast.Name) and node.func.value.id.lower() == "_log"


def test_what_is_caught_whatever_it_is_is_raised_or_logged_with_its_traceback() -> None:
    silent = [
        place for place, handler in handlers() if not any(isinstance(n, ast.Raise) or _logs(n) for n in ast.walk(handler))
    ]
    assert silent == []


def test_nothing_of_any_kind_is_suppressed() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for place in ("ppa_core", "monitoring", "pages")
        for path in sorted((ROOT / place).rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "suppress"
        if any(_is_broad(argument) for argument in node.args)
    ]
    assert found == []
