"""Task state in a worker: segments are read from the nodes when a step accesses them, and cached."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from threading import Lock
from typing import Protocol, TypeVar

import pyarrow as pa

from ppa_core.engine.orders import Version
from ppa_core.nodes.store import NodeDataLost, NodeDown
from ppa_core.pipeline.tables import decode, digest, encode

T = TypeVar("T")

_VERSIONS_OF_A_TASK = 3


class StoreLike(Protocol):
    """The part of a node's store that a worker uses; see `store.Store`."""

    def write(
        self,
        task: str,
        batch: int,
        attempt: int,
        manifest: Mapping[str, str],
        segments: Mapping[str, bytes],
        output: bytes,
        checksum: str = "",
    ) -> None: ...
    def write_output(self, task: str, batch: int, attempt: int, output: bytes, checksum: str = "") -> None: ...
    def manifest(self, task: str, batch: int, attempt: int) -> dict[str, str] | None: ...
    def segments(self, task: str, digests: Collection[str]) -> dict[str, bytes]: ...
    def outputs(self, versions: Sequence[tuple[str, int, int]]) -> list[bytes | None]: ...
    def lacking(self, task: str, digests: Collection[str]) -> set[str]: ...


@dataclass(frozen=True)
class StateSegment:
    """The bytes of a table, and the table as a view of them."""

    data: bytes

    @cached_property
    def table(self) -> pa.Table:
        return decode(self.data)


@dataclass(frozen=True)
class Held:
    """A version as known to a worker: its manifest, the nodes that have its segments, and the known sizes of segments.

    `fresh` are the segments that this job created, independent of the cache.
    """

    manifest: Mapping[str, str] = field(default_factory=dict)
    nodes: tuple[str, ...] = ()
    sizes: Mapping[str, int] = field(default_factory=dict)
    fresh: Mapping[str, StateSegment] = field(default_factory=dict)

    def after(self, add: Mapping[str, pa.Table], drop: Collection[str]) -> tuple[Held, dict[str, StateSegment]]:
        """The version after a step, and its new segments by digest."""
        encoded = {name: StateSegment(encode(table)) for name, table in add.items()}
        named = {name: digest(segment.data) for name, segment in encoded.items()}
        new = {named[name]: segment for name, segment in encoded.items()}
        manifest = {name: found for name, found in self.manifest.items() if name not in drop} | named
        alive = set(manifest.values())
        sizes = {**self.sizes, **{found: len(segment.data) for found, segment in new.items()}}
        after = Held(
            manifest,
            self.nodes,
            {found: size for found, size in sizes.items() if found in alive},
            {found: segment for found, segment in {**self.fresh, **new}.items() if found in alive},
        )
        before = set(self.manifest.values())
        return after, {found: segment for found, segment in new.items() if found not in before}

    @property
    def size(self) -> int:
        """Total bytes of the segments with known size."""
        return sum(self.sizes.values())


class SegmentCache:
    """An LRU cache of segments by digest, at most `max_bytes`, and of the newest manifests of each task.

    One per worker process. Segments never change, so the cache is never stale. Segments that are in none of a task's newest
    manifests are dropped at once: they have left the window.
    """

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.bytes = 0
        self._lock = Lock()
        self._segments: OrderedDict[str, StateSegment] = OrderedDict()
        self._versions: dict[str, OrderedDict[tuple[int, int], Held]] = {}
        self._of_task: dict[str, set[str]] = {}

    def get(self, name: str) -> StateSegment | None:
        with self._lock:
            segment = self._segments.get(name)
            if segment is not None:
                self._segments.move_to_end(name)
            return segment

    def put(self, name: str, segment: StateSegment, task: str = "") -> None:
        with self._lock:
            self._of_task.setdefault(task, set()).add(name)
            if name in self._segments or len(segment.data) > self.max_bytes:
                return
            self._segments[name] = segment
            self.bytes += len(segment.data)
            while self.bytes > self.max_bytes:
                _, oldest = self._segments.popitem(last=False)
                self.bytes -= len(oldest.data)

    def version(self, task: str, batch: int, attempt: int) -> Held | None:
        versions = self._versions.get(task)
        return versions.get((batch, attempt)) if versions else None

    def remember(self, task: str, batch: int, attempt: int, held: Held) -> None:
        """Cache a version, without its segments."""
        versions = self._versions.setdefault(task, OrderedDict())
        versions[batch, attempt] = Held(held.manifest, held.nodes, held.sizes)
        versions.move_to_end((batch, attempt))
        if len(versions) > _VERSIONS_OF_A_TASK:
            versions.popitem(last=False)
        named = {digest for version in versions.values() for digest in version.manifest.values()}
        with self._lock:
            known = self._of_task.get(task, set())
            for name in known - named:
                segment = self._segments.pop(name, None)
                self.bytes -= len(segment.data) if segment else 0
            self._of_task[task] = known & named


