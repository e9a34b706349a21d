"""The settings of a run, and what it reports: published outputs and events."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pyarrow as pa

from ppa_core.engine.run_events import RunEvent


@dataclass(frozen=True)
class Settings:
    """How a pipeline is run. Checkpoint and replica intervals are in batches."""

    partitions: int = 2
    checkpoint_every: int = 15
    """0: no checkpoints; lost tasks are rebuilt from the source."""
    sync_every: int = 1
    heartbeat: float = 1.0
    """Seconds between two reports of the nodes; the heartbeats themselves are more frequent."""
    deadline: float | None = None
    """Seconds after the end of its interval by which a batch has an output; None: two intervals."""
    batches: int | None = None
    """Stop after this many batches; None: run until stopped."""
    interval: float | None = None
    """Seconds between batches, if not the pipeline's own; 0: as fast as possible."""
    keep_input: bool = False
    """Whether live sources keep all sealed input, to read the same input again later."""
    replan_every: int = 0
    """Plan again from the measured rates every this many batches; 0: only on request."""
    replan_gain: float = 0.02
    """Minimum gain in worst-case OF for a new plan to replace the current one."""


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
    """When it was published, in seconds since 1970."""
    cause: str = field(default="", compare=False)
    """The id of the incident that it belongs to."""
    delay: float | None = field(default=None, compare=False)
    """Seconds from the end of the batch's interval to its first output."""
    epoch: int = field(default=1, compare=False)
    """The number of the driver that published it, among those of the run."""


Watch = Callable[[PublishedOutput | RunEvent], None]
