"""Topologies: the model, its file format, a builder, a generator, derived rates and MC-trees."""

from ppa_core.topology.build import Build
from ppa_core.topology.examples import load_example, names
from ppa_core.topology.files import dump, dumps, from_dict, load, loads, to_dict
from ppa_core.topology.generate import Family, Structure, generate
from ppa_core.topology.graph import to_networkx
from ppa_core.topology.mctrees import containing, count, covered, death_share, trees
from ppa_core.topology.model import Topology
from ppa_core.topology.operators import Edge, Input, Operator, Partitioning
from ppa_core.topology.rates import Rates, derive

__all__ = [
    "Build", "Edge", "Family", "Input", "Operator", "Partitioning", "Rates", "Structure", "Topology",
    "containing", "count", "covered", "death_share", "derive", "dump", "dumps", "from_dict", "generate", "load",
    "load_example", "loads", "names", "to_dict", "to_networkx", "trees",
]  # fmt: skip
