"""`RunConfig`: the options of a run."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from pathlib import Path
from types import NoneType
from typing import Any

from ppa_core.errors import RequestError
from ppa_core.fidelity import Metric
from ppa_core.home import FOLDER
from ppa_core.planners import DEFAULT, PLANNERS
from ppa_core.safety.names import check_run
from ppa_core.terminal.logs import LEVELS

_TEXTS = ("master", "monitor_url")
_PATHS = ("output", "nodes_file")
_SWITCHES = ("standby_driver", "trusted_network", "monitor", "patched_redis")
_SHOWN = 200
"""Characters of a refused value that a message shows."""
_FROM_0 = ("budget", "replan_every")
_FROM_1 = ("checkpoint_every", "sync_every", "primaries", "standbys", "racks", "memory", "partitions")


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """The options of a run: those of the command `run`, with the same defaults. An invalid value raises BadInput."""

    options: Mapping[str, Any] = field(default_factory=dict)
    """Arguments of the pipeline's function, such as `rate`, `window` and `batch_seconds` of the built-in queries."""
    budget: int = 0
    """Maximum number of replicas."""
    planner: str = DEFAULT
    """The planner that chooses the tasks to replicate."""
    metric: str = Metric.OF.value
    """The metric that the planner maximises: `of` or `ic`."""
    batches: int | None = None
    """Stop after this many batches; None runs until stopped."""
    sinks: Sequence[str] = ()
    """Where outputs go: `jsonl:FOLDER`, `parquet:FOLDER`, `redis://HOST:PORT#KEY`, `console`."""
    output: str | Path | None = None
    """Folder of the run; None uses a temporary folder that is deleted when the run ends."""
    name: str | None = None
    """Name of the run. With the same nodes and output folder, a run of that name is resumed."""
    nodes_file: str | Path | None = None
    """JSON file with the nodes; None starts embedded nodes: `primaries`, `standbys`, `racks`, `memory` (MB each)."""
    primaries: int = 4
    standbys: int = 4
    racks: int = 2
    memory: int = 1024
    deadline: float | None = None
    """Seconds after the end of its interval by which a batch has an output, tentative if it must be; None: two intervals."""
    standby_driver: bool = False
    """Keep a second driver ready, which takes over within seconds if the driver dies or hangs."""
    checkpoint_every: int = 15
    """Batches between two checkpoints of a task."""
    sync_every: int = 1
    """Batches between two synchronisations of a replica."""
    replan_every: int = 0
    """Batches between two plans from the measured rates; 0: never replan."""
    replan_gain: float = 0.02
    """Minimum gain in OF for which a new plan is applied."""
    partitions: int = 2
    """Number of Spark partitions."""
    master: str | None = None
    """Spark master; None runs Spark on this machine."""
    trusted_network: bool = False
    """Allow a Spark cluster without authentication. Only for a network that nobody else can reach."""
    monitor: bool = False
    """Send events to the monitor, and accept commands from there."""
    monitor_url: str | None = None
    """The monitor's Redis; None uses PPA_MONITOR_URL, or else the embedded server in `monitor_directory`."""
    monitor_directory: str | Path = FOLDER / "monitor"
    patched_redis: bool = False
    """Your own Redis servers have the security fixes listed in docs/cluster.md, although their version is older."""

    log_level: str = "warning"
    """Minimum level of the log records: `debug`, `info`, `warning` or `error`."""

    def __post_init__(self) -> None:
        _check_sinks(self.sinks)
        _check_options(self.options)
        for name in _TEXTS:
            _check_kind(name, getattr(self, name), (str, NoneType), "a string, or None")
        for name in _PATHS:
            _check_kind(name, getattr(self, name), (str, Path, NoneType), "a path, or None")
        for name in _SWITCHES:
            _check_kind(name, getattr(self, name), (bool,), "True or False")
        _check_kind("monitor_directory", self.monitor_directory, (str, Path), "a path")
        object.__setattr__(self, "sinks", tuple(self.sinks))
        object.__setattr__(self, "options", dict(self.options))
        object.__setattr__(self, "monitor_directory", Path(self.monitor_directory))
        for name in _FROM_0:
            _check_whole(name, getattr(self, name), 0)
        for name in _FROM_1:
            _check_whole(name, getattr(self, name), 1)
        if self.batches is not None:
            _check_whole("batches", self.batches, 1)
        _check_number("replan_gain", self.replan_gain)
        if self.deadline is not None:
            _check_number("deadline", self.deadline)
            if not self.deadline:
                raise RequestError("deadline", "0 is too small; it must be more than 0 seconds")
        if self.standby_driver and (self.master or "").startswith("spark://"):
            raise RequestError("standby_driver", "not with a Spark cluster, whose executors it would need; remove master")
        _check_choice("planner", self.planner, PLANNERS)
        _check_choice("metric", self.metric, [metric.value for metric in Metric])
        _check_choice("log_level", self.log_level, LEVELS)
        if self.name is not None:
            check_run(self.name)

    @property
    def monitored(self) -> bool:
        """Whether the run is monitored."""
        return self.monitor or self.monitor_url is not None


def _check_options(options: object) -> None:
    if not isinstance(options, Mapping):
        raise RequestError("options", f"{_short(options)} is not a mapping of names to values")
    for name in options:
        if not isinstance(name, str):
            raise RequestError("options", f"the name {_short(name)} is not a string")


def _check_sinks(sinks: object) -> None:
    if isinstance(sinks, str):
        raise RequestError("sinks", f"a string; write it as a list: [{sinks!r}]")
    if not isinstance(sinks, Sequence) or not all(isinstance(sink, str) for sink in sinks):
        raise RequestError("sinks", f"{_short(sinks)} is not a list of strings")


def _check_kind(name: str, value: object, kinds: tuple[type, ...], expected: str) -> None:
    if not isinstance(value, kinds):
        raise RequestError(name, f"{_short(value)} is not {expected}")


def _check_choice(name: str, value: object, choices: Collection[str]) -> None:
    if not isinstance(value, str) or value not in choices:
        raise RequestError(name, f"unknown {name.replace('_', ' ')} {_short(value)}; choose one of {', '.join(choices)}")


def _check_number(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value) or value < 0:
        raise RequestError(name, f"{value!r} is not a number of at least 0")


def _check_whole(name: str, value: object, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise RequestError(name, f"{value!r} is not a whole number of at least {least}")


def _short(value: object) -> str:
    """A value as it is written in Python, for a message."""
    return repr(value)[:_SHOWN]
