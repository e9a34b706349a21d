"""Derived rates: the rules of the topology file, by hand and against a slow reference."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given

from ppa_core.errors import TopologyError
from ppa_core.topology import Build, Topology, derive
from tests.reference import Reference
from tests.strategies import quick, topologies


def outputs(topology: Topology, operator: str) -> list[float]:
    return [float(derive(topology).output[i]) for i in topology.span[operator]]


def test_full_spreads_every_upstream_task_by_the_weights() -> None:
    topology = Build("x").source("A", 2, [10, 30]).operator("B", 2, {"A": "full"}, weights=[3, 1]).done()
    assert outputs(topology, "B") == [30, 10]
    assert list(derive(topology).substreams()) == [(0, 2, 7.5), (0, 3, 2.5), (1, 2, 22.5), (1, 3, 7.5)]


def test_split_shares_by_the_weights_among_the_tasks_of_one_upstream_task() -> None:
    topology = Build("x").source("A", 2, [10, 30]).operator("B", 4, {"A": "split"}, weights=[4, 1, 1, 2]).done()
    assert outputs(topology, "B") == [8, 2, 10, 20]


def test_merge_and_one_to_one_send_everything_whatever_the_weights() -> None:
    build = Build("x").source("A", 3, [1, 2, 4]).operator("B", 2, {"A": "merge"}, weights=[9, 1])
    topology = build.operator("C", 2, {"B": "one-to-one"}, weights=[1, 9]).done()
    assert outputs(topology, "B") == outputs(topology, "C") == [3, 4]


def test_selectivity_scales_the_sum_of_all_input_streams_of_joins_too() -> None:
    build = Build("x").source("A", 1, 10).source("B", 1, 20)
    assert outputs(build.operator("C", 1, {"A": "full", "B": "full"}, join=True, selectivity=0.1).done(), "C") == [3]


def test_an_operator_that_feeds_two_sends_its_whole_output_to_both() -> None:
    topology = Build("x").source("A", 1, 10).operator("B", 1, {"A": "full"}).operator("C", 1, {"A": "full"}).done()
    assert outputs(topology, "B") == outputs(topology, "C") == [10]


def test_measured_rates_stand_in_place_of_derived_ones_and_flow_on() -> None:
    build = Build("x").source("A", 2, 10).operator("B", 2, {"A": "full"}).operator("C", 4, {"B": "split"})
    topology = build.operator("D", 2, {"C": "merge"}).done({"A.1>B.1": 7, "B.1>C.2": 1, "C.4>D.2": 0})
    assert outputs(topology, "B") == [12, 10]
    assert outputs(topology, "C") == [6, 1, 5, 5]
    assert outputs(topology, "D") == [7, 5]


def test_weights_near_the_smallest_number_still_add_up() -> None:
    topology = Build("x").source("A", 1, 0.01).operator("B", 2, {"A": "split"}, weights=[5e-324, 5e-324]).done()
    assert outputs(topology, "B") == [0.005, 0.005]


def test_a_rate_that_overflows_is_refused_at_its_operator() -> None:
    build = Build("x").source("A", 1, 1e15)
    for i in range(30):
        build = build.operator(f"B{i}", 1, {f"B{i - 1}" if i else "A": "full"}, selectivity=1e15)
    with pytest.raises(TopologyError, match="operator 'B18': its rate overflows"):
        derive(build.done())


def test_the_rates_cannot_be_changed() -> None:
    rates = derive(Build("x").source("A", 1, 1).done())
    with pytest.raises(ValueError, match="read-only"):
        rates.output[0] = 2


@quick
@given(topologies())
def test_rates_equal_the_slow_reference(topology: Topology) -> None:
    rates, slow = derive(topology), Reference(topology)
    assert list(rates.input) == pytest.approx([slow.input[task] for task in topology.tasks])
    assert list(rates.output) == pytest.approx([slow.output[task] for task in topology.tasks])
    wanted = {(up, task): rate for task, streams in slow.streams.items() for stream in streams for up, rate in stream.items()}
    assert {(topology.tasks[u], topology.tasks[d]): rate for u, d, rate in rates.substreams()} == pytest.approx(wanted)


@quick
@given(topologies(plain=True))
def test_nothing_is_lost_on_an_edge(topology: Topology) -> None:
    rates = derive(topology)
    for (source, target), flow in rates.flows.items():
        sent = rates.output[list(topology.span[source])].sum()
        assert np.sum(flow.received(topology.by_name[target].tasks)) == pytest.approx(sent)
