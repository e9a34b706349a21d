"""Spark's own progress of a stream, as lines."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from typing import Any

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)


class Listener(StreamingQueryListener):
    """Tells a line for every progress. Spark calls it from a thread of its own."""

    def __init__(self, tell: Callable[[dict[str, Any]], None]) -> None:
        self._tell = tell

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - Spark's name
        pass

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        with suppress(Exception):  # what Spark reports is Spark's; the query goes on
            self._tell(line_of(event.progress))

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802
        pass

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        pass


def line_of(told: Any) -> dict[str, Any]:
    """The line that tells of a progress."""
    return {
        "kind": "progress",
        "at": datetime.fromisoformat(told.timestamp.replace("Z", "+00:00")).timestamp(),
        "batch": int(told.batchId),
        "input_rows": int(told.numInputRows),
        "input_rate": _rate(told.inputRowsPerSecond),
        "processed_rate": _rate(told.processedRowsPerSecond),
        "durations": {str(name): int(value) for name, value in dict(told.durationMs).items()},
    }


def _rate(value: Any) -> float:
    """Spark has no number for the first batch."""
    rate = float(value)
    return rate if math.isfinite(rate) else 0.0
