"""The topologies that ship."""

from __future__ import annotations

from pathlib import Path

import pytest

from ppa_core.errors import RequestError
from ppa_core.topology import Partitioning, derive, dumps, examples, load_example, names, to_networkx


def sizes(name: str) -> dict[str, int]:
    return {operator.name: operator.tasks for operator in load_example(name).operators}


def test_the_names_are_the_files_that_ship() -> None:
    assert names() == ("loss_model", "mc_trees", "mc_trees_join", "q1", "q2", "tree")


@pytest.mark.parametrize("name", names())
def test_a_file_is_named_as_its_topology_and_formatted_as_it_would_be_written(name: str) -> None:
    path = Path(examples.__file__).parent / "examples" / f"{name}.json"
    topology = load_example(name)
    assert topology.name == name
    assert path.read_text(encoding="utf-8") == dumps(topology) + "\n"


def test_an_unknown_name_is_refused_with_the_known_ones() -> None:
    with pytest.raises(RequestError, match=r"'q3': unknown example; choose one of loss_model, .*, tree"):
        load_example("q3")


def test_a_name_is_no_way_to_other_files() -> None:
    with pytest.raises(RequestError):
        load_example("../examples/q1")


def test_tree_is_the_papers_synthetic_topology() -> None:
    topology = load_example("tree")
    assert sizes("tree") == {"S": 16, "O1": 8, "O2": 4, "O3": 2, "O4": 1}
    assert not topology.external_tasks
    assert {edge.partitioning for edge in topology.edges} == {Partitioning.MERGE}
    assert set(derive(topology).output[:-1]) == {1000.0}


def test_q1_replays_the_day_48_times_faster_from_uneven_servers_into_one_task() -> None:
    topology = load_example("q1")
    read = derive(topology).input[list(topology.span["servers"])]
    assert read.sum() == pytest.approx(73_291_868 / 86_400 * 48, rel=1e-3)
    assert read.max() > 2 * read.min()
    assert len(topology.external_tasks) == sizes("q1")["servers"]
    assert topology.sinks == ("O3",)
    assert sizes("q1")["O3"] == 1


def test_q2_joins_a_thousand_speeds_with_one_incident_in_two_seconds() -> None:
    topology, flows = load_example("q2"), derive(load_example("q2")).flows
    assert flows["locations", "O1"].rates.sum() == 20_000
    assert flows["O1", "O3"].rates.sum() == pytest.approx(1000)
    assert flows["O2", "O3"].rates.sum() == pytest.approx(0.5, rel=0.01)
    assert flows["O3", "O4"].rates.sum() == pytest.approx(0.25, rel=0.01)
    assert {name for name in topology.sources if topology.by_name[name].external} == {"locations", "incidents"}
    assert sizes("q2")["O4"] == 1


def test_the_task_graph_has_every_substream_with_its_rate() -> None:
    graph = to_networkx(load_example("q2"))
    assert graph.number_of_nodes() == 27
    assert graph.number_of_edges() == 4 * 8 + 2 * 4 + 8 + 8 + 8
    assert graph.nodes["O1.1"] == {
        "operator": "O1",
        "input_rate": pytest.approx(2700),
        "output_rate": pytest.approx(135),
        "external": False,
    }
    assert graph.nodes["incidents.2"]["external"] is True
    assert graph.edges["O1.1", "O3.1"]["rate"] == pytest.approx(135)
