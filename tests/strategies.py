"""Random valid topologies and alive-sets for hypothesis."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from ppa_core.topology import Edge, Input, Operator, Partitioning, Topology

quick = settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])

_RATES = st.one_of(st.sampled_from([0.0, 1.0, 2.0, 1000.0]), st.floats(0.01, 10_000))
_WEIGHTS = st.one_of(st.sampled_from([0.0, 1.0, 4.0]), st.floats(0.01, 100))
_SELECTIVITIES = st.one_of(st.sampled_from([0.0, 0.5, 1.0]), st.floats(0.01, 3))


@dataclass(frozen=True)
class Case:
    """A topology and the numbers of the tasks that are alive."""

    topology: Topology
    alive: frozenset[int]


@st.composite
def topologies(draw: st.DrawFn, max_operators: int = 6, max_tasks: int = 4, plain: bool = False) -> Topology:
    """Valid topologies with joins, shared operators, several sinks and isolated operators, numbered in any order.

    Some have rates, weights or selectivities of 0, external sources, measured rates; `plain` ones have none of these.
    """
    count = draw(st.integers(1, max_operators))
    sizes = [draw(st.integers(1, max_tasks)) for _ in range(count)]
    operators, edges = [], []
    for i, size in enumerate(sizes):
        feeding = sorted(draw(st.sets(st.integers(0, i - 1), max_size=3))) if i else []
        coming = [Edge(f"O{up}", f"O{i}", draw(_partitionings(sizes[up], size))) for up in feeding]
        operators.append(draw(_inner(f"O{i}", size, plain) if coming else _sources(f"O{i}", size, plain)))
        edges += coming
    starved = {edge.target for edge in edges if _starved(edge, sizes, {o.name: o for o in operators})}
    operators = [Operator(o.name, o.tasks, input=o.input) if o.name in starved else o for o in operators]
    topology = Topology("random", tuple(draw(st.permutations(operators))), tuple(draw(st.permutations(edges))))
    return topology if plain else Topology("random", topology.operators, topology.edges, draw(_measured(topology)))


@st.composite
def cases(draw: st.DrawFn, max_operators: int = 6, max_tasks: int = 4, plain: bool = False) -> Case:
    """A topology with a random alive-set; most tasks are alive in most of them."""
    topology = draw(topologies(max_operators, max_tasks, plain))
    chosen = draw(st.frozensets(st.integers(0, len(topology.tasks) - 1)))
    everything = frozenset(range(len(topology.tasks)))
    return Case(topology, chosen if draw(st.booleans()) else everything - chosen)


def _partitionings(n1: int, n2: int) -> st.SearchStrategy[Partitioning]:
    narrow = Partitioning.ONE_TO_ONE if n1 == n2 else Partitioning.MERGE if n1 > n2 else Partitioning.SPLIT
    return st.sampled_from([Partitioning.FULL, narrow])


@st.composite
def _sources(draw: st.DrawFn, name: str, tasks: int, plain: bool) -> Operator:
    rates = st.floats(1, 1000) if plain else _RATES
    rate = draw(st.lists(rates, min_size=tasks, max_size=tasks))
    return Operator(name, tasks, rate=tuple(rate), external=not plain and draw(st.booleans()))


@st.composite
def _inner(draw: st.DrawFn, name: str, tasks: int, plain: bool) -> Operator:
    joins = draw(st.sampled_from(Input))
    if plain:
        return Operator(name, tasks, input=joins)
    weights = draw(st.one_of(st.just([]), st.lists(_WEIGHTS, min_size=tasks, max_size=tasks)))
    return Operator(name, tasks, input=joins, selectivity=draw(_SELECTIVITIES), weights=tuple(weights) if any(weights) else ())


def _starved(edge: Edge, sizes: list[int], operators: dict[str, Operator]) -> bool:
    """Whether weights of 0 leave an upstream task of a split without any target, which a topology may not have."""
    weights = operators[edge.target].weights
    if edge.partitioning is not Partitioning.SPLIT or not weights:
        return False
    n1, n2 = sizes[int(edge.source[1:])], len(weights)
    return any(not any(weights[j] for j in range(n2) if j * n1 // n2 == i) for i in range(n1))


def _measured(topology: Topology) -> st.SearchStrategy[dict[str, float]]:
    links = [f"{topology.tasks[u]}>{topology.tasks[d]}" for edge in topology.edges for u, d in topology.links(edge)]
    if not links:
        return st.just({})
    return st.one_of(st.just({}), st.dictionaries(st.sampled_from(links), _RATES, max_size=6))
