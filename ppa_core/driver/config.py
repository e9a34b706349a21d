"""What a driver process runs, and where: one JSON document through its standard input."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from ppa_core.driver.records import Settings
from ppa_core.placement.nodes import Node
from ppa_core.safety.masking import is_secret, remember_more
from ppa_core.safety.names import check_run


@dataclass(frozen=True)
class Config:
    """What a driver runs, and where."""

    query: str
    options: dict[str, Any] = field(repr=False)
    """With passwords, if there are any."""
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
    """Batches whose outputs stay in the folder; None: all."""
    input: str = ""
    """The run whose seals live sources have, if not this one's: for two runs over the same input."""
    owner: str = field(default="", repr=False)
    """Who holds the run's lease, over all drivers that it starts; none where nobody else knows the nodes."""
    detailed: bool = False
    """Whether events include every task, every heartbeat and Spark's progress: a monitor wants that."""
    trusted_network: bool = False
    """Whether a Spark cluster may be used that has no authentication."""
    log_level: str = "warning"
    """Log records of this level and above come out as lines; standard error has those of `info` at least."""

    def __post_init__(self) -> None:
        check_run(self.run_id)
        if self.input:
            check_run(self.input)

    def hide_passwords(self) -> None:
        """Hide from now on, in whatever this process logs or prints, the passwords that are in here."""
        named = (f"?password={value}" for name, value in self.options.items() if is_secret(name))
        options = (value for value in self.options.values() if isinstance(value, str))
        remember_more([*(node.url for node in self.nodes), *self.sinks, *options, *named])

    def encode(self) -> str:
        """One line of JSON, with the nodes' passwords: for a pipe, never for a file or a log."""
        return msgspec.json.encode(self, enc_hook=str).decode()

    @classmethod
    def decode(cls, text: str) -> Config:
        """The config that `encode` wrote."""
        return msgspec.json.decode(text, type=cls, dec_hook=lambda kind, value: kind(value))
