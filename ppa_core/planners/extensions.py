"""Extensions: sets of tasks to add to a plan, what they add, and how long one may look for them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import inf
from time import monotonic

import numpy as np

from ppa_core.fidelity import Compiled, Mask
from ppa_core.topology.rates import Floats, Ints

ZERO = 1e-15
"""Gains up to this are rounding. The one such limit of all planners."""

HUGE = 20_000
"""In topologies of more tasks, several extensions are taken at once."""

ALIKE = 0.9
"""Extensions are taken at once if their densities are within this ratio of the best."""

_BATCH = 8_000_000
"""Cells that are valued at once."""


class Deadline:
    """When a planner stops looking for more; what it has by then is its plan.

    Plans are the same from run to run as long as no deadline is met.
    """

    def __init__(self, seconds: float = inf) -> None:
        self.at = monotonic() + seconds

    @property
    def passed(self) -> bool:
        return monotonic() > self.at


def gains_of_sets(compiled: Compiled, alive: Mask, sets: Sequence[Collection[int]]) -> Floats:
    """What each of these sets of tasks adds to the alive ones."""
    gain = np.zeros(len(sets))
    base = compiled.value(alive) if len(sets) else 0.0
    step = max(1, _BATCH // compiled.tasks)
    for start in range(0, len(sets), step):
        chunk = sets[start : start + step]
        columns = np.repeat(alive[:, None], len(chunk), axis=1)
        for k, tasks in enumerate(chunk):
            columns[list(tasks), k] = True
        gain[start : start + step] = compiled.batch(columns) - base
    return gain


def gains_of_tasks(compiled: Compiled, alive: Mask) -> Floats:
    """What each task adds that is not alive (0 for those that are); kept while the parts of one plan ask for it."""
    return _gains_of_tasks(compiled, alive.tobytes()).copy()


@lru_cache(maxsize=1)
def _gains_of_tasks(compiled: Compiled, alive: bytes) -> Floats:
    mask = np.frombuffer(alive, dtype=bool)
    gain = compiled.gains(mask)
    gain[mask] = 0.0
    return gain


def together(found: Sequence[Extension], most: int) -> frozenset[int]:
    """The union of the extensions, best first, that are about as dense as the first and fit into `most` tasks with it."""
    union = found[0].tasks
    bar = ALIKE * found[0].expected / len(found[0].tasks)
    for extension in found[1:]:
        wider = union | extension.tasks
        if len(wider) <= most and extension.expected >= bar * len(extension.tasks):
            union = wider
    return union


@dataclass(frozen=True)
class Extension:
    """New tasks that complete each other, and the gain the dynamic programme expects of them."""

    tasks: frozenset[int]
    expected: float


def stage_of(compiled: Compiled) -> Ints:
    """The number of each task's stage."""
    number = np.empty(compiled.tasks, dtype=np.intp)
    for k, stage in enumerate(compiled.stages):
        number[stage.own] = k
    return number


def consumers(compiled: Compiled) -> list[list[tuple[int, int]]]:
    """For each stage, the stages and streams that it feeds."""
    number = stage_of(compiled)
    found: list[list[tuple[int, int]]] = [[] for _ in compiled.stages]
    for k, stage in enumerate(compiled.stages):
        for j, stream in enumerate(stage.streams):
            found[int(number[stream.up.start])].append((k, j))
    return found


@lru_cache(maxsize=4)
def graph(compiled: Compiled) -> tuple[Ints, list[list[tuple[int, int]]]]:
    """`stage_of` and `consumers`, kept."""
    return stage_of(compiled), consumers(compiled)
