"""OF and IC against the paper's numbers, hand-computed ones and a slow reference."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ppa_core.fidelity import Compiled, Metric, compile_topology
from ppa_core.topology import Build, Edge, Operator, Partitioning, Topology, count, load_example
from tests.reference import internal_completeness, output_fidelity
from tests.strategies import Case, cases, quick, topologies


def value(topology: Topology, *failed: str, metric: Metric = Metric.OF) -> float:
    compiled = compile_topology(topology, metric)
    alive = np.ones(compiled.tasks, dtype=bool)
    alive[list(topology.numbers(failed))] = False
    return compiled.value(alive)


def masks(compiled: Compiled, case: Case) -> tuple[np.ndarray, np.ndarray]:
    """The alive-mask of a case, and one of a larger alive-set."""
    alive = compiled.mask(case.alive)
    more = alive.copy()
    more[::2] = True
    return alive, more


def independent_loss_model() -> Topology:
    return Build("loss").source("O1", 2, [1, 2]).source("O2", 2, [3, 2]).operator("O3", 1, {"O1": "full", "O2": "full"}).done()


def test_paper_join_loses_two_fifths() -> None:
    assert value(load_example("loss_model"), "O2.2") == pytest.approx(1 - 2 / 5, abs=1e-15)


def test_paper_independent_input_loses_a_quarter() -> None:
    assert value(independent_loss_model(), "O2.2") == pytest.approx(1 - 1 / 4, abs=1e-15)


def test_join_with_loss_on_both_sides_multiplies_what_is_left() -> None:
    assert value(load_example("loss_model"), "O1.1", "O2.2") == pytest.approx(2 / 3 * 3 / 5, abs=1e-15)


def test_internal_completeness_of_the_loss_model_by_hand() -> None:
    """Without failure: 3 + 5 read, 8 processed by O3. With O2.2 failed: 3 + 3 read, 6 processed; the join does not matter."""
    for topology in (load_example("loss_model"), independent_loss_model()):
        assert value(topology, "O2.2", metric=Metric.IC) == pytest.approx(12 / 16, abs=1e-15)


def test_internal_completeness_of_the_tree_by_hand() -> None:
    """16,000 at S and at O1, then 8,000, 4,000, 2,000. Without O2.1: a quarter of what O3 and O4 get is missing too."""
    without = 16_000 + 16_000 + 6_000 + 3_000 + 1_500
    assert value(load_example("tree"), "O2.1", metric=Metric.IC) == pytest.approx(without / 46_000, abs=1e-15)


def test_internal_completeness_is_blind_to_a_join_that_puts_out_nothing() -> None:
    topology = load_example("loss_model")
    assert value(topology, "O2.1", "O2.2") == 0.0
    assert value(topology, "O2.1", "O2.2", metric=Metric.IC) == pytest.approx(6 / 16, abs=1e-15)


def test_a_sink_counts_by_its_output_rate() -> None:
    topology = (
        Build("two").source("S", 1, 10).operator("A", 1, {"S": "full"}, selectivity=3).operator("B", 1, {"S": "full"}).done()
    )
    assert value(topology, "B.1") == pytest.approx(3 / 4)
    assert value(topology, "A.1") == pytest.approx(1 / 4)


def test_external_sources_are_alive_whatever_is_said() -> None:
    topology = load_example("q1")
    assert value(topology, *(f"servers.{n}" for n in range(1, 30))) == 1.0


def test_rates_measured_live_replace_the_derived_ones() -> None:
    build = Build("live").source("S", 2, 100).operator("A", 2, {"S": "full"})
    topology = build.done(measured={"S.1>A.1": 150, "S.2>A.1": 50, "S.1>A.2": 0, "S.2>A.2": 200})
    assert value(topology, "S.1", "A.2") == pytest.approx(50 / 400)
    assert value(topology, "S.1", "A.1") == pytest.approx(200 / 400)


def test_a_stream_without_any_tuples_weighs_its_substreams_equally() -> None:
    topology = Build("still").source("S", 4, 0).operator("A", 1, {"S": "merge"}).done()
    assert value(topology, "S.1") == pytest.approx(3 / 4)


@quick
@given(cases())
def test_both_metrics_equal_the_slow_reference(case: Case) -> None:
    for metric, slow in ((Metric.OF, output_fidelity), (Metric.IC, internal_completeness)):
        compiled = compile_topology(case.topology, metric)
        assert compiled.value(compiled.mask(case.alive)) == pytest.approx(slow(case.topology, case.alive), abs=1e-9)


@quick
@given(cases(), st.sampled_from(Metric))
def test_the_value_is_a_fraction_and_grows_with_the_alive_set(case: Case, metric: Metric) -> None:
    compiled = compile_topology(case.topology, metric)
    fewer, more = (compiled.value(mask) for mask in masks(compiled, case))
    assert 0 <= fewer <= 1
    assert fewer <= more + 1e-12
    assert more <= 1


@quick
@given(topologies(), st.sampled_from(Metric))
def test_all_alive_is_exactly_one(topology: Topology, metric: Metric) -> None:
    compiled = compile_topology(topology, metric)
    assert compiled.value(np.ones(compiled.tasks, dtype=bool)) == 1.0


@quick
@given(cases())
def test_fidelity_is_zero_without_a_covered_tree(case: Case) -> None:
    compiled = compile_topology(case.topology)
    if count(case.topology, case.alive) == 0:
        assert compiled.value(compiled.mask(case.alive)) == 0.0


@quick
@given(cases(plain=True))
def test_fidelity_is_positive_with_a_covered_tree_where_all_rates_are(case: Case) -> None:
    compiled = compile_topology(case.topology)
    assert (compiled.value(compiled.mask(case.alive)) > 0) == (count(case.topology, case.alive) > 0)


@quick
@given(cases(), st.sampled_from(Metric))
def test_a_batch_equals_single_values(case: Case, metric: Metric) -> None:
    compiled = compile_topology(case.topology, metric)
    columns = [*masks(compiled, case), ~compiled.mask(case.alive)]
    assert compiled.batch(np.stack(columns, axis=1)) == pytest.approx([compiled.value(column) for column in columns], abs=1e-14)


@quick
@given(cases(), st.sampled_from(Metric))
def test_gains_equal_the_differences_of_whole_values(case: Case, metric: Metric) -> None:
    compiled = compile_topology(case.topology, metric)
    alive = compiled.mask(case.alive)
    gains = compiled.gains(alive)
    for task in range(compiled.tasks):
        with_it, without = alive.copy(), alive.copy()
        with_it[task], without[task] = True, False
        assert gains[task] == pytest.approx(compiled.value(with_it) - compiled.value(without), abs=2e-12)


def test_gains_of_tasks_that_reach_a_join_twice_are_exact() -> None:
    """S.1 feeds both sides of the join, so alone it is worth 1/2 · 1/2: a slope would say 0."""
    topology = (
        Build("diamond")
        .source("S", 2, 1)
        .operator("A", 1, {"S": "full"})
        .operator("B", 1, {"S": "full"})
        .operator("J", 1, {"A": "full", "B": "full"}, join=True)
        .done()
    )
    compiled = compile_topology(topology)
    assert list(compiled.entangled) == [0, 1]
    alive = compiled.mask(topology.numbers(["A.1", "B.1", "J.1"]))
    assert compiled.gains(alive)[0] == pytest.approx(1 / 4)


def test_a_full_edge_of_thousands_of_tasks_is_compiled_without_its_links() -> None:
    """20,000 × 20,000 links would need 3 GB."""
    n = 20_000
    operators = (Operator("A", n, rate=(1.0,) * n), Operator("B", n))
    compiled = compile_topology(Topology("wide", operators, (Edge("A", "B", Partitioning.FULL),)))
    alive = np.ones(2 * n, dtype=bool)
    alive[: n // 2] = False
    assert compiled.value(alive) == pytest.approx(1 / 2)


def test_a_chain_of_thousands_of_operators_is_compiled() -> None:
    operators = (Operator("O0", 1, rate=(1.0,)), *(Operator(f"O{i}", 1) for i in range(1, 5000)))
    edges = tuple(Edge(f"O{i}", f"O{i + 1}", Partitioning.ONE_TO_ONE) for i in range(4999))
    compiled = compile_topology(Topology("long", operators, edges))
    alive = np.ones(5000, dtype=bool)
    assert compiled.value(alive) == 1.0
    alive[2500] = False
    assert compiled.value(alive) == 0.0


@quick
@given(cases(), st.sampled_from(list(Metric)))
def test_a_large_full_edge_with_measured_rates_is_valued_as_a_small_one(case: Case, metric: Metric) -> None:
    with pytest.MonkeyPatch.context() as patch:
        dense = compile_topology(case.topology, metric)
        patch.setattr("ppa_core.topology.rates.DENSE", 0)
        sparse = compile_topology.__wrapped__(_afresh(case.topology), metric)
    alive = dense.mask(case.alive)
    assert sparse.value(alive) == pytest.approx(dense.value(alive), abs=1e-9)
    np.testing.assert_allclose(sparse.gains(alive), dense.gains(alive), atol=1e-9)


def _afresh(topology: Topology) -> Topology:
    """The same topology under another name: rates are derived anew."""
    return Topology("again", topology.operators, topology.edges, topology.measured)


def test_one_measured_rate_does_not_make_a_full_edge_of_thousands_quadratic() -> None:
    n = 20_000
    topology = Build("big").source("A", n, 1.0).operator("B", n, {"A": "full"}).done({"A.1>B.1": 7.0})
    compiled = compile_topology(topology)
    alive = np.ones(compiled.tasks, dtype=bool)
    alive[0] = False
    first = (n - 1) / n + 7.0  # what B.1 takes in; the others take in 1
    lost = 7.0 + (n - 1) / n  # of it from A.1: by B.1, and by all the others
    assert compiled.value(alive) == pytest.approx(1 - lost / (first + n - 1), abs=1e-12)
