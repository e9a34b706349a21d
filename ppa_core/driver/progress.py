"""Spark's own progress of a stream, as events."""

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
    """Reports every progress. Spark calls it from a thread of its own."""

    def __init__(self, tell: Callable[[BatchProgress], None]) -> None:
        self._tell = tell
        self._rows_at = math.inf
        """When rows came in last."""

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - Spark's name
        pass

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        try:
            found = progress_of(event.progress)
            self._tell(replace(found, input_rate=self._input_rate(found.input_rows, found.at)))
        except Exception:  # noqa: BLE001 - what Spark reports is Spark's; the query goes on
            _log.warning("Spark's progress could not be read", exc_info=True)

    def _input_rate(self, rows: int, at: float) -> float:
        """Rows/s since rows came in before. Spark divides by the time since it looked last, at times a few milliseconds."""
        if not rows:
            return 0.0
        before, self._rows_at = self._rows_at, at
        return rows / (at - before) if at > before else 0.0

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802
        pass

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        pass


def progress_of(told: Any) -> BatchProgress:
    """The event of a progress, without the rate of the input."""
    return BatchProgress(
        datetime.fromisoformat(told.timestamp.replace("Z", "+00:00")).timestamp(),
        int(told.batchId),
        int(told.numInputRows),
        _rate(told.processedRowsPerSecond),
        {str(name): int(value) for name, value in dict(told.durationMs).items()},
    )


def _rate(value: Any) -> float:
    """Spark has no number for the first batch."""
    rate = float(value)
    return rate if math.isfinite(rate) else 0.0
