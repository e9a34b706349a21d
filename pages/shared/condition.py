"""What to say of the data itself: the monitor is gone, nothing was published yet, it is old, the run is over. Pure.

A notice's sentence is the program's own words; `detail` may come from outside, and is shown as text.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from monitoring.records import MAX_TASKS
from monitoring.views import Snapshot
from pages.shared.words import clock, lasted, number

STALE_SECONDS = 10.0


@dataclass(frozen=True)
class Notice:
    level: Literal["error", "warning", "info"]
    sentence: str
    detail: str = ""


def last_data(snapshot: Snapshot) -> float:
    """The time of the newest thing that the run told."""
    times = [snapshot.info.started, snapshot.heard, snapshot.batch.at if snapshot.batch else None]
    times += [snapshot.life.at if snapshot.life else None, snapshot.progress.at if snapshot.progress else None]
    return max(at for at in times if at is not None)


def notices(snapshot: Snapshot | None, trouble: str, now: float) -> list[Notice]:
    """What an operator has to know before believing the page, the gravest first."""
    if snapshot is None:
        if trouble:
            return [Notice("error", "The monitor cannot be read, and nothing was read from it before.", trouble)]
        known = "The monitor knows nothing of this pipeline yet, or what cannot be shown"
        return [Notice("info", f"{known}: a topology here has {number(MAX_TASKS)} tasks at most.")]
    last = last_data(snapshot)
    age = f"The last data is from {clock(last)}, {lasted(max(0.0, now - last))} ago."
    found = []
    if trouble:
        found.append(Notice("error", f"The monitor cannot be read now; what is shown is old. {age}", trouble))
    doing = snapshot.life.doing if snapshot.life else "running"
    reason = snapshot.life.reason if snapshot.life else ""
    if doing in ("ended", "failed"):
        level: Literal["error", "info"] = "error" if doing == "failed" else "info"
        found.append(Notice(level, f"The pipeline has {doing}. {age}", reason))
    elif doing in ("paused", "stopping"):
        found.append(Notice("info", f"The pipeline is {doing}. {age}", reason))
    elif not trouble and now - last > max(STALE_SECONDS, 3 * snapshot.info.batch_seconds):
        found.append(Notice("warning", f"The pipeline has told nothing for {lasted(now - last)}. {age}"))
    if snapshot.batch is None and not trouble:
        found.append(
            Notice("info", f"The pipeline has published no output yet; it was started at {clock(snapshot.info.started)}.")
        )
    return found
