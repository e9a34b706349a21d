"""What the collector is told, and what it knows from before.

The runtime's own types fit these protocols, so that nothing of Spark is loaded for them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from monitoring.records import Incident, Totals

Accuracy = Callable[[Any, Any], float | None]
"""How much of an accurate output a tentative one has, from 0 to 1, None if there is nothing to compare: `Query.accuracy`."""


class Published(Protocol):
    """A published output, as `ppa_core.driver.host.Record`."""

    @property
    def batch(self) -> int: ...
    @property
    def revision(self) -> int: ...
    @property
    def status(self) -> str:
        """accurate, tentative or correction."""

    @property
    def of(self) -> float: ...
    @property
    def missing(self) -> tuple[str, ...]: ...
    @property
    def table(self) -> Any: ...
    @property
    def at(self) -> float: ...


class Noted(Protocol):
    """Something that happened, as `ppa_core.driver.host.Note`."""

    @property
    def kind(self) -> str: ...
    @property
    def at(self) -> float: ...
    @property
    def batch(self) -> int: ...
    @property
    def figures(self) -> Mapping[str, object]: ...


@dataclass(frozen=True)
class Before:
    """What the monitor knows of the same run from the driver before this one."""

    incident: Incident | None = None
    totals: Totals = field(default_factory=Totals)
