"""Recovery: the version from which each task is replayed, so that all of its input is available. Pure functions.

A task can start from any version that a node still holds, or from empty state. From empty state it is exact again once its
window is full: after its operator's `lookback_batches`, or, if the state depends on all batches, only if it starts with the
first batch.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from ppa_core.engine.orders import Version
from ppa_core.topology import Topology

NEVER = -1
"""The batch before the first one: the empty state."""


class Copy(NamedTuple):
    """What a node holds of a task: an accurate version (batch, attempt), accurate outputs of batches `first` … `last`."""

    batch: int = NEVER
    attempt: int = 0
    first: int = 0
    last: int = NEVER


@dataclass(frozen=True)
class Graph:
    """Which task feeds which, without sources and their links; upstream tasks come first.

    `lookback_batches` is the number of past batches that a task's state can depend on; a task that is not in it depends on all.
    """

    tasks: tuple[str, ...]
    feeders: dict[str, tuple[str, ...]]
    consumers: dict[str, tuple[str, ...]]
    lookback_batches: Mapping[str, int]

    @classmethod
    def of(cls, topology: Topology, lookback_batches: Mapping[str, int | None] | None = None) -> Graph:
        """The graph of a topology; `lookback_batches` is by operator."""
        inner = {name for name in topology.order if not topology.by_name[name].external}
        tasks = tuple(topology.tasks[i] for name in topology.order if name in inner for i in topology.span[name])
        feeders: dict[str, list[str]] = {task: [] for task in tasks}
        consumers: dict[str, list[str]] = {task: [] for task in tasks}
        for edge in topology.edges:
            if edge.source in inner:
                for up, down in topology.links(edge):
                    feeders[topology.tasks[down]].append(topology.tasks[up])
                    consumers[topology.tasks[up]].append(topology.tasks[down])
        known = {name: batches for name, batches in (lookback_batches or {}).items() if batches is not None}
        reach = {task: known[task.rpartition(".")[0]] for task in tasks if task.rpartition(".")[0] in known}
        return cls(tasks, {t: tuple(f) for t, f in feeders.items()}, {t: tuple(c) for t, c in consumers.items()}, reach)

    def downstream(self, lost: Collection[str]) -> frozenset[str]:
        """These tasks and all whose output depends on them."""
        found = set(lost)
        for task in self.tasks:
            if task not in found and not found.isdisjoint(self.feeders[task]):
                found.add(task)
        return frozenset(found)

    def from_nothing(self, task: str, exact: int) -> int:
        """The batch after which a task must start with empty state to be exact from batch `exact` on."""
        return max(NEVER, exact - 1 - self.lookback_batches[task]) if task in self.lookback_batches else NEVER

    def reach(self) -> int | None:
        """How many past batches of a source may be needed again if every copy is lost: the sum of the lookbacks on the path to
        a sink; None if the state of some task depends on all batches."""
        if len(self.lookback_batches) < len(self.tasks):
            return None
        reach: dict[str, int] = {}
        for task in reversed(self.tasks):
            reach[task] = self.lookback_batches[task] + max((reach[consumer] for consumer in self.consumers[task]), default=0)
        return max(reach.values(), default=0)


@dataclass(frozen=True)
class Start:
    """A task's start in a replay: the version it starts from, and the first batch for which its output is correct."""

    version: Version
    exact: int


def starts(
    graph: Graph, copies: Mapping[str, Mapping[str, Copy]], affected: Collection[str], good: int, head: int, corrected: int
) -> dict[str, Start]:
    """Where each task of a replay starts, so that all `affected` tasks are exact after batch `good`, up to `head`.

    Consumers are decided before their feeders: the start of a consumer decides which outputs of its feeders it needs. These are
    stored in a node, or the feeder is replayed too, from an earlier batch. The outputs of all sinks are needed from batch
    `corrected` on, also of sinks that are not affected: a correction is the complete output.
    """
    found: dict[str, Start] = {}
    for task in reversed(graph.tasks):
        published = head + 1 if graph.consumers[task] else corrected
        wanted = min((found[c].version.batch + 1 for c in graph.consumers[task] if c in found), default=published)
        if task in affected:
            found[task] = _start(graph, task, copies[task], min(wanted, good + 1), good)
        elif wanted <= head and not _buffered(copies[task], wanted, head):
            found[task] = _start(graph, task, copies[task], wanted, good)
    return found


def _start(graph: Graph, task: str, copies: Mapping[str, Copy], wanted: int, good: int) -> Start:
    """The newest version from which all wanted outputs can be produced, or empty state if that is a shorter replay."""
    begin = graph.from_nothing(task, wanted)
    versions = {(copy.batch, copy.attempt) for copy in copies.values() if max(NEVER + 1, begin) <= copy.batch <= good}
    for batch, attempt in sorted(versions, reverse=True):
        if _buffered(copies, wanted, batch):
            nodes = tuple(sorted(node for node, copy in copies.items() if (copy.batch, copy.attempt) == (batch, attempt)))
            return Start(Version(batch, attempt, nodes), batch + 1)
    return Start(Version(begin, 0), wanted if begin > NEVER else 0)


def _buffered(copies: Mapping[str, Copy], first: int, last: int) -> bool:
    """Whether the outputs of all batches from `first` to `last` are stored in nodes."""
    wanted = first
    while wanted <= last:
        reach = max((copy.last for copy in copies.values() if copy.first <= wanted <= copy.last), default=None)
        if reach is None:
            return False
        wanted = reach + 1
    return True
