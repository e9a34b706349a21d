"""Notices about the data: the monitor does not respond, there is no data yet, it is old, the run has ended. Pure.

The sentence of a notice is the program's own; `detail` may come from outside, and is shown as plain text.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from monitoring.records import MAX_TASKS
from monitoring.views import Snapshot, silence
from pages.shared.words import clock, duration, number

STALE_SECONDS = 10.0


@dataclass(frozen=True)
class Notice:
    level: Literal["error", "warning", "info"]
    sentence: str
    detail: str = ""


def last_data(snapshot: Snapshot) -> float:
    """The time of the newest data of a run."""
    times = [snapshot.info.started, snapshot.heard, snapshot.batch.at if snapshot.batch else None]
    times += [snapshot.life.at if snapshot.life else None, snapshot.progress.at if snapshot.progress else None]
    return max(at for at in times if at is not None)


def notices(snapshot: Snapshot | None, trouble: str, now: float) -> list[Notice]:
    """What an operator has to know before relying on the page, the most serious first."""
    if snapshot is None:
        if trouble:
            return [Notice("error", "The monitor cannot be read, and there is no earlier data.", trouble)]
        known = "The monitor has no data for this pipeline yet, or its topology is too large for the dashboard"
        return [Notice("info", f"{known} (at most {number(MAX_TASKS)} tasks).")]
    last = last_data(snapshot)
    age = f"Last data: {clock(last)}, {duration(max(0.0, now - last))} ago."
    shown = []
    if trouble:
        shown.append(Notice("error", f"The monitor cannot be read; this page shows old data. {age}", trouble))
    doing = snapshot.life.doing if snapshot.life else "running"
    reason = snapshot.life.reason if snapshot.life else ""
    if doing in ("ended", "failed"):
        level: Literal["error", "info"] = "error" if doing == "failed" else "info"
        shown.append(Notice(level, f"The pipeline has {doing}. {age}", reason))
    elif doing in ("paused", "stopping"):
        shown.append(Notice("info", f"The pipeline is {doing}. {age}", reason))
    elif not trouble and now - last > max(STALE_SECONDS, 3 * snapshot.info.batch_seconds):
        shown.append(Notice("warning", f"No data from the pipeline for {duration(now - last)}. {age}"))
    elif not trouble and (silent := silence(snapshot, now)) is not None:
        due = f"every batch should have one {snapshot.info.deadline_seconds:g} s after its interval at the latest"
        shown.append(Notice("warning", f"No output for {duration(silent)}; {due}. {age}"))
    if snapshot.batch is None and not trouble:
        shown.append(
            Notice("info", f"The pipeline has published no output yet. It was started at {clock(snapshot.info.started)}.")
        )
    return shown
