"""Commands of an operator: `send` and `audit`, and the servers that run until interrupted. Their parser is in `main.py`."""

from __future__ import annotations

import argparse
import getpass
import time
from collections.abc import Sequence
from typing import Any

from monitoring import prometheus
from monitoring.channel import CommandSender
from monitoring.codec import as_document
from monitoring.commands import COMMANDS, Command, read
from monitoring.connection import Address
from monitoring.private import known_runs
from monitoring.reader import MonitorReader
from monitoring.server import start
from monitoring.signing import KEY_VARIABLE, LIFETIME, Signer
from ppa_core.errors import PpaError, RequestError
from ppa_core.terminal.output import as_text, console, note, print_json, table


class NotDone(PpaError):
    """A command that the pipeline did not carry out."""


def send_command(arguments: argparse.Namespace) -> None:
    command = _command(arguments.order, arguments.values)
    address = Address.find(directory=arguments.directory)
    pipeline = MonitorReader(address).find(arguments.pipeline)
    operator = CommandSender(address, Signer.find(address.directory))
    id_ = operator.send(pipeline, command, arguments.who or getpass.getuser(), min(max(arguments.wait, 1.0), LIFETIME))
    outcome = operator.wait(pipeline, id_, arguments.wait)
    if operator.trouble:
        note(f"warning: {operator.trouble}")
    if arguments.json:
        print_json({"id": id_, "pipeline": str(pipeline), "outcome": as_document(outcome) if outcome else None})
    if outcome is None:
        what = (
            "it was not delivered, or its outcome is not known yet; `python -m monitoring audit` shows whether it was accepted"
        )
        raise NotDone(f"{command}: no answer from {pipeline} in {arguments.wait:g} s: {what}")
    if outcome.outcome != "done":
        raise NotDone(f"{command}: {outcome.outcome}: {outcome.text}")
    if not arguments.json:
        console().print(as_text(f"{command}: done{': ' + outcome.text if outcome.text else ''}"), soft_wrap=True)


def _command(word: str, values: Sequence[str]) -> Command:
    fields = COMMANDS[word].__struct_fields__ if word in COMMANDS else ()
    if word in COMMANDS and len(values) != len(fields):
        raise RequestError(word, f"wrong number of arguments; usage: {' '.join([word, *map(str.upper, fields)])}")
    given: dict[str, Any] = dict(zip(fields, values, strict=False))
    if "tasks" in given:
        given["tasks"] = list(filter(None, given["tasks"].split(",")))
    return read({"command": word, **given}, strict=False)


def show_audit(arguments: argparse.Namespace) -> None:
    address = Address.find(directory=arguments.directory)
    reader = MonitorReader(address)
    signer = Signer.known(address.directory)
    runs = dict.fromkeys([*reader.pipelines(), *known_runs(address)])  # also those that someone removed from the monitor
    chains = [reader.chain(pipeline, signer) for pipeline in runs] if signer else []
    lines = sorted((line for chain in chains for line in chain.lines), key=lambda line: line.at) if signer else reader.audit()
    lines = lines[-arguments.last :]
    if arguments.json:
        logs = [{"pipeline": str(c.pipeline), "first": c.first, "last": c.last, "problems": list(c.problems)} for c in chains]
        print_json({"lines": [as_document(line) for line in lines], "logs": logs, "checked": signer is not None})
    else:
        rows = table("when", "who", "pipeline", "what", "outcome", "text")
        for line in lines:
            when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(max(0.0, min(line.at, 4e9))))
            rows.add_row(*map(as_text, (when, line.who or "unknown", line.pipeline, line.what, line.outcome, line.text)))
        console().print(rows)
    for chain in chains:
        if chain.last or chain.problems:
            note(f"{chain.pipeline}: {chain}")
    if signer is None and lines:
        what = f"no operator's key in {str(address.directory)!r}; set {KEY_VARIABLE}"
        raise NotDone(f"the audit log was not checked: {what}")
    if any(chain.problems for chain in chains):
        raise NotDone("the audit log was tampered with, or lines of it were lost; the lines shown above are genuine")


# --------------------------------------------------------------------------------------------------------------- serving


def serve(arguments: argparse.Namespace) -> None:
    address = Address.find(directory=arguments.directory)
    if address.url is not None:
        raise RequestError("PPA_MONITOR_URL", "it names a running server; unset it to start an embedded monitor")
    with start(address.directory) as server:
        state = "is running" if server.owned else "is already running; it was started by another process and ends with it"
        note(f"the monitor in {str(server.address.directory)!r} {state}")
        if server.owned:
            prometheus.wait_forever()


def serve_metrics(arguments: argparse.Namespace) -> None:
    address = Address.find(directory=arguments.directory)
    address.check()
    server, _ = prometheus.serve(MonitorReader(address), arguments.host, arguments.port)
    note(f"metrics on http://{arguments.host}:{server.server_port}/metrics")
    try:
        prometheus.wait_forever()
    finally:
        server.shutdown()
        server.server_close()
