"""A `Target`: one kind of input, mutated in rounds; and the runner, who counts, and keeps what failed."""

from __future__ import annotations

import json
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Protocol

SLOW = 20.0
"""Seconds that no round may take, on a busy machine too."""


class Target(Protocol):
    """One kind of input."""

    def round(self, random: Random) -> int:
        """Try some mutants; how many. Raises whatever is wrong: an error that should not come out, a row that is lost."""


Open = Callable[[Path], AbstractContextManager[Target]]
"""Opens a target, with a folder for what it needs."""


def must(holds: object, text: object) -> None:
    if not holds:
        raise AssertionError(text)


def random_of(name: str, seed: int, number: int) -> Random:
    return Random(f"{name} {seed} {number}")


def run_rounds(target: Target, name: str, seed: int, mutants: int) -> int:
    """Rounds until there were so many mutants; how many there were."""
    tried = number = 0
    while tried < mutants:
        try:
            tried += target.round(random_of(name, seed, number))
        except Exception as error:
            raise AssertionError(f"{name}, seed {seed}, round {number}: {type(error).__name__}: {error}") from error
        number += 1
    return tried


@dataclass
class Runner:
    """Runs the rounds of targets in turn, so that all get on, and writes a file for each that fails."""

    seed: int
    folder: Path
    tried: dict[str, int] = field(default_factory=dict)
    rounds: dict[str, int] = field(default_factory=dict)
    failures: list[Path] = field(default_factory=list)

    def step(self, name: str, target: Target) -> None:
        """The next round of a target."""
        number = self.rounds.get(name, 0)
        self.rounds[name] = number + 1
        began, failure = time.monotonic(), ""
        try:
            self.tried[name] = self.tried.get(name, 0) + target.round(random_of(name, self.seed, number))
        except Exception:  # noqa: BLE001 - whatever comes out is what is looked for
            failure = traceback.format_exc()
        took = time.monotonic() - began
        if took > SLOW and not failure:
            failure = f"it took {took:.0f} s"
        if failure:
            self.failures.append(self._keep(name, number, failure))

    def _keep(self, name: str, number: int, failure: str) -> Path:
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / f"{name}-{self.seed}-{number}.json"
        again = f"python -m tests.fuzz --only {name} --seed {self.seed} --round {number}"
        path.write_text(json.dumps({"again": again, "failure": failure.splitlines()}, indent=1) + "\n")
        return path

    def line(self, names: Sequence[str], left: float) -> str:
        """How far it is."""
        counts = "  ".join(f"{name} {self.tried.get(name, 0):,}" for name in names)
        failed = f"  {len(self.failures)} FAILED" if self.failures else ""
        return f"{counts}  {left:.0f} s left{failed}"
