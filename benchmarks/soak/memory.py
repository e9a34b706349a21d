"""The resident memory of a soak's processes over time: the driver, executors and their Python workers, nodes."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from statistics import median
from types import TracebackType
from typing import Self

import psutil

from ppa_core.driver.executors import EXECUTOR, WORKER, runs
from ppa_core.process.spark_daemons import MASTER
from ppa_core.process.testbed import TestBed

EVERY = 10.0

Sample = tuple[float, dict[str, float]]
"""When, in seconds since 1970; megabytes by name."""


class MemorySampler:
    """Takes a sample every ten seconds, in a thread, and hands it to `take`."""

    def __init__(self, bed: TestBed, take: Callable[[Sample], None]) -> None:
        self._bed, self._take, self._over = bed, take, threading.Event()
        self._thread = threading.Thread(target=self._run, name="soak-memory", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._over.wait(EVERY):
            self._take((time.time(), megabytes(self._bed)))


def megabytes(bed: TestBed) -> dict[str, float]:
    """Resident megabytes: of the driver's Python process and JVM, of each host's executors and Python workers, of each node."""
    nodes, found = {pid: name for name, pid in bed.pids.items()}, Counter[str]()
    for place in ("", *bed.hosts):
        for pid in bed.processes(place) if place else bed.network.control.pids():
            with suppress(psutil.Error):  # it may have ended
                process = psutil.Process(pid)
                found[nodes.get(pid) or _name(process, place)] += process.memory_info().rss
    return {name: number / 2**20 for name, number in sorted(found.items())}


def _name(process: psutil.Process, host: str) -> str:
    if process.name() != "java":
        return f"Python workers {host}" if host else "driver, Python"
    if runs(process, WORKER) or runs(process, MASTER):
        return "Spark master and workers"
    return f"executor {host}" if runs(process, EXECUTOR) else "driver, JVM"


def growth(samples: list[Sample]) -> list[dict[str, object]]:
    """A row per name: the median of the second quarter and of the last one, and the most."""
    rows: list[dict[str, object]] = []
    quarter = len(samples) // 4
    for name in sorted({name for _, sample in samples for name in sample}):
        early, late = (
            [sample[name] for _, sample in part if name in sample]
            for part in (samples[quarter : 2 * quarter], samples[-quarter:])
        )
        most = max(sample.get(name, 0.0) for _, sample in samples)
        before, after = (round(median(part)) if part else None for part in (early, late))
        rows.append({"process": name, "second quarter, MB": before, "last quarter, MB": after, "most, MB": round(most)})
    return rows
