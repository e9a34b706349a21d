"""A topology as a networkx graph, for graph algorithms and for drawing it elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ppa_core.topology.model import Topology
from ppa_core.topology.rates import derive

if TYPE_CHECKING:
    import networkx as nx


def to_networkx(topology: Topology) -> nx.DiGraph[str]:
    """The tasks and their substreams; a `full` edge of the topology becomes N1·N2 edges.

    Nodes are task ids with `operator`, `input_rate`, `output_rate` and `external`; edges have `rate` (all tuples/s).
    """
    import networkx as nx  # here, because few who import this package need it

    rates = derive(topology)
    graph: nx.DiGraph[str] = nx.DiGraph(name=topology.name)
    for operator in topology.operators:
        for i in topology.span[operator.name]:
            graph.add_node(
                topology.tasks[i],
                operator=operator.name,
                input_rate=float(rates.input[i]),
                output_rate=float(rates.output[i]),
                external=operator.external,
            )
    for up, down, rate in rates.substreams():
        graph.add_edge(topology.tasks[up], topology.tasks[down], rate=rate)
    return graph
