"""What the collector gets besides events: output tables, the query's accuracy, and the state before a driver restart."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from monitoring.records import Incident, Totals

Accuracy = Callable[[Any, Any], float | None]
"""The share of an accurate output that a tentative one has, from 0 to 1; None if there is nothing to compare."""

ReadTable = Callable[[], pa.Table]
"""Reads the table of a published output; called only if the table is needed."""


@dataclass(frozen=True)
class PreviousState:
    """What the monitor has stored about the run before the driver was restarted."""

    incident: Incident | None = None
    totals: Totals = field(default_factory=Totals)
