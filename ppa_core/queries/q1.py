"""The paper's query Q1: the most requested pages of the 1998 World Cup site, over a sliding window.

`servers` reads the log, partitioned by server. O1 counts the requests for each page over the window, for neighbouring servers;
O2 and O3 add up these counts, and O3 keeps the largest. Only O1 has a window, and it sends all its counts in every batch: so
the counts of a lost task are missing downstream at once, and are back as soon as the task has recovered.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from ppa_core.errors import BadInput
from ppa_core.pipeline import operators as op
from ppa_core.pipeline.definition import Pipeline, Source
from ppa_core.pipeline.sources.day66 import DAY_SECONDS, REQUESTS, Day66
from ppa_core.pipeline.sources.worldcup98 import open_log

_PLACE = "query 'q1'"
_FLATNESS = 90
"""The page of rank r has about the share 90/(r + 90)² of the requests: see `Day66`."""


def q1(
    rate: float | None = None,
    window: float = 30.0,
    batch_seconds: float = 1.0,
    tasks: Sequence[int] = (29, 8, 4, 1),
    top: int = 100,
    logs: str | Sequence[str] | None = None,
    speedup: float = 48.0,
    seed: int = 0,
    by: str = "server",
) -> Pipeline:
    """The `top` pages by requests in the last `window` seconds, every batch; `tasks` are those of servers, O1, O2 and O3.

    The requests are read from the files or directories `logs`, or else generated like those of day 66. Both are replayed
    `speedup` times as fast as in reality. `rate` is the mean tuples/s of a source task: it scales the number of generated
    requests, and sets the speed-up of a log. With `by="page"` each page is counted by one task of O1, whichever server it was
    requested from: then the counts of a lost task are in no other task.
    """
    if by not in ("server", "page"):
        raise BadInput(_PLACE, f"by {by!r}; requests are partitioned by 'server' or by 'page'")
    if len(tasks) != 4 or tasks[3] != 1:
        raise BadInput(
            _PLACE, f"tasks {tuple(tasks)}; give four numbers, for servers, O1, O2 and O3, and O3 must have one task"
        )
    if not (rate is None or rate > 0):
        raise BadInput(_PLACE, f"a rate of {rate} tuples/s of a source task; it must be positive")
    if not (window > 0 and batch_seconds > 0 and speedup > 0):
        raise BadInput(_PLACE, f"window {window} s, batches of {batch_seconds} s, speed-up {speedup}; all must be positive")
    source = (
        _made(rate, batch_seconds, tasks[0], speedup, seed)
        if logs is None
        else _log(logs, rate, batch_seconds, tasks[0], speedup)
    )
    merge = op.sum("requests", by="object", window=op.tumbling(1, "batches"), name="requests")
    requests = sum(source.rate(task) for task in range(tasks[0])) * window
    pages = [_different_pages(requests / count) * count for count in tasks[1:3]]
    return (
        Pipeline("q1", batch_seconds)
        .source("servers", tasks[0], source)
        .operator(
            "O1",
            tasks[1],
            {"servers": "merge" if by == "server" else ("full", "object")},
            op.count(by="object", window=op.sliding(window), name="requests"),
            selectivity=pages[0] * window / (requests * batch_seconds),
        )
        .operator("O2", tasks[2], {"O1": "merge"}, merge, selectivity=pages[1] / pages[0])
        .operator("O3", 1, {"O2": "merge"}, op.top(top, "requests", of=merge), selectivity=min(1.0, top / pages[1]))
    )


def accuracy(tentative: pa.Table, accurate: pa.Table) -> float:
    """The share of the requests in the accurate output that the tentative one has too: |S_T ∩ S_A| ÷ |S_A|; 1 if none.

    S is the output as a multiset: every page as often as it was requested. If a page is in both outputs but half of its
    requests are missing, half of them count. With windows as short as the paper's slices nearly every page was requested once,
    and this is the share of the pages: see `named`.
    """
    if not accurate.num_rows:
        return 1.0
    expected, counted = accurate["requests"].to_numpy(), tentative["requests"].to_numpy()
    _, ours, theirs = np.intersect1d(
        tentative["object"].to_numpy(), accurate["object"].to_numpy(), assume_unique=True, return_indices=True
    )
    return float(np.minimum(counted[ours], expected[theirs]).sum() / expected.sum())


def named(tentative: pa.Table, accurate: pa.Table) -> float:
    """The share of the accurate output's pages that are in the tentative one, whatever their counts.

    All servers serve the same pages, in the log and in the generated requests. So if a window has many requests for each of
    the top pages, a few servers report almost the same pages as all of them, and this is far above OF.
    """
    if not accurate.num_rows:
        return 1.0
    return float(np.isin(accurate["object"].to_numpy(), tentative["object"].to_numpy()).sum() / accurate.num_rows)


def _made(rate: float | None, batch_seconds: float, tasks: int, speedup: float, seed: int) -> Day66:
    share = 1.0 if rate is None else rate * tasks / (sum(REQUESTS) / DAY_SECONDS * speedup)
    return Day66(tasks, batch_seconds, speedup, share, seed)


def _log(logs: str | Sequence[str], rate: float | None, batch_seconds: float, tasks: int, speedup: float) -> Source:
    log = open_log(logs, tasks, batch_seconds, speedup)
    if rate is None:
        return log
    return replace(log, speedup=speedup * rate * tasks / sum(log.rate(task) for task in range(tasks)))


def _different_pages(requests: float) -> float:
    """The number of different pages in this many requests: the integral over the ranks of 1 − exp(−requests · share)."""
    q, a = _FLATNESS, math.sqrt(requests * _FLATNESS)
    return math.sqrt(math.pi) * a * math.erf(a / q) - q * (1 - math.exp(-((a / q) ** 2)))
