"""The configuration of a driver process: one line of JSON on its standard input."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from ppa_core.driver.records import Settings
from ppa_core.placement.nodes import Node
from ppa_core.safety.masking import is_secret, remember_more
from ppa_core.safety.names import check_run

TAKE_OVER = "take over"
"""The command to a standby driver: the one that ran has ended."""
RESUMABLE = "resumable"
"""A file in the run's folder, once the run can be resumed: its state is in the nodes."""


@dataclass(frozen=True)
class Config:
    """What a driver runs, and on which nodes and master."""

    query: str
    options: dict[str, Any] = field(repr=False)
    """May contain passwords."""
    nodes: tuple[Node, ...]
    plan: tuple[str, ...]
    settings: Settings
    run_id: str
    folder: Path
    master: str | None = None
    budget: int = 0
    planner: str = "default"
    metric: str = "of"
    sinks: tuple[str, ...] = field(default=(), repr=False)
    keep: int | None = None
    """Number of batches whose outputs are kept in the folder; None: all."""
    input: str = ""
    """The run whose seals live sources use, if not this run's own: for two runs over the same input."""
    owner: str = field(default="", repr=False)
    """The owner of the run's lease, the same for all drivers of the run."""
    witness: Node | None = None
    """A server with a vote on which driver runs, if the racks' votes can be halved (`ppa_core.nodes.votes`)."""
    strict_lease: bool = False
    """Whether a driver runs only as long as it has a majority of the votes, because another one may take over."""
    standby: bool = False
    """Whether this driver waits until the one that runs does not renew its lease, and takes over then."""
    detailed: bool = False
    """Whether to report every task, every heartbeat and Spark's progress, for a monitor."""
    trusted_network: bool = False
    """Whether a Spark cluster without authentication may be used."""
    log_level: str = "warning"
    """Minimum level of the log records that are sent to the parent process; standard error always has `info` and above."""

    def __post_init__(self) -> None:
        check_run(self.run_id)
        if self.input:
            check_run(self.input)
        if not self.owner:
            object.__setattr__(self, "owner", self.run_id)

    def hide_passwords(self) -> None:
        """Mask the passwords of this config from now on in everything that this process logs or prints."""
        named = (f"?password={value}" for name, value in self.options.items() if is_secret(name))
        options = (value for value in self.options.values() if isinstance(value, str))
        nodes = (*self.nodes, *([self.witness] if self.witness else []))
        remember_more([*(node.url for node in nodes), *self.sinks, *options, *named])

    def encode(self) -> str:
        """One line of JSON, with the nodes' passwords: for a pipe, never for a file or a log."""
        return msgspec.json.encode(self, enc_hook=str).decode()

    @classmethod
    def decode(cls, text: str) -> Config:
        """The config that `encode` wrote."""
        return msgspec.json.decode(text, type=cls, dec_hook=lambda kind, value: kind(value))
