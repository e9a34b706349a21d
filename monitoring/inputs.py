"""What the collector is given beside events, and what it knows from before."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from monitoring.records import Incident, Totals

Accuracy = Callable[[Any, Any], float | None]
"""How much of an accurate output a tentative one has, from 0 to 1, None if there is nothing to compare: `Query.accuracy`."""

ReadTable = Callable[[], pa.Table]
"""Reads the table of a published output; it is only called if the table is wanted."""


@dataclass(frozen=True)
class Before:
    """What the monitor knows of the same run from the driver before this one."""

    incident: Incident | None = None
    totals: Totals = field(default_factory=Totals)
