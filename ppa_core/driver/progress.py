"""Spark's own progress reports of a streaming query, as events."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from datetime import datetime
from typing import Any

from msgspec.structs import replace
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from ppa_core.engine.run_events import BatchProgress

_log = logging.getLogger(__name__)


class Listener(StreamingQueryListener):
    """Reports the progress of every trigger. Spark calls it from a separate thread. `first` is the batch that Spark counts
    as 0."""

    def __init__(self, report: Callable[[BatchProgress], None], first: Callable[[], int]) -> None:
        self._report, self._first = report, first
        self._rows_at = math.inf
        """When rows last arrived."""

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - Spark's name
        pass

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        try:
            found = progress_of(event.progress)
            self._report(
                replace(found, batch=self._first() + found.batch, input_rate=self._input_rate(found.input_rows, found.at))
            )
        except Exception:  # noqa: BLE001 - a report that cannot be read must not end the query
            _log.warning("Spark's progress could not be read", exc_info=True)

    def _input_rate(self, rows: int, at: float) -> float:
        """Rows/s since rows last arrived. Spark's own rate divides by the time since its last poll, sometimes a few
        milliseconds."""
        if not rows:
            return 0.0
        before, self._rows_at = self._rows_at, at
        return rows / (at - before) if at > before else 0.0

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802
        pass

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        pass


def progress_of(progress: Any) -> BatchProgress:
    """The event for a progress report of Spark, without the input rate."""
    return BatchProgress(
        datetime.fromisoformat(progress.timestamp.replace("Z", "+00:00")).timestamp(),
        int(progress.batchId),
        int(progress.numInputRows),
        _rate(progress.processedRowsPerSecond),
        {str(name): int(value) for name, value in dict(progress.durationMs).items()},
    )


def _rate(value: Any) -> float:
    """For the first batch, Spark reports NaN."""
    rate = float(value)
    return rate if math.isfinite(rate) else 0.0
