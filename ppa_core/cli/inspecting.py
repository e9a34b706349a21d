"""Commands that analyse a topology without planning: `fidelity`, `mctrees`, `decompose`."""

from __future__ import annotations

import argparse
import sys
from itertools import islice
from typing import Any

import numpy as np

from ppa_core.errors import RequestError
from ppa_core.fidelity import Mask, Metric, compile_topology
from ppa_core.opening import open_topology
from ppa_core.planners.decompose import Kind, decompose, segments, units
from ppa_core.terminal.arguments import add_file, comma_list, positive
from ppa_core.terminal.output import console, finite, headline, note, print_json, print_json_with_rows, table
from ppa_core.topology import Topology, mctrees

MOST_TREES = 1_000_000
"""Above this number of trees, --list requires --limit."""

MOST_SHARES = 10
"""How many tasks `mctrees` shows with the share of trees that contain them."""

MOST_EFFORT = 5_000_000
"""If computing these shares takes more steps than this, they are not shown."""


def register(commands: Any) -> None:
    fidelity = commands.add_parser("fidelity", help="compute OF and IC for a set of alive or failed tasks")
    add_file(fidelity)
    which = fidelity.add_mutually_exclusive_group(required=True)
    which.add_argument("--alive", metavar="TASKS", help="only these tasks are alive, such as O1.1,O3.1; '' for none")
    which.add_argument("--failed", metavar="TASKS", help="only these tasks have failed; '' for none")
    fidelity.set_defaults(command=show_fidelity)

    trees = commands.add_parser("mctrees", help="count or list the MC-trees")
    add_file(trees)
    trees.add_argument("--list", action="store_true", help="list the trees")
    trees.add_argument("--limit", type=positive, metavar="N", help="list at most N trees")
    trees.set_defaults(command=show_mctrees)

    parts = commands.add_parser(
        "decompose", help="show sub-topologies, units and segments, as the structure-aware planner uses them"
    )
    add_file(parts)
    parts.add_argument("--limit", type=positive, default=1000, metavar="N", help="at most N segments per unit (default: 1000)")
    parts.set_defaults(command=show_decomposition)


def show_fidelity(arguments: argparse.Namespace) -> None:
    topology = open_topology(arguments.file)
    alive = _alive(topology, arguments)
    of, ic = (compile_topology(topology, metric).value(alive) for metric in (Metric.OF, Metric.IC))
    if arguments.json:
        print_json({"of": finite(of), "ic": finite(ic)})
        return
    headline(f"{topology.name}: {int(alive.sum())} of {len(alive)} tasks alive")
    out = console()
    out.print(f"OF  {of:.6f}  output fidelity")
    out.print(f"IC  {ic:.6f}  internal completeness")


def _alive(topology: Topology, arguments: argparse.Namespace) -> Mask:
    option, text = ("--alive", arguments.alive) if arguments.alive is not None else ("--failed", arguments.failed)
    named = topology.numbers(comma_list(option, text))
    if option == "--failed" and named & topology.external_tasks:
        never = ", ".join(topology.ids(named & topology.external_tasks))
        note(f"note: {never}: tasks of an external source never fail; they count as alive")
    alive = np.full(len(topology.tasks), option == "--failed")
    alive[list(named)] = option == "--alive"
    alive[list(topology.external_tasks)] = True
    return alive


def show_mctrees(arguments: argparse.Namespace) -> None:
    topology = open_topology(arguments.file)
    total = mctrees.count(topology)
    sys.set_int_max_str_digits(0)  # it may have more digits than Python prints by default
    if not arguments.list and arguments.json:
        print_json({"count": total})
    elif not arguments.list:
        _print_count(topology, total)
    else:
        _print_trees(topology, total, arguments)


def _print_trees(topology: Topology, total: int, arguments: argparse.Namespace) -> None:
    if arguments.limit is None and total > MOST_TREES:
        raise RequestError("--list", f"there are {_shown(total)} MC-trees; add --limit N to list the first N")
    listed = (list(topology.ids(tree)) for tree in islice(mctrees.trees(topology), arguments.limit))
    if arguments.json:
        print_json_with_rows({"count": total}, "trees", listed)
        return
    headline(f"{topology.name}: {_shown(total)} MC-trees")
    out = console()
    for tree in listed:
        out.print(", ".join(tree), soft_wrap=True)


def _print_count(topology: Topology, total: int) -> None:
    if mctrees.effort(topology, total) > MOST_EFFORT:
        headline(f"{topology.name}: {_shown(total)} MC-trees")
        console().print("the tasks contained in most trees are not shown: computing them would take too long", soft_wrap=True)
        return
    headline(f"{topology.name}: {_shown(total)} MC-trees; the tasks contained in most of them:")
    shares = mctrees.death_share(topology)
    worst = sorted(range(len(shares)), key=lambda task: -shares[task])[:MOST_SHARES]
    rows = table("task", "share of trees", right=["share of trees"])
    for task in worst:
        rows.add_row(topology.tasks[task], f"{shares[task]:.1%}")
    console().print(rows)


def _shown(total: int) -> str:
    return f"{total:,}" if total < 10**30 else f"about 10^{len(str(total)) - 1}"


def show_decomposition(arguments: argparse.Namespace) -> None:
    topology = open_topology(arguments.file)
    parts = _parts(topology, arguments.limit)
    if arguments.json:
        print_json({"subtopologies": parts})
        return
    headline(f"{topology.name}: {len(parts)} sub-topolog{'y' if len(parts) == 1 else 'ies'}")
    rows = table("sub-topology", "unit", "segments", "first segment", right=["segments"])
    for number, part in enumerate(parts, 1):
        rows.add_section()
        if not part["units"]:
            rows.add_row(f"{number} {part['kind']}", ", ".join(part["operators"]))
        for k, unit in enumerate(part["units"]):
            found = unit["segments"]
            many = f"{len(found)}{'' if len(found) < arguments.limit else ' or more'}"
            rows.add_row(f"{number} {part['kind']}" if k == 0 else "", ", ".join(unit["operators"]), many, ", ".join(found[0]))
    console().print(rows)


def _parts(topology: Topology, limit: int) -> list[dict[str, Any]]:
    """The decomposition as a document. Only a structured sub-topology is cut into units."""
    return [
        {
            "kind": part.kind.value,
            "operators": list(part.operators),
            "units": [
                {
                    "operators": list(unit.operators),
                    "segments": [list(topology.ids(segment.tasks)) for segment in segments(topology, unit, limit=limit)],
                }
                for unit in (units(topology, part.operators) if part.kind is Kind.STRUCTURED else ())
            ],
        }
        for part in decompose(topology)
    ]
