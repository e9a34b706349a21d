"""Runs a pipeline's batches in this process, without Spark: stage by stage, partition by partition."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from ppa_core.engine.orders import Order, TaskRun, Version
from ppa_core.nodes.store import NodeDataLost, NodeDown
from ppa_core.pipeline.definition import Pipeline
from ppa_core.pipeline.tables import decode
from ppa_core.worker.layout import Layout
from ppa_core.worker.packing import Blob
from ppa_core.worker.stage import StageResult, run_stage
from ppa_core.worker.state import SegmentCache, StoreLike


@dataclass
class MemoryStore:
    """A node's store in a dict; counts its calls, and can be dead."""

    name: str
    dead: bool = False
    calls: list[str] = field(default_factory=list)
    manifests: dict[tuple[str, int, int], dict[str, str]] = field(default_factory=dict)
    contents: dict[tuple[str, str], bytes] = field(default_factory=dict)
    buffers: dict[tuple[str, int, int], bytes] = field(default_factory=dict)

    def write(
        self,
        task: str,
        batch: int,
        attempt: int,
        manifest: Mapping[str, str],
        segments: Mapping[str, bytes],
        output: bytes,
        checksum: str = "",
    ) -> None:
        self._call("write")
        if any((task, digest) not in self.contents and digest not in segments for digest in manifest.values()):
            raise NodeDataLost(self.name, f"it lacks segments of {task}")
        self.contents |= {(task, digest): data for digest, data in segments.items()}
        self.manifests[task, batch, attempt] = dict(manifest)
        self.buffers[task, batch, attempt] = output

    def write_output(self, task: str, batch: int, attempt: int, output: bytes, checksum: str = "") -> None:
        self._call("write_output")
        self.buffers[task, batch, attempt] = output

    def manifest(self, task: str, batch: int, attempt: int) -> dict[str, str] | None:
        self._call("manifest")
        return self.manifests.get((task, batch, attempt))

    def segments(self, task: str, digests: Collection[str]) -> dict[str, bytes]:
        self._call("segments")
        return {digest: self.contents[task, digest] for digest in digests if (task, digest) in self.contents}

    def outputs(self, versions: Sequence[tuple[str, int, int]]) -> list[bytes | None]:
        self._call("outputs")
        return [self.buffers.get(version) for version in versions]

    def lacking(self, task: str, digests: Collection[str]) -> set[str]:
        self._call("lacking")
        return {digest for digest in digests if (task, digest) not in self.contents}

    def forget_before(self, batch: int) -> None:
        """Drop the versions of earlier batches."""
        self.manifests = {version: manifest for version, manifest in self.manifests.items() if version[1] >= batch}
        self.buffers = {version: output for version, output in self.buffers.items() if version[1] >= batch}
        named = {(task, digest) for (task, _, _), manifest in self.manifests.items() for digest in manifest.values()}
        self.contents = {segment: data for segment, data in self.contents.items() if segment in named}

    def _call(self, name: str) -> None:
        if self.dead:
            raise NodeDown(self.name, "killed")
        self.calls.append(name)


@dataclass
class Local:
    """A pipeline on `partitions` partitions. Tasks live in the nodes n0, n1, … in turn."""

    pipeline: Pipeline
    partitions: int = 1
    nodes: int = 2
    cache_bytes: int = 1 << 28
    stores: Callable[[str], StoreLike] | None = None

    def __post_init__(self) -> None:
        self.layout = Layout.of(self.pipeline, self.partitions)
        self.memory: dict[str, MemoryStore] = {}
        self.caches = [SegmentCache(self.cache_bytes) for _ in range(self.partitions)]
        topology = self.pipeline.topology()
        self.tasks = [task for i, task in enumerate(topology.tasks) if i not in topology.external_tasks]
        self.homes = {task: f"n{i % self.nodes}" for i, task in enumerate(self.tasks)}

    def store(self, name: str) -> MemoryStore:
        return self.memory.setdefault(name, MemoryStore(name))

    def forget(self) -> None:
        """Empty the caches: as if the worker processes were new."""
        self.caches = [SegmentCache(self.cache_bytes) for _ in range(self.partitions)]

    def order(self, batch: int, attempt: int = 1, *, tasks: Iterable[str] | None = None, before: int | None = -2) -> Order:
        """Run `tasks` (default all) for a batch, from what attempt 1 wrote (`before` another attempt, None this same job)."""
        of = 1 if before == -2 else before
        runs = {}
        for task in self.tasks if tasks is None else tasks:
            version = None if of is None else Version(batch - 1, of if batch else 0, (self.homes[task],))
            runs[task] = TaskRun(self.homes[task], version)
        return Order(batch, attempt, runs)

    def run(self, *orders: Order) -> StageResult:
        """One job: all stages on all partitions."""
        total = StageResult()
        blobs: list[Blob] = []
        for stage in range(self.layout.stages):
            results = [self._stage(stage, partition, orders, blobs) for partition in range(self.partitions)]
            blobs = [blob for result in results for blob in result.blobs]
            for result in results:
                for name in ("blobs", "sinks", "stats", "flows"):
                    getattr(total, name).extend(getattr(result, name))
                total.down.update(result.down)
                total.lost.update(result.lost)
                total.skipped.update(result.skipped)
        return total

    def _stage(self, stage: int, partition: int, orders: Sequence[Order], blobs: Iterable[Blob]) -> StageResult:
        return run_stage(
            self.layout,
            stage,
            partition,
            orders,
            self._read,
            [blob for blob in blobs if blob.target == partition],
            self.stores or self.store,
            self.caches[partition],
        )

    def _read(self, operator: str, task: int, batch: int) -> pa.Table:
        source = self.pipeline.by_name[operator].source
        assert source is not None
        return source.read(task, batch)

    def state(self, task: str, batch: int, attempt: int) -> dict[str, pa.Table]:
        """A task's state in its home, by segment name."""
        store = self.store(self.homes[task])
        return {name: decode(store.contents[task, digest]) for name, digest in store.manifests[task, batch, attempt].items()}

    def versions(self, attempt: int) -> dict[tuple[str, int], tuple[dict[str, str], bytes]]:
        """All versions that an attempt wrote to the homes: manifest and output."""
        stores = self.memory.values()
        return {
            (task, batch): (manifest, store.buffers[task, batch, of])
            for store in stores
            for (task, batch, of), manifest in store.manifests.items()
            if of == attempt and store.name == self.homes[task]
        }
