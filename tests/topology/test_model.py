"""The model: what a topology knows about itself, and what it refuses."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given

from ppa_core.errors import RequestError, TopologyError
from ppa_core.topology import Build, Edge, Input, Operator, Partitioning, Topology, derive, dumps, loads
from ppa_core.topology.operators import MAX_TASKS
from tests.strategies import quick, topologies


def small() -> Build:
    return Build("small").source("A", 4, rate=10).operator("B", 2, {"A": "merge"}).operator("C", 5, {"B": "split"})


def links(n1: int, n2: int, kind: str) -> list[tuple[int, int]]:
    """The links of an edge of this kind, both sides counted from 0."""
    topology = Build("links").source("A", n1, rate=1).operator("B", n2, {"A": kind}).done()
    return [(up, down - n1) for up, down in topology.links(topology.edges[0])]


def test_tasks_are_numbered_in_the_order_of_the_operators() -> None:
    topology = small().done()
    assert topology.tasks[:5] == ("A.1", "A.2", "A.3", "A.4", "B.1")
    assert topology.index["C.5"] == 10
    assert topology.span["B"] == range(4, 6)
    assert topology.ids([5, 0]) == ("A.1", "B.2")
    assert topology.numbers(["B.2", "A.1"]) == {0, 5}


def test_sources_sinks_and_order_follow_the_edges_not_the_list() -> None:
    operators = small().operators[::-1]
    topology = Topology("reversed", operators, small().edges)
    assert (topology.sources, topology.sinks, topology.order) == (("A",), ("C",), ("A", "B", "C"))
    assert topology.tasks[0] == "C.1"


def test_an_unknown_task_is_refused_with_the_known_ones() -> None:
    with pytest.raises(RequestError, match=r"task 'B\.3': not in topology 'small'; its tasks are A\.1 … A\.4, B\.1 … B\.2"):
        small().done().numbers(["B.3"])


def test_links_of_each_partitioning() -> None:
    assert links(3, 3, "one-to-one") == [(0, 0), (1, 1), (2, 2)]
    assert links(5, 2, "merge") == [(0, 0), (1, 0), (2, 0), (3, 1), (4, 1)]
    assert links(2, 5, "split") == [(0, 0), (0, 1), (0, 2), (1, 3), (1, 4)]
    assert links(2, 2, "full") == [(0, 0), (0, 1), (1, 0), (1, 1)]


@quick
@given(topologies())
def test_every_task_of_a_valid_topology_has_input_and_output_where_its_operator_has(topology: Topology) -> None:
    for edge in topology.edges:
        pairs = list(topology.links(edge))
        assert {up for up, _ in pairs} == set(topology.span[edge.source])
        assert {down for _, down in pairs} == set(topology.span[edge.target])
        assert len(set(pairs)) == len(pairs)


@quick
@given(topologies())
def test_upstream_comes_before_downstream(topology: Topology) -> None:
    place = {name: i for i, name in enumerate(topology.order)}
    assert len(place) == len(topology.operators)
    assert all(place[edge.source] < place[edge.target] for edge in topology.edges)


def test_equal_topologies_have_equal_hashes_and_measured_rates_make_a_difference() -> None:
    measured = {"A.1>B.1": 3.0}
    assert small().done() == small().done()
    assert hash(small().done(measured)) == hash(small().done(dict(measured)))
    assert small().done(measured) != small().done()


def test_measured_rates_are_a_copy_that_cannot_be_changed_and_the_topology_can_still_be_copied() -> None:
    measured = {"A.1>B.1": 3.0}
    topology = small().done()
    topology = Topology(topology.name, topology.operators, topology.edges, measured)
    measured["A.1>B.1"] = 4.0
    assert topology.measured == {"A.1>B.1": 3.0}
    with pytest.raises(TypeError):
        topology.measured["A.1>B.1"] = 5.0  # type: ignore[index]
    for again in (pickle.loads(pickle.dumps(topology)), copy.deepcopy(topology), replace(topology), loads(dumps(topology))):
        assert again == topology
        assert hash(again) == hash(topology)


def test_a_build_is_not_changed_by_what_is_built_on_it_and_takes_linear_time() -> None:
    base = Build("x").source("A", 1, np.float32(1))  # type: ignore[arg-type]
    left, right = base.operator("L", np.int64(2), {"A": "full"}), base.operator("R", 3, {"A": "split"})  # type: ignore[arg-type]
    assert [operator.name for operator in base.operators] == ["A"]
    assert [operator.tasks for operator in left.operators] == [1, 2]
    assert [edge.target for edge in right.edges] == ["R"]
    build = base
    for i in range(50_000):
        build = build.source(f"B{i}", 1, 1)
    assert len(build.done().operators) == 50_001


def test_rates_that_overflow_are_refused_when_the_topology_is_made() -> None:
    build = Build("x").source("A", 1, 1e15)
    for i in range(19):
        build = build.operator(f"B{i}", 1, {f"B{i - 1}" if i else "A": "full"}, selectivity=1e15)
    with pytest.raises(TopologyError, match="operator 'B18': its rate overflows; check the selectivities upstream"):
        build.done()


@quick
@given(topologies())
def test_no_topology_that_exists_has_a_rate_that_overflows(topology: Topology) -> None:
    assert np.isfinite(derive(topology).output).all()


def test_a_chain_of_thousands_of_operators_is_validated() -> None:
    operators = (Operator("O0", 1, rate=(1.0,)), *(Operator(f"O{i}", 1) for i in range(1, 5000)))
    edges = tuple(Edge(f"O{i}", f"O{i + 1}", Partitioning.FULL) for i in range(4999))
    assert Topology("long", operators, edges).order[-1] == "O4999"


WRONG: dict[str, tuple[Callable[[], object], str]] = {
    "no operators": (lambda: Build("x").done(), "operators: the list is empty"),
    "no tasks": (lambda: Build("x").source("A", 0, 1).done(), r"operators\[0\] 'A'.tasks: 0 tasks"),
    "too many tasks": (lambda: Build("x").source("A", MAX_TASKS + 1, 1).done(), r"operators\[0\] 'A'.tasks: 1000001 tasks"),
    "too many in all": (
        lambda: Build("x").source("A", MAX_TASKS, 1).source("B", 1, 1).done(),
        "operators: 1000001 tasks in all",
    ),
    "same name": (lambda: Build("x").source("A", 1, 1).source("A", 1, 1).done(), r"operators\[1\] 'A': another"),
    "empty name": (lambda: Build("x").source("", 1, 1).done(), r"operators\[0\].name: a name must have 1 to 100"),
    "comma in name": (lambda: Build("x").source("A,B", 1, 1).done(), r"operators\[0\].name: 'A,B' contains a character"),
    "unprintable topology name": (
        lambda: Build("a\x00b").source("A", 1, 1).done(),
        r"name: 'a\\x00b' contains a character",
    ),
    "too few rates": (lambda: Build("x").source("A", 3, [1, 2]).done(), "'A'.rate: 2 rates for 3 tasks"),
    "infinite rate": (lambda: Build("x").source("A", 1, float("inf")).done(), r"'A'.rate\[0\]: inf is not a number"),
    "selectivity not a number": (
        lambda: Build("x").source("A", 1, 1).operator("B", 1, {"A": "full"}, selectivity=float("nan")).done(),
        "'B'.selectivity: nan is not a number",
    ),
    "weights all 0": (
        lambda: Build("x").source("A", 1, 1).operator("B", 2, {"A": "full"}, weights=[0, 0]).done(),
        "'B'.weights: all weights are 0",
    ),
    "split into weights 0": (
        lambda: Build("x").source("A", 2, 1).operator("B", 4, {"A": "split"}, weights=[1, 1, 0, 0]).done(),
        r"edges\[0\] 'A'->'B': all tasks of 'B' fed by A.2 have weight 0",
    ),
    "unknown operator": (
        lambda: Build("x").source("A", 1, 1).operator("B", 1, {"Z": "full"}).done(),
        r"edges\[0\] 'Z'->'B'.from: unknown operator 'Z'",
    ),
    "feeds itself": (lambda: Build("x").operator("A", 1, {"A": "full"}).done(), "cannot feed itself"),
    "cycle": (
        lambda: Build("x").operator("A", 1, {"B": "full"}).operator("B", 1, {"A": "full"}).done(),
        "edges: cycle among 'A', 'B'",
    ),
    "merge into more": (
        lambda: Build("x").source("A", 1, 1).operator("B", 2, {"A": "merge"}).done(),
        r"edges\[0\] 'A'->'B'.partitioning: merge needs more tasks upstream than downstream, but there are 1 and 2",
    ),
    "split into fewer": (
        lambda: Build("x").source("A", 2, 1).operator("B", 1, {"A": "split"}).done(),
        "split needs fewer tasks upstream than downstream, but there are 2 and 1",
    ),
    "measured on no link": (lambda: small().done({"A.4>B.1": 1.0}), r"measured\['A.4>B.1'\]: A.4 sends nothing to B.1"),
    "measured on no edge": (lambda: small().done({"A.1>C.1": 1.0}), "A.1 sends nothing to C.1"),
    "measured on no task": (lambda: small().done({"A.1>B.7": 1.0}), "not a substream"),
    "partitioning that is none": (
        lambda: Build("x").source("A", 1, 1).operator("B", 1, {"A": "bogus"}),
        "edge 'A'->'B'.partitioning: 'bogus' is not one of one-to-one, split, merge, full",
    ),
    "partitioning as text": (
        lambda: Topology("x", (Operator("A", 1, (1.0,)), Operator("B", 1)), (Edge("A", "B", "full"),)),  # type: ignore[arg-type]
        r"edges\[0\] 'A'->'B'.partitioning: 'full' is not one of",
    ),
    "tasks not whole": (lambda: Build("x").source("A", 2.0, 1), "operator 'A'.tasks: 2.0 is not a whole number"),  # type: ignore[arg-type]
    "tasks as text": (lambda: Build("x").operator("A", "2", {}), "operator 'A'.tasks: '2' is not a whole"),  # type: ignore[arg-type]
    "tasks true": (lambda: Topology("x", (Operator("A", True, (1.0,)),), ()), "'A'.tasks: True is not a whole number"),
    "rate as text": (lambda: Build("x").source("A", 1, "9"), "operator 'A'.rate: '9' is not a number"),  # type: ignore[arg-type]
    "rate none": (lambda: Build("x").source("A", 1, None), "operator 'A'.rate: None is not a list"),  # type: ignore[arg-type]
    "rate beyond floats": (lambda: Build("x").source("A", 1, 10**400), "operator 'A'.rate: the number is too large"),
    "rate as text in a list": (lambda: Topology("x", (Operator("A", 1, ("9",)),), ()), r"'A'.rate\[0\]: 9 is not a number"),  # type: ignore[arg-type]
    "name not a text": (lambda: Build("x").source(5, 1, 1).done(), r"operators\[0\].name: a name must have"),  # type: ignore[arg-type]
    "topology name not a text": (lambda: Build(5).source("A", 1, 1).done(), "name: 5 is not a string"),  # type: ignore[arg-type]
    "measured as text": (lambda: small().done({"A.1>B.1": "1"}), r"measured\['A.1>B.1'\]: '1' is not"),  # type: ignore[dict-item]
    "measured no substream": (lambda: small().done({3: 1.0}), r"measured\[3\]: not a substream"),  # type: ignore[dict-item]
    "measured below 0": (lambda: small().done({"A.1>B.1": -1.0}), r"measured\['A.1>B.1'\]: -1.0 is not a number"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_refused_with_place_and_reason(wrong: str) -> None:
    build, message = WRONG[wrong]
    with pytest.raises(TopologyError, match=message):
        build()


@pytest.mark.parametrize(
    ("operator", "message"),
    [
        (Operator("A", 1), "needs a 'rate'"),
        (Operator("A", 1, rate=(1.0,), selectivity=0.5), "remove the selectivity"),
        (Operator("A", 2, rate=(1.0, 1.0), weights=(1.0, 2.0)), "give a list as its 'rate'"),
        (Operator("A", 1, rate=(1.0,), input=Input.CORRELATED), "no input to join"),
    ],
)
def test_a_source_without_a_rate_or_with_what_only_others_have_is_refused(operator: Operator, message: str) -> None:
    with pytest.raises(TopologyError, match=message):
        Topology("x", (operator,), ())


@pytest.mark.parametrize(
    ("operator", "message"),
    [
        (Operator("B", 1, rate=(1.0,)), "only a source has a rate"),
        (Operator("B", 1, external=True), "only a source can be external"),
    ],
)
def test_what_only_a_source_may_have_is_refused_elsewhere(operator: Operator, message: str) -> None:
    with pytest.raises(TopologyError, match=message):
        Topology("x", (Operator("A", 1, rate=(1.0,)), operator), (Edge("A", "B", Partitioning.FULL),))
