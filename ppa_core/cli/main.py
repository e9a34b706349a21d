"""`ppa`, or `python -m ppa_core`: the parser for all commands."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from monitoring import main as watching
from ppa_core import __version__
from ppa_core.cli import cluster, inspecting, making, planning, running, serving, sources, testbed
from ppa_core.cli.preparing import warn_of_passwords
from ppa_core.terminal import program


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code: 0, 1 (failed), 2 (bad input) or 130 (interrupted)."""
    return program.run(_parser, argv, warn_of_passwords)


def _parser() -> program.Parser:
    groups = (inspecting, planning, making, running, serving, watching, cluster, testbed, sources)
    parser = program.parser_of(
        "ppa" if Path(sys.argv[0]).name == "ppa" else "python -m ppa_core",
        "Plan active replicas for streaming topologies, and run fault-tolerant pipelines on Spark.",
        "FILE is a topology file, the name of a built-in example (see `examples`), or '-' for standard input.",
        *(group.register for group in groups),
    )
    parser.add_argument("--version", action="version", version=__version__)
    return parser