class NodeStores:
    """The nodes that a job uses. One that does not respond is `down` and not used again.

    `lost` are missing copies, by node and task: damaged, which a store never returns, or the node was restarted.
    """

    def __init__(self, stores: Callable[[str], StoreLike], cache: SegmentCache) -> None:
        self.cache = cache
        self.down: dict[str, str] = {}
        self.lost: set[tuple[str, str]] = set()
        self._stores = stores

    def ask(self, node: str, task: str, question: Callable[[StoreLike], T]) -> T | None:
        """Query a node's store about a task; None if the node is down, or has lost its copy of the task."""
        if node in self.down:
            return None
        try:
            return question(self._stores(node))
        except NodeDataLost:
            self.lost.add((node, task))
            return None
        except NodeDown as error:
            self.down[node] = error.reason
            return None

    def held(self, task: str, version: Version) -> Held | None:
        """A version of a task, from the cache or the first node that has it; None if no node has it."""
        if not version.attempt:
            return Held()
        known = self.cache.version(task, version.batch, version.attempt)
        if known is not None:
            return Held(known.manifest, version.nodes, known.sizes)
        for node in version.nodes:
            manifest = self.ask(node, task, lambda store: store.manifest(task, version.batch, version.attempt))
            if manifest is not None:
                return Held(manifest, version.nodes)
            self._lacks(node, task)
        return None

    def segments(self, task: str, held: Held, digests: Collection[str]) -> dict[str, StateSegment] | None:
        """Segments of a version by digest; None if one of them is on no node."""
        known = {name: held.fresh.get(name) or self.cache.get(name) for name in digests}
        found = {name: segment for name, segment in known.items() if segment is not None}
        for node in held.nodes:
            wanted = [name for name in digests if name not in found]
            if not wanted:
                break
            read = self.ask(node, task, partial(_segments, task=task, digests=wanted)) or {}
            if len(read) < len(wanted):
                self._lacks(node, task)
            for name, data in read.items():
                found[name] = StateSegment(data)
                self.cache.put(name, found[name], task)
        return found if len(found) == len(set(digests)) else None

    def outputs(self, wanted: Mapping[str, Version]) -> dict[str, bytes]:
        """Outputs of tasks, from the first node of each that has it; one round trip to each node."""
        found: dict[str, bytes] = {}
        left = {task: (version, list(version.nodes)) for task, version in wanted.items() if version.nodes}
        while left:
            by_node: dict[str, list[tuple[str, int, int]]] = {}
            for task, (version, nodes) in left.items():
                by_node.setdefault(nodes.pop(0), []).append((task, version.batch, version.attempt))
            for node, versions in by_node.items():
                read = self.ask(node, versions[0][0], partial(_outputs, versions=versions)) or [None] * len(versions)
                for (task, _, _), data in zip(versions, read, strict=True):
                    if data is not None:
                        found[task] = data
                    else:
                        self._lacks(node, task)
            left = {task: (version, nodes) for task, (version, nodes) in left.items() if task not in found and nodes}
        return found

    def _lacks(self, node: str, task: str) -> None:
        if node not in self.down:
            self.lost.add((node, task))


def _segments(store: StoreLike, task: str, digests: Collection[str]) -> dict[str, bytes]:
    return store.segments(task, digests)


def _outputs(store: StoreLike, versions: Sequence[tuple[str, int, int]]) -> list[bytes | None]:
    return store.outputs(versions)


class Lost(Exception):
    """A segment that is on no node any more: the task cannot continue."""


class TaskSegments(Mapping[str, pa.Table]):
    """A task's segments by name, as passed to a step. Raises `Lost`, and sets `lost`, if one cannot be read."""

    def __init__(self, task: str, held: Held, nodes: NodeStores) -> None:
        self._task, self._held, self._nodes = task, held, nodes
        self.lost = False

    def __getitem__(self, name: str) -> pa.Table:
        wanted = self._held.manifest[name]
        found = self._nodes.segments(self._task, self._held, [wanted])
        if found is None:
            self.lost = True
            raise Lost(f"segment {name!r} of {self._task}")
        return found[wanted].table

    def __contains__(self, name: object) -> bool:
        return name in self._held.manifest

    def __iter__(self) -> Iterator[str]:
        return iter(self._held.manifest)

    def __len__(self) -> int:
        return len(self._held.manifest)
