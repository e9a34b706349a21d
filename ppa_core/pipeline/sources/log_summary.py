"""Summary of a World Cup log; the memory needed grows only with the number of objects and clients."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ppa_core.pipeline.sources.worldcup98 import UNKNOWN_SIZE, chunks, log_files

_NUMBERS = 256
"""Number of server numbers: the whole byte, region and server, by which the source partitions requests too."""


@dataclass(frozen=True)
class LogSummary:
    """`bytes` excludes unknown sizes; `servers` are requests by server number; `out_of_order` counts records that are earlier
    than the previous record, in the order of the files."""

    requests: int
    bytes: int
    first_time: int | None
    last_time: int | None
    objects: int
    clients: int
    servers: dict[int, int]
    out_of_order: int
    unknown_sizes: int


def summarise(paths: Sequence[str | Path]) -> LogSummary:
    """Summarise files and directories. Raises BadInput with file and byte offset if one is invalid."""
    requests = total = unknown = out_of_order = 0
    objects, clients = np.zeros(0, np.uint32), np.zeros(0, np.uint32)
    servers = np.zeros(_NUMBERS, np.int64)
    first = last = before = None
    for path in log_files(paths):
        for chunk in chunks(path):
            times, sizes = chunk["timestamp"].astype(np.int64), chunk["size"].astype(np.int64)
            known = sizes != UNKNOWN_SIZE
            requests += len(chunk)
            total += int(sizes[known].sum())
            unknown += int((~known).sum())
            out_of_order += int((np.diff(times) < 0).sum()) + (before is not None and int(times[0]) < before)
            before = int(times[-1])
            first = min(int(times.min()), before if first is None else first)
            last = max(int(times.max()), before if last is None else last)
            objects, clients = _with(objects, chunk["object"]), _with(clients, chunk["client"])
            servers += np.bincount(chunk["server"], minlength=_NUMBERS)
    by_number = {int(number): int(servers[number]) for number in np.flatnonzero(servers)}
    return LogSummary(requests, total, first, last, len(objects), len(clients), by_number, out_of_order, unknown)


def _with(seen: NDArray[np.uint32], new: NDArray[np.uint32]) -> NDArray[np.uint32]:
    return np.union1d(seen, new.astype(np.uint32))
