"""Random topologies of the paper's families ("Random synthetic topology"), reproducible by seed."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from ppa_core.errors import RequestError
from ppa_core.topology.build import Build
from ppa_core.topology.model import Topology
from ppa_core.topology.operators import MAX_TASKS, Partitioning

SOURCE_RATE = 1000.0
"""Mean rate of a generated source's task, tuples/s."""


class Structure(StrEnum):
    """Which partitioning the edges have: never `full`, always `full`, or a random choice for each edge."""

    STRUCTURED = "structured"
    FULL = "full"
    MIXED = "mixed"


@dataclass(frozen=True)
class Family:
    """What random topologies have in common.

    Operators form a tree towards one sink: each feeds one operator drawn among those after it. With probability
    `sharing` an operator feeds a second one as well, which makes a DAG with several paths. Task counts are drawn from
    `tasks`. The load within an operator is uniform (`zipf` 0) or Zipfian, the ranks in random order. `joins` is the
    fraction of the operators with two or more input streams that join them.
    """

    operators: tuple[int, int] = (5, 10)
    tasks: tuple[int, int] = (1, 10)
    zipf: float = 0.0
    structure: Structure = Structure.MIXED
    joins: float = 0.0
    sharing: float = 0.0

    def __post_init__(self) -> None:
        for place, (low, high), least in (("operators", self.operators, 1), ("tasks", self.tasks, 1)):
            if not least <= low <= high or high > 100_000:
                raise RequestError(place, f"{low}:{high} is not a range LOW:HIGH with 1 ≤ LOW ≤ HIGH ≤ 100000")
        for place, value in (("joins", self.joins), ("sharing", self.sharing)):
            if not 0 <= value <= 1:
                raise RequestError(place, f"{value} is not a fraction from 0 to 1")
        if not 0 <= self.zipf <= 20:
            raise RequestError("zipf", f"{self.zipf} is not a Zipf parameter from 0 (uniform) to 20")


def generate(family: Family, seed: int) -> Topology:
    """The topology number `seed` of a family. The same seed gives the same shape whatever `zipf` and `joins` are."""
    if seed < 0:
        raise RequestError("seed", f"{seed} is negative")
    shape, load, coin = (np.random.default_rng([seed, stream]) for stream in range(3))
    count = int(shape.integers(family.operators[0], family.operators[1] + 1))
    sizes = [int(shape.integers(family.tasks[0], family.tasks[1] + 1)) for _ in range(count)]
    if sum(sizes) > MAX_TASKS:
        raise RequestError("tasks", f"seed {seed} draws {sum(sizes)} tasks in all; at most {MAX_TASKS} are supported")
    feeds = _feeds(count, family, shape)
    inputs: list[dict[str, Partitioning]] = [{} for _ in range(count)]
    for up, targets in enumerate(feeds):
        for down in targets:
            inputs[down][f"O{up + 1}"] = _partitioning(sizes[up], sizes[down], family.structure, shape)
    joining = _joining([i for i in range(count) if len(inputs[i]) > 1], family.joins, coin)
    build = Build(f"random-{seed}")
    for i, size in enumerate(sizes):
        weights = _load(size, family.zipf, load)
        if inputs[i]:
            spread = weights if family.zipf else []
            build = build.operator(f"O{i + 1}", size, inputs[i], join=i in joining, weights=spread)
        else:
            build = build.source(f"O{i + 1}", size, rate=[SOURCE_RATE * w for w in weights])
    return build.done()


def _feeds(count: int, family: Family, shape: np.random.Generator) -> list[list[int]]:
    feeds = []
    for i in range(count - 1):
        first = int(shape.integers(i + 1, count))
        targets = [first]
        second, both = int(shape.integers(i + 1, count)), shape.random() < family.sharing
        if both and second != first:
            targets.append(second)
        feeds.append(targets)
    return [*feeds, []]


def _partitioning(n1: int, n2: int, structure: Structure, shape: np.random.Generator) -> Partitioning:
    heads = shape.random() < 0.5
    if structure is Structure.FULL or (structure is Structure.MIXED and heads):
        return Partitioning.FULL
    if n1 == n2:
        return Partitioning.ONE_TO_ONE
    return Partitioning.MERGE if n1 > n2 else Partitioning.SPLIT


def _joining(candidates: list[int], fraction: float, coin: np.random.Generator) -> set[int]:
    order = [int(i) for i in coin.permutation(candidates)] if candidates else []
    return set(order[: round(fraction * len(order))])


def _load(tasks: int, zipf: float, load: np.random.Generator) -> list[float]:
    """Relative load of each task, 1 on average."""
    weights = 1.0 / np.arange(1, tasks + 1) ** zipf
    return [float(w) for w in load.permutation(weights * tasks / weights.sum())]
