"""Imports go in one direction: a room imports only what stands to its left. What is imported inside a function counts too."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]

BASE = (
    "ppa_core.safety", "ppa_core.errors", "ppa_core.closeable", "ppa_core.home", "ppa_core.settings", "ppa_core.redis_client",
    "ppa_core.process.supervisor", "ppa_core.process.supervised",
)  # fmt: skip
"""What all may import. The supervisor is a program of its own that imports nothing of the project, and its client the base."""

ROOMS = (
    "ppa_core.topology", "ppa_core.fidelity", "ppa_core.placement", "ppa_core.planners", "ppa_core.opening", "ppa_core.plots",
    "ppa_core.terminal", "ppa_core.pipeline", "ppa_core.queries", "ppa_core.engine", "ppa_core.nodes", "ppa_core.worker",
    "ppa_core.driver", "ppa_core.process", "ppa_core.drills", "monitoring", "ppa_core.application", "ppa_core.cli", "pages",
    "app",
)  # fmt: skip


def modules() -> Iterator[tuple[str, Path]]:
    for place in ("ppa_core", "monitoring", "pages"):
        for path in sorted((ROOT / place).rglob("*.py")):
            yield ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"), path
    yield "app", ROOT / "app.py"


def imported(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def room(module: str) -> int | None:
    """A room's place in the row; None for what is not of the project, for the base, and for the package's own names."""
    if any(module == name or module.startswith(f"{name}.") for name in BASE):
        return None
    return next((i for i, name in enumerate(ROOMS) if module == name or module.startswith(f"{name}.")), None)


def test_every_module_is_in_a_room() -> None:
    alone = {name for name, _ in modules() if room(name) is None and not any(name.startswith(base) for base in BASE)}
    assert alone == {"ppa_core", "ppa_core.__main__"}


def test_the_engine_has_no_clock_no_threads_and_no_files() -> None:
    outside = {"time", "datetime", "random", "threading", "os", "pathlib", "socket", "subprocess", "redis", "pyspark"}
    found = [
        f"{name} imports {target}"
        for name, path in modules()
        if name.startswith("ppa_core.engine.")
        for target in imported(path)
        if target.partition(".")[0] in outside
    ]
    assert found == []


def test_a_room_imports_only_what_stands_to_its_left() -> None:
    wrong = [
        f"{name} imports {target}"
        for name, path in modules()
        if (here := room(name)) is not None
        for target in imported(path)
        if (there := room(target)) is not None and there > here
    ]
    assert wrong == []


def test_the_base_imports_nothing_of_the_rooms() -> None:
    wrong = [
        f"{name} imports {target}"
        for name, path in modules()
        if any(name == base or name.startswith(f"{base}.") for base in BASE)
        for target in imported(path)
        if room(target) is not None
    ]
    assert wrong == []
