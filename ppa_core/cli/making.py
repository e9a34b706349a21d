"""Commands that print topologies: `generate` and `examples`."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from ppa_core.terminal.arguments import number, span, whole
from ppa_core.terminal.output import console, note, print_json, table
from ppa_core.topology import Family, Structure, dump, dumps, generate
from ppa_core.topology.examples import load_example, names


def register(commands: Any) -> None:
    maker = commands.add_parser("generate", help="generate a random topology file")
    maker.add_argument(
        "--operators", type=span, default=(5, 10), metavar="LOW:HIGH", help="number of operators (default: 5:10)"
    )
    maker.add_argument("--tasks", type=span, default=(1, 10), metavar="LOW:HIGH", help="tasks of each operator (default: 1:10)")
    maker.add_argument("--seed", type=whole, required=True, metavar="N", help="the same seed gives the same topology")
    maker.add_argument("--zipf", type=number, default=0.0, metavar="S", help="skew of the load within an operator (default: 0)")
    kinds = [structure.value for structure in Structure]
    maker.add_argument(
        "--structure", choices=kinds, default=Structure.MIXED.value, help="partitioning of the edges (default: mixed)"
    )
    maker.add_argument(
        "--joins",
        type=number,
        default=0.0,
        metavar="F",
        help="fraction of multi-input operators that join, 0 to 1 (default: 0)",
    )
    maker.add_argument(
        "--sharing", type=number, default=0.0, metavar="F", help="probability that an operator feeds a second one (default: 0)"
    )
    maker.add_argument("--output", metavar="FILE", help="write to FILE instead of standard output")
    maker.set_defaults(command=make_topology)

    shipped = commands.add_parser("examples", help="list the built-in topologies, whose names can be used as FILE")
    shipped.set_defaults(command=show_examples)


def make_topology(arguments: argparse.Namespace) -> None:
    family = Family(
        operators=arguments.operators,
        tasks=arguments.tasks,
        zipf=arguments.zipf,
        structure=Structure(arguments.structure),
        joins=arguments.joins,
        sharing=arguments.sharing,
    )
    topology = generate(family, arguments.seed)
    if arguments.output:
        dump(topology, arguments.output)
        note(f"{arguments.output}: {len(topology.operators)} operators, {len(topology.tasks)} tasks")
    if arguments.json or not arguments.output:
        sys.stdout.write(dumps(topology) + "\n")


def show_examples(arguments: argparse.Namespace) -> None:
    topologies = {name: load_example(name) for name in names()}
    if arguments.json:
        rows = [{"name": name, "operators": len(t.operators), "tasks": len(t.tasks)} for name, t in topologies.items()]
        print_json(rows)
        return
    rows_shown = table("name", "operators", "tasks", right=["tasks"])
    for name, topology in topologies.items():
        shape = " ".join(f"{operator.name}({operator.tasks})" for operator in topology.operators)
        rows_shown.add_row(name, shape, str(len(topology.tasks)))
    console().print(rows_shown)
