"""What a run is told, and what it tells: settings in, published outputs and notes out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pyarrow as pa


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
    """Seconds between batches, if not the pipeline's; 0 reads as fast as it goes."""
    keep_input: bool = False
    """Whether live sources keep what they fixed: the same input is to be read once more."""
    replan_every: int = 0
    """Plan anew from the measured rates every so many batches; 0: only when told to."""
    replan_gain: float = 0.02
    """OF that a plan must be worth more than the present one to take its place."""


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


@dataclass(frozen=True)
class Note:
    """Something that happened, for whoever watches: what, when, and figures that belong to it."""

    kind: str
    at: float
    batch: int
    figures: dict[str, object] = field(default_factory=dict)


Watch = Callable[[PublishedOutput | Note], None]
