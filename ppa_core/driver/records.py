"""What a run is started with, and what it reports: settings in, published outputs and events out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pyarrow as pa

from ppa_core.engine.run_events import RunEvent


@dataclass(frozen=True)
class Settings:
    """How a pipeline is run. Intervals of checkpoints and replicas are in batches."""

    partitions: int = 2
    checkpoint_every: int = 15
    """0: no checkpoints; what is lost is rebuilt from the source."""
    sync_every: int = 1
    heartbeat: float = 1.0
    batches: int | None = None
    """Stop after so many; None runs until stopped."""
    interval: float | None = None
    """Seconds between batches, if not the pipeline's; 0 reads as fast as it can."""
    keep_input: bool = False
    """Whether live sources keep what they fixed: the same input is to be read once more."""
    replan_every: int = 0
    """Plan again from the measured rates every so many batches; 0: only when asked to."""
    replan_gain: float = 0.02
    """OF that a plan must be worth more than the present one to replace it."""


@dataclass(frozen=True)
class PublishedOutput:
    """One published output: a later revision of the same batch replaces an earlier one."""

    batch: int
    revision: int
    status: str
    of: float
    missing: tuple[str, ...]
    table: pa.Table
    at: float = field(compare=False)
    """When it was published, by the clock of `time.time`."""
    cause: str = field(default="", compare=False)
    """The incident that it belongs to."""


Watch = Callable[[PublishedOutput | RunEvent], None]
