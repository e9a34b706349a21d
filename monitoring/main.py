"""The parser of the monitor's commands: `python -m monitoring COMMAND …`; `ppa` has most of them too.

The module of a command is imported only when the command runs, so that other commands of `ppa` start faster.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

from monitoring.commands import COMMANDS
from ppa_core.home import FOLDER
from ppa_core.terminal import logs, program
from ppa_core.terminal.arguments import positive, seconds, whole


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code: 0, 1 (failed), 2 (bad input) or 130 (interrupted)."""
    return program.run(_parser, argv)


def _parser() -> program.Parser:
    return program.parser_of(
        "python -m monitoring",
        "Watch running pipelines, look at their incidents, and send them commands.",
        "The monitor is the Redis server at PPA_MONITOR_URL, or else the embedded one in --directory.",
        register,
        _register_servers,
    )


def register(commands: Any) -> None:
    """The commands that are also commands of `ppa`."""
    tail = _add(commands, "tail", "print events as they arrive, until interrupted", "monitoring.cli:show_tail")
    tail.add_argument("--last", type=whole, default=10, metavar="N", help="start with the last N events (default: 10)")
    tail.add_argument("--no-follow", action="store_true", help="do not wait for further events")
    logs.add_log_options(tail)
    status = _add(commands, "status", "show the current state of the pipeline", "monitoring.cli:show_status")
    incidents = _add(commands, "incidents", "list the incidents of the pipeline", "monitoring.cli:show_incidents")
    report = _add(commands, "report", "write one incident as a self-contained HTML page", "monitoring.cli:write_report")
    report.add_argument(
        "--incident", required=True, metavar="ID", help="id of the incident, as listed by `incidents`, or 'last'"
    )
    report.add_argument("--html", type=Path, metavar="FILE", help="file to write the page to")
    help_text = "send a signed command to the pipeline and wait for its outcome"
    send = _add(commands, "send", help_text, "monitoring.operating:send_command")
    send.formatter_class = argparse.RawDescriptionHelpFormatter
    send.epilog = _described()
    send.add_argument("order", metavar="COMMAND", help="one of the commands below")
    send.add_argument("values", nargs="*", metavar="ARGUMENT", help="its arguments, as in: drain node:n1; set-budget 8")
    send.add_argument("--who", metavar="NAME", help="your name for the audit log (default: the user name)")
    send.add_argument("--wait", type=seconds, default=30.0, metavar="S", help="seconds to wait for the outcome (default: 30)")
    for command in (tail, status, incidents, report, send):
        command.add_argument(
            "--pipeline", metavar="NAME[@RUN]", help="pipeline, or one run of it (default: the run that was active last)"
        )
    help_text = "show commands, who sent them, and their outcomes; exit 1 if the audit log was tampered with"
    audit = _add(commands, "audit", help_text, "monitoring.operating:show_audit")
    audit.add_argument("--last", type=positive, default=100, metavar="N", help="show the last N lines (default: 100)")


def _described() -> str:
    """All commands with their arguments, as help."""
    usages = {" ".join([word, *map(str.upper, kind.__struct_fields__)]): kind.__doc__ for word, kind in COMMANDS.items()}
    wide = max(map(len, usages))
    lines = [f"  {usage:<{wide}}  {what}" for usage, what in usages.items()]
    return "\n".join(["commands (TARGET is node:NAME, or rack:NAME for all nodes of a rack):", *lines])


def _register_servers(commands: Any) -> None:
    serve = _add(commands, "serve", "run the embedded monitor until interrupted", "monitoring.operating:serve")
    metrics = _add(
        commands, "serve-metrics", "serve metrics for Prometheus until interrupted", "monitoring.operating:serve_metrics"
    )
    metrics.add_argument("--host", default="127.0.0.1", help="address to listen on (default: 127.0.0.1, this machine only)")
    metrics.add_argument("--port", type=whole, default=9464, help="port to listen on; 0 chooses a free port (default: 9464)")
    for command in (serve, metrics):
        logs.add_log_options(command)


def _add(commands: Any, name: str, help_text: str, function: str) -> argparse.ArgumentParser:
    """Add a command with the options that all commands have. `function` is its name, as in `package.module:name`."""
    command: argparse.ArgumentParser = commands.add_parser(name, help=help_text)
    command.set_defaults(command=lambda arguments: resolve_name(function)(arguments))
    folder = f"folder of the embedded monitor (default: {FOLDER / 'monitor'})"
    command.add_argument("--directory", type=Path, metavar="FOLDER", help=folder)
    return command
