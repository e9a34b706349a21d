"""The command `cluster`: runs a Spark standalone cluster on this machine, for tests."""

from __future__ import annotations

import argparse
import shlex
import signal
import sys
import threading
from typing import Any

from ppa_core.errors import Unavailable
from ppa_core.terminal.arguments import positive
from ppa_core.terminal.output import console, note, print_json

_LOOK_AGAIN = 1.0


def register(commands: Any) -> None:
    cluster = commands.add_parser("cluster", help="run a Spark test cluster on this machine until stopped")
    cluster.add_argument("--workers", type=positive, default=2, metavar="N", help="number of Spark workers (default: 2)")
    cluster.add_argument(
        "--cores",
        type=positive,
        default=4,
        metavar="N",
        help="cores of each worker: tasks that it runs at the same time (default: 4)",
    )
    cluster.add_argument(
        "--memory", type=positive, default=1024, metavar="MB", help="memory of each worker's executor (default: 1024)"
    )
    cluster.set_defaults(command=run_cluster)


def run_cluster(arguments: argparse.Namespace) -> None:
    """Start a cluster, print how to use it, and run until SIGTERM or Ctrl-C. A worker that exits is restarted."""
    from ppa_core.process.spark_cluster import launch_spark

    stopping = threading.Event()
    before = {number: signal.signal(number, lambda *_: stopping.set()) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        note(f"starting a Spark master and {arguments.workers} workers …")
        with launch_spark(arguments.workers, arguments.cores, arguments.memory) as cluster:
            _show(arguments, cluster)
            while not stopping.wait(_LOOK_AGAIN):
                _restart_workers(cluster)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _show(arguments: argparse.Namespace, cluster: Any) -> None:
    if arguments.json:
        print_json({"master": cluster.master, "environment": cluster.environment, "workers": len(cluster.workers)})
    else:
        settings = " ".join(f"{name}={shlex.quote(value)}" for name, value in cluster.environment.items())
        shown = console()
        slots = arguments.workers * arguments.cores
        shown.print(f"Spark master {cluster.master}, {arguments.workers} workers, {slots} slots. To run a pipeline on it:\n")
        shown.print(f"  {settings} python -m ppa_core run tree --master {cluster.master}\n", soft_wrap=True)
        shown.print("Press Ctrl-C to stop the cluster.")
    sys.stdout.flush()  # a program may wait for this output


def _restart_workers(cluster: Any) -> None:
    """Restart workers that exited. Raises Unavailable if the master exited."""
    name = cluster.ended()
    if name == "master":
        raise Unavailable("the Spark master exited; restart the cluster")
    if name is not None:
        note(f"{name} exited; restarting it")
        cluster.restart_worker(int(name.removeprefix("worker-")))
