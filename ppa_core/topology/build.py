"""A fluent way to write a topology in Python."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ppa_core.topology.model import Edge, Input, Operator, Partitioning, Topology

Numbers = float | Sequence[float]


@dataclass(frozen=True)
class Build:
    """A topology in the making; every call returns a longer one, `done` validates and returns the topology.

    >>> topology = (
    ...     Build("demo")
    ...     .source("O1", 4, rate=1000)
    ...     .source("O2", 2, rate=[800, 1200])
    ...     .operator("O3", 4, {"O1": "one-to-one", "O2": "split"}, join=True, selectivity=0.5)
    ...     .done()
    ... )
    >>> len(topology.tasks)
    10
    """

    name: str
    operators: tuple[Operator, ...] = ()
    edges: tuple[Edge, ...] = ()

    def source(self, name: str, tasks: int, rate: Numbers, *, external: bool = False) -> Build:
        """A source of `tasks` tasks; `rate` is tuples/s of each, one number or one per task."""
        rates = (float(rate),) * tasks if isinstance(rate, int | float) else tuple(map(float, rate))
        return self._with(Operator(name, tasks, rate=rates, external=external))

    def operator(
        self,
        name: str,
        tasks: int,
        inputs: Mapping[str, str | Partitioning],
        *,
        join: bool = False,
        selectivity: float = 1.0,
        weights: Sequence[float] = (),
    ) -> Build:
        """An operator fed by `inputs`: the upstream operators and how their output is partitioned."""
        operator = Operator(
            name,
            tasks,
            input=Input.CORRELATED if join else Input.INDEPENDENT,
            selectivity=float(selectivity),
            weights=tuple(map(float, weights)),
        )
        return self._with(operator, *(Edge(up, name, Partitioning(kind)) for up, kind in inputs.items()))

    def done(self, measured: Mapping[str, float] | None = None) -> Topology:
        """The topology, validated."""
        return Topology(self.name, self.operators, self.edges, dict(measured or {}))

    def _with(self, operator: Operator, *edges: Edge) -> Build:
        return Build(self.name, (*self.operators, operator), (*self.edges, *edges))
