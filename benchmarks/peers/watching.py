"""Watch a job's results, make one of its workers fail, and wait until all is as before."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Protocol

from benchmarks.peers.measure import FAIL_AT, Seen, back
from benchmarks.peers.work import Row
from ppa_core.errors import Unavailable

START_SECONDS = 120.0
_OFTEN = 0.02
_AFTER = 5.0
"""Watched longer than needed, for rows that come twice."""
_ROW = re.compile(rb"\[(\d+), (\d+), (\d+), (\d+)\]$")


class Job(Protocol):
    """A running job of some system."""

    zero: float

    def rows(self) -> dict[str, list[Row]]:
        """New results, by sink."""

    def fail(self, how: str) -> None:
        """Kill or hang a worker with all that runs on it."""

    def ended(self) -> str | None:
        """Why it has ended, if it has."""


def watch(job: Job, how: str, patience: float) -> tuple[dict[str, Seen], float]:
    """The results by sink, and when watching ended: latency is as before, or `patience` seconds after the failure."""
    seen: dict[str, Seen] = {}
    failed_at, looked, done = None, 0.0, None
    started = time.time()
    while True:
        now = time.time()
        for sink, rows in job.rows().items():
            seen.setdefault(sink, Seen(job.zero)).add(rows)
        if failed_at is None:
            if reason := job.ended():
                raise Unavailable(f"the job has ended: {reason}")
            if seen and all(one.steady() for one in seen.values()):
                failed_at = time.time()
                job.fail(how)
                for one in seen.values():
                    one.fail(failed_at)
            elif now > started + FAIL_AT + START_SECONDS:
                raise Unavailable(f"results did not come evenly within {now - started:.0f} s: is the machine busy?")
        elif now > failed_at + patience or (done is not None and now > done + _AFTER):
            return seen, now
        elif done is None and now > looked + 1.0:
            looked, done = now, now if all(back(one) is not None for one in seen.values()) else None
        time.sleep(_OFTEN)


class Tail:
    """The complete lines that files grow by."""

    def __init__(self) -> None:
        self._offsets: dict[Path, int] = {}

    def lines(self, path: Path) -> list[bytes]:
        """The lines since the last call; none if the file does not exist yet."""
        try:
            with path.open("rb") as file:
                file.seek(self._offsets.get(path, 0))
                content = file.read()
        except FileNotFoundError:
            return []
        whole = content[: content.rfind(b"\n") + 1]
        self._offsets[path] = self._offsets.get(path, 0) + len(whole)
        return whole.splitlines()


def parsed(lines: Iterable[bytes], at: float) -> Iterator[Row]:
    """The results in lines that end with `[window, key, count, sum]`; other lines are left out."""
    for line in lines:
        if found := _ROW.search(line):
            window, key, count, total = map(int, found.groups())
            yield Row(at, window, key, count, total)
