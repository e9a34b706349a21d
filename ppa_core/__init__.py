"""PPA: passive and partially active fault tolerance for stream processing.

| name | |
|---|---|
| `Pipeline` | a pipeline: `.source(…)`, `.operator(…)` |
| `operators` | the built-in steps: `operators.count`, `operators.top`, … |
| `Result` | the return value of your own steps |
| `open_files` | a directory of CSV, JSON-lines or Parquet files as a source |
| `run`, `RunConfig` | run a pipeline on Spark; its options |
| `read_sink` | read the outputs of a run back from a sink |
| `load_topology`, `plan` | load a topology file; choose the tasks to replicate |
| `PpaError`, `BadInput`, `Unavailable` | the base class of all errors; invalid input; something missing or not responding |

Each name is imported when it is first used: planning needs neither Spark nor Java.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ppa_core.application.config import RunConfig
    from ppa_core.application.running import run
    from ppa_core.errors import BadInput, PpaError, Unavailable
    from ppa_core.opening import open_topology as load_topology
    from ppa_core.pipeline import operators
    from ppa_core.pipeline.definition import Pipeline, Result
    from ppa_core.pipeline.sinks import read_sink
    from ppa_core.pipeline.sources.files import open_files
    from ppa_core.planners import plan

__version__ = "0.1.0"
__all__ = [
    "BadInput", "Pipeline", "PpaError", "Result", "RunConfig", "Unavailable", "load_topology", "open_files", "operators",
    "plan", "read_sink", "run",
]  # fmt: skip

_PLACES = {
    "BadInput": "ppa_core.errors:BadInput",
    "Pipeline": "ppa_core.pipeline.definition:Pipeline",
    "PpaError": "ppa_core.errors:PpaError",
    "Result": "ppa_core.pipeline.definition:Result",
    "RunConfig": "ppa_core.application.config:RunConfig",
    "Unavailable": "ppa_core.errors:Unavailable",
    "load_topology": "ppa_core.opening:open_topology",
    "open_files": "ppa_core.pipeline.sources.files:open_files",
    "operators": "ppa_core.pipeline.operators:",
    "plan": "ppa_core.planners:plan",
    "read_sink": "ppa_core.pipeline.sinks:read_sink",
    "run": "ppa_core.application.running:run",
}


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    place, _, attribute = _PLACES[name].partition(":")
    found = import_module(place)
    if attribute:
        found = getattr(found, attribute)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
