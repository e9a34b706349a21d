"""Writing versions: each new segment is encoded once, and only missing segments are sent to a node."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from time import perf_counter, thread_time

import pyarrow as pa

from ppa_core.engine.orders import TaskRun
from ppa_core.nodes.store import NodeDataLost, NodeFull
from ppa_core.pipeline.definition import Result, StepFailed
from ppa_core.pipeline.tables import digest, encode
from ppa_core.worker.state import Held, NodeStores, StateSegment, StoreLike


@dataclass(frozen=True)
class TaskStats:
    """Statistics of one task in one batch."""

    task: str
    batch: int
    rows_in: int
    rows_out: int
    seconds: float
    """Time for gathering, step and encoding, without writes, which run in parallel for all tasks."""
    state_bytes: int = 0
    home_bytes: int = 0
    replica_bytes: int = 0
    checkpoint_bytes: int = 0
    """Including the outputs that are sent to the checkpoint's node between checkpoints."""
    step_cpu: float = 0.0
    """CPU time of gathering and step."""
    home_cpu: float = 0.0
    """CPU time of encoding and the write to the home node."""
    replica_cpu: float = 0.0
    checkpoint_cpu: float = 0.0


@dataclass(frozen=True)
class Made:
    """The result of a step, before it is written."""

    task: str
    batch: int
    attempt: int
    run: TaskRun
    before: Held
    result: Result
    output: pa.Table
    stats: TaskStats


def write_all(made: Sequence[Made], nodes: NodeStores, threads: Executor) -> list[tuple[Held | None, TaskStats]]:
    """Write versions to their home, replica and checkpoint nodes, to all nodes in parallel.

    Returns the written version of each task, None if it did not reach its home. Raises StepFailed if a node is full.
    """
    versions = [_Writing.of(one, nodes) for one in made]
    by_node: dict[str, list[tuple[_Writing, str]]] = {}
    for version in versions:
        for role in _ROLES:
            if node := getattr(version.made.run, role):
                by_node.setdefault(node, []).append((version, role))

    def send(node: str) -> None:
        for version, role in by_node[node]:
            version.send(role)

    list(threads.map(send, by_node))
    return [version.done() for version in versions]


_ROLES = ("home", "replica", "checkpoint", "buffer")


@dataclass(frozen=True)
class _Writing:
    """A version that is being written; `sent` and `cpu` are bytes and seconds by the node's role."""

    made: Made
    held: Held
    new: dict[str, StateSegment]
    output: bytes
    checksum: str
    nodes: NodeStores
    sent: dict[str, int] = field(default_factory=dict)
    cpu: dict[str, float] = field(default_factory=dict)

    @classmethod
    def of(cls, made: Made, nodes: NodeStores) -> _Writing:
        begin, cpu = perf_counter(), thread_time()
        held, new = made.before.after(made.result.add, made.result.drop)
        for name, segment in new.items():
            nodes.cache.put(name, segment, made.task)
        output = encode(made.output)
        checksum = digest(output)
        stats = replace(
            made.stats,
            seconds=made.stats.seconds + perf_counter() - begin,
            state_bytes=held.size,
            home_cpu=thread_time() - cpu,
        )
        return cls(replace(made, stats=stats), held, new, output, checksum, nodes)

    def send(self, role: str) -> None:
        """Write to the node in this role."""
        begin, node = thread_time(), getattr(self.made.run, role)
        try:
            size = self.nodes.ask(node, self.made.task, self._put_output) if role == "buffer" else self._send_version(node)
        except NodeFull as error:
            raise StepFailed(self.made.task.rpartition(".")[0], self.made.task, self.made.batch, str(error)) from error
        if size is not None:
            self.sent[role] = size
        self.cpu[role] = thread_time() - begin

    def done(self) -> tuple[Held | None, TaskStats]:
        """The written version, and the stats including the cost of the writes."""
        sent, cpu, run = self.sent, self.cpu, self.made.run
        stats = replace(
            self.made.stats,
            home_bytes=sent.get("home", 0),
            replica_bytes=sent.get("replica", 0),
            checkpoint_bytes=sent.get("checkpoint", 0) + sent.get("buffer", 0),
            home_cpu=self.made.stats.home_cpu + cpu.get("home", 0.0),
            replica_cpu=cpu.get("replica", 0.0),
            checkpoint_cpu=cpu.get("checkpoint", 0.0) + cpu.get("buffer", 0.0),
        )
        if "home" not in sent:
            return None, stats
        held = replace(self.held, nodes=tuple(getattr(run, role) for role in _ROLES[:3] if role in sent))
        self.nodes.cache.remember(self.made.task, self.made.batch, self.made.attempt, held)
        return held, stats

    def _send_version(self, node: str) -> int | None:
        """Write the whole version; the bytes sent, None if that failed."""
        had_before = node in self.made.before.nodes or not self.made.before.manifest
        segments = self.new if had_before else self._lacking(node)
        if segments is None:
            return None
        return self.nodes.ask(node, self.made.task, lambda store: self._put(store, segments, had_before))

    def _lacking(self, node: str) -> dict[str, StateSegment] | None:
        """The segments of the version that are missing on a node; None if the node or a segment cannot be reached."""
        digests = set(self.held.manifest.values())
        lacking = self.nodes.ask(node, self.made.task, lambda store: store.lacking(self.made.task, digests))
        return None if lacking is None else self.nodes.segments(self.made.task, self.held, lacking)

    def _put(self, store: StoreLike, segments: dict[str, StateSegment], had_before: bool) -> int:
        made, output = self.made, (self.output, self.checksum)
        try:
            store.write(made.task, made.batch, made.attempt, self.held.manifest, _bytes(segments), *output)
        except NodeDataLost:
            whole = None if had_before else self.nodes.segments(made.task, self.held, set(self.held.manifest.values()))
            if whole is None:
                raise
            segments = whole  # segments that the node had were garbage-collected in the meantime
            store.write(made.task, made.batch, made.attempt, self.held.manifest, _bytes(segments), *output)
        return sum(len(segment.data) for segment in segments.values()) + len(self.output)

    def _put_output(self, store: StoreLike) -> int:
        store.write_output(self.made.task, self.made.batch, self.made.attempt, self.output, self.checksum)
        return len(self.output)


def _bytes(segments: dict[str, StateSegment]) -> dict[str, bytes]:
    return {name: segment.data for name, segment in segments.items()}
