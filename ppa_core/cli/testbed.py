"""The command `testbed`: runs hosts in network namespaces on this machine, which can be cut, hung and killed."""

from __future__ import annotations

import argparse
import shlex
import signal
import sys
import threading
from typing import Any

from ppa_core.errors import Unavailable
from ppa_core.terminal.arguments import positive
from ppa_core.terminal.output import console, note, print_json, table

_LOOK_AGAIN = 1.0


def register(commands: Any) -> None:
    bed = commands.add_parser(
        "testbed",
        help="run hosts with Spark workers and nodes, in network namespaces on this machine, until stopped (root only)",
    )
    for option, default, meaning in (
        ("--hosts", 4, "number of hosts; each has a Spark worker and two nodes"),
        ("--racks", 2, "number of racks; each has a switch"),
        ("--cores", 4, "cores of each Spark worker: tasks that it runs at the same time"),
    ):
        bed.add_argument(option, type=positive, default=default, metavar="N", help=f"{meaning} (default: {default})")
    for option, meaning in (("--memory", "memory of each worker's executor"), ("--node-memory", "memory of each node")):
        bed.add_argument(option, type=positive, default=1024, metavar="MB", help=f"{meaning} (default: 1024)")
    bed.set_defaults(command=run_testbed)


def run_testbed(arguments: argparse.Namespace) -> None:
    """Start a test bed, print how to use it, and run until SIGTERM or Ctrl-C."""
    from ppa_core.process.testbed import launch_testbed

    stopping = threading.Event()
    before = {number: signal.signal(number, lambda *_: stopping.set()) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        note(f"starting a Spark master and {arguments.hosts} hosts in {arguments.racks} racks …")
        with launch_testbed(arguments.hosts, arguments.racks, arguments.cores, arguments.memory, arguments.node_memory) as bed:
            _show(arguments, bed)
            reported: set[str] = set()
            while not stopping.wait(_LOOK_AGAIN):
                _report_ended(bed, reported)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _show(arguments: argparse.Namespace, bed: Any) -> None:
    hosts = [
        {
            "name": host,
            "rack": bed.network.rack_of[host],
            "address": bed.addresses[host],
            "namespace": bed.network.hosts[host].name,
            "nodes": [node.name for node in bed.cluster.nodes if node.host == host],
        }
        for host in bed.hosts
    ]
    if arguments.json:
        print_json(
            {
                "name": bed.name,
                "master": bed.master,
                "nodes_file": str(bed.nodes_file),
                "prefix": list(bed.prefix),
                "environment": bed.environment,
                "control": bed.network.control.name,
                "switches": bed.network.switches.name,
                "hosts": hosts,
            }
        )
    else:
        _print(bed, hosts)
    sys.stdout.flush()  # a program may wait for this output


def _print(bed: Any, hosts: list[dict[str, Any]]) -> None:
    shown, ppa = console(), shlex.join([*bed.prefix, sys.executable, "-m", "ppa_core"])
    known = table("host", "rack", "address", "nodes", "namespace")
    for host in hosts:
        known.add_row(host["name"], host["rack"], host["address"], ", ".join(host["nodes"]), host["namespace"])
    shown.print(known)
    switches = f"ip -n {bed.network.switches.name} link set"
    rack = next(iter(bed.racks))
    for text, command in (
        (f"Spark master {bed.master}, nodes file {bed.nodes_file}. To run a pipeline on the hosts:",
         f"{ppa} run tree --master {bed.master} --nodes-file {bed.nodes_file}"),
        ("To run a drill on the hosts' Spark workers, with nodes of its own:",
         f"{ppa} drill tree --budget 8 --fail worker --at 10 --batches 20 --master {bed.master}"),
        ("To cut a host, or a rack, off the network (`up` mends it):",
         f"{switches} {bed.hosts[0]} down\n  {switches} {rack}-up down"),
    ):  # fmt: skip
        shown.print(f"\n{text}\n\n  {command}", soft_wrap=True)
    shown.print("\nPress Ctrl-C to stop the test bed.")


def _report_ended(bed: Any, reported: set[str]) -> None:
    """Report once what exited; it is not restarted, because someone may have killed it on purpose. Unavailable if the master
    exited."""
    for name in bed.ended():
        if name == "master":
            raise Unavailable("the Spark master exited; restart the test bed")
        if name not in reported:
            reported.add(name)
            note(f"{name} exited")
