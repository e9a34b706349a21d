"""Spark's streaming progress as records. Loaded only where Spark runs."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import datetime
from typing import Any

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from monitoring.codec import cut
from monitoring.records import PHASES, Progress


class Listener(StreamingQueryListener):
    """Hands every progress to `tell`. Spark calls it from a thread of its own; it never raises back into Spark.

    Add it with `spark.streams.addListener`, and remove it when the run ends.
    """

    def __init__(self, tell: Callable[[Progress], None]) -> None:
        self._tell = tell
        self.bad = 0

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - Spark's name
        pass

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        try:
            self._tell(progress_of(event.progress))
        except Exception:  # noqa: BLE001 - what Spark reports is Spark's; the query goes on
            self.bad += 1

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802
        pass

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        pass


def progress_of(told: Any) -> Progress:
    """A record of Spark's `StreamingQueryProgress`. Its rates are NaN for the first batch: that is 0 here."""
    durations = {cut(name): int(value) for name, value in dict(told.durationMs).items()}
    at = datetime.fromisoformat(told.timestamp.replace("Z", "+00:00")).timestamp()
    return Progress(
        int(told.batchId),
        round(at, 3),
        int(told.numInputRows),
        _rate(told.inputRowsPerSecond),
        _rate(told.processedRowsPerSecond),
        tuple(durations.pop(name, 0) for name in PHASES),
        durations,
    )


def _rate(value: float | None) -> float:
    return round(value, 1) if value is not None and math.isfinite(value) else 0.0
