"""A fluent builder for topologies in Python."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from operator import index
from typing import Any

from ppa_core.errors import TopologyError
from ppa_core.topology.model import Topology
from ppa_core.topology.operators import Edge, Input, Operator, Partitioning

Numbers = float | Sequence[float]


@dataclass(frozen=True, eq=False, repr=False)
class Build:
    """Builds a topology: every call returns a new builder with one more operator; `done` validates and returns the topology.

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
    _last: _Part | None = None  # a linked list, so that n calls take linear time

    @property
    def operators(self) -> tuple[Operator, ...]:
        return tuple(part.operator for part in self._parts())

    @property
    def edges(self) -> tuple[Edge, ...]:
        return tuple(edge for part in self._parts() for edge in part.edges)

    def source(self, name: str, tasks: int, rate: Numbers, *, external: bool = False) -> Build:
        """A source of `tasks` tasks; `rate` is tuples/s of each, one number or one per task."""
        count = _whole(f"operator {name!r}.tasks", tasks)
        place = f"operator {name!r}.rate"
        rates = (_number(place, rate),) * count if isinstance(rate, Real) else _numbers(place, rate)
        return self._with(Operator(name, count, rate=rates, external=external))

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
            _whole(f"operator {name!r}.tasks", tasks),
            input=Input.CORRELATED if join else Input.INDEPENDENT,
            selectivity=_number(f"operator {name!r}.selectivity", selectivity),
            weights=_numbers(f"operator {name!r}.weights", weights),
        )
        return self._with(operator, *(Edge(up, name, _partitioning(up, name, kind)) for up, kind in inputs.items()))

    def done(self, measured: Mapping[str, float] | None = None) -> Topology:
        """The topology, validated."""
        rates = {key: _number(f"measured[{key!r}]", value) for key, value in (measured or {}).items()}
        return Topology(self.name, self.operators, self.edges, rates)

    def _with(self, operator: Operator, *edges: Edge) -> Build:
        return Build(self.name, _Part(operator, edges, self._last))

    def _parts(self) -> Iterator[_Part]:
        """The operators in the order in which they were added."""
        found, part = [], self._last
        while part is not None:
            found.append(part)
            part = part.before
        return reversed(found)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class _Part:
    """An operator with the edges to it, and what was added before it."""

    operator: Operator
    edges: tuple[Edge, ...]
    before: _Part | None


def _whole(place: str, value: Any) -> int:
    """A whole number of any kind as an int."""
    try:
        if not isinstance(value, bool):
            return index(value)
    except TypeError:
        pass
    raise TopologyError(place, f"{repr(value)[:60]} is not a whole number")


def _number(place: str, value: Any) -> float:
    """A number of any kind as a float."""
    try:
        if not isinstance(value, bool) and isinstance(value, Real):
            return float(value)
    except OverflowError:
        raise TopologyError(place, "the number is too large") from None
    raise TopologyError(place, f"{repr(value)[:60]} is not a number")


def _numbers(place: str, values: Any) -> tuple[float, ...]:
    try:
        items = tuple(values)
    except TypeError:
        raise TopologyError(place, f"{repr(values)[:60]} is not a list of numbers") from None
    return tuple(_number(place, value) for value in items)


def _partitioning(source: str, target: str, kind: str | Partitioning) -> Partitioning:
    try:
        return Partitioning(kind)
    except ValueError:
        place = f"edge {source!r}->{target!r}.partitioning"
        raise TopologyError(place, f"{repr(kind)[:60]} is not one of {', '.join(Partitioning)}") from None
