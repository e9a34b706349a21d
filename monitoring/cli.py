"""The command line: `python -m monitoring COMMAND …`. Conventions are those of `python -m ppa_core`.

Results go to standard output, as JSON with `--json`; messages to standard error, one line; exit 0, 1 (failed), 2 (bad input).
"""

from __future__ import annotations

import argparse
import getpass
import os
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any, Never

from monitoring import prometheus
from monitoring.channel import CommandSender
from monitoring.codec import as_document
from monitoring.commands import COMMANDS, Command
from monitoring.connection import DIRECTORY, Address
from monitoring.private import known_runs
from monitoring.reader import MonitorReader
from monitoring.records import StoredEvent
from monitoring.sentences import line_of
from monitoring.server import start
from monitoring.signing import KEY_VARIABLE, LIFETIME, Signer
from monitoring.views import IncidentReport, Snapshot, node_lines
from ppa_core.errors import BadInput, PpaError, RequestError, Unavailable
from ppa_core.safety.masking import masked, remember, remember_given
from ppa_core.terminal import logs
from ppa_core.terminal.arguments import positive, seconds, whole
from ppa_core.terminal.output import as_text, console, headline, note, print_json, table

EXIT_FAILED, EXIT_BAD_INPUT, EXIT_INTERRUPTED = 1, 2, 130
LOOK_AGAIN = 0.5


class NotDone(PpaError):
    """A command that the pipeline did not carry out."""


def main(argv: Sequence[str] | None = None, called: str = "python -m monitoring") -> int:
    """Run one command and return its exit code; `called` is how the help names the program."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    try:
        remember_given(argv)
        arguments = _parser(called).parse_args(argv)
        with logs.configured(logs.settings_of(arguments)):
            arguments.command(arguments)
        sys.stdout.flush()
    except BadInput as error:
        return _fail(str(error), EXIT_BAD_INPUT)
    except PpaError as error:
        return _fail(str(error), EXIT_FAILED)
    except KeyboardInterrupt:
        return _fail("stopped", EXIT_INTERRUPTED)
    except BrokenPipeError:
        with suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_FAILED
    except OSError as error:
        return _fail(f"output: cannot be written: {error.strerror}", EXIT_FAILED)
    finally:
        remember(())
    return 0


def _fail(message: str, code: int) -> int:
    note(f"error: {message}")
    return code


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> Never:
        self.exit(EXIT_BAD_INPUT, f"error: {as_text(masked(message))} (see `{self.prog} --help`)\n")


def _parser(called: str) -> argparse.ArgumentParser:
    parser = _Parser(
        prog=called,
        description="What running pipelines tell, live and afterwards; and commands to them.",
        epilog="The monitor is the Redis server of PPA_MONITOR_URL, else the embedded one of --directory.",
    )
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)

    def add(name: str, help_text: str, command: Callable[[argparse.Namespace], None]) -> argparse.ArgumentParser:
        made = commands.add_parser(name, help=help_text)
        made.set_defaults(command=command)
        made.add_argument(
            "--directory", type=Path, metavar="FOLDER", help=f"folder of the embedded monitor (default: {DIRECTORY})"
        )
        made.add_argument("--json", action="store_true", help="JSON on standard output, and nothing else there")
        return made

    def add_pipeline(made: argparse.ArgumentParser) -> argparse.ArgumentParser:
        made.add_argument("--pipeline", metavar="NAME[@RUN]", help="which one (default: the one that told something last)")
        return made

    tail = add_pipeline(add("tail", "print events as they come, until interrupted", show_tail))
    tail.add_argument("--last", type=whole, default=10, metavar="N", help="begin with the last N events (default: 10)")
    tail.add_argument("--no-follow", action="store_true", help="do not wait for more")
    add_pipeline(add("status", "the pipeline as it is now", show_status))
    add_pipeline(add("incidents", "the incidents there were", show_incidents))
    made = add_pipeline(add("report", "one incident as a page that stands by itself", write_report))
    made.add_argument("--incident", required=True, metavar="ID", help="its id, see `incidents`; or 'last'")
    made.add_argument("--html", type=Path, metavar="FILE", help="where to write the page")
    send = add_pipeline(add("send", "send a signed command to the pipeline, and wait for its outcome", send_command))
    send.add_argument("order", metavar="COMMAND", help=", ".join(COMMANDS))
    send.add_argument("values", nargs="*", metavar="VALUE", help="what it needs, as in: set-budget 8; fail-over node:n1 forced")
    send.add_argument("--who", metavar="NAME", help="for the audit log (default: the name of the user)")
    send.add_argument("--wait", type=seconds, default=30.0, metavar="S", help="for the outcome, at most (default: 30)")
    audit = add("audit", "who told which pipeline what, and what came of it; exit 1 if the log was tampered with", show_audit)
    audit.add_argument("--last", type=positive, default=100, metavar="N", help="so many lines (default: 100)")
    stays = add("serve", "run the embedded monitor until interrupted", serve)
    metrics = add("serve-metrics", "metrics for Prometheus, until interrupted", serve_metrics)
    metrics.add_argument(
        "--host", default=prometheus.HOST, help=f"to listen on (default: {prometheus.HOST}, this machine only)"
    )
    metrics.add_argument(
        "--port", type=whole, default=prometheus.PORT, help=f"(default: {prometheus.PORT}; 0 takes a free one)"
    )
    for made in (tail, stays, metrics):
        logs.add_log_options(made)
    return parser


def _reader(arguments: argparse.Namespace) -> MonitorReader:
    return MonitorReader(Address.find(directory=arguments.directory))


# ----------------------------------------------------------------------------------------------------------------- events


def show_tail(arguments: argparse.Namespace) -> None:
    reader = _reader(arguments)
    pipeline = reader.find(arguments.pipeline)
    found = reader.events(pipeline, limit=arguments.last) if arguments.last else []
    newest = found or reader.events(pipeline, limit=1)
    after = newest[-1].id if newest else "0-0"
    away = False
    while True:
        for event in found:
            _print_event(event, arguments.json)
            after = event.id
        sys.stdout.flush()
        if arguments.no_follow:
            return
        time.sleep(LOOK_AGAIN)
        try:
            found = reader.events(pipeline, after)
            away = False
        except Unavailable as error:
            if not away:
                note(f"{error}; waiting for it")
            away, found = True, []


def _print_event(stored: StoredEvent, as_json: bool) -> None:
    if as_json:
        print_json(as_document(stored))
        return
    clock = time.strftime("%H:%M:%S", time.localtime(max(0.0, min(stored.event.at, 4e9))))
    console().print(as_text(f"{clock}  {line_of(stored.event)}"), soft_wrap=True)


# ---------------------------------------------------------------------------------------------------------------- status


def show_status(arguments: argparse.Namespace) -> None:
    reader = _reader(arguments)
    pipeline = reader.find(arguments.pipeline)
    state = reader.state(pipeline)
    if state is None:
        raise RequestError(f"pipeline {pipeline}", "nothing is known of it any more")
    if arguments.json:
        print_json(as_document(state))
        return
    _print_status(state)
    if reader.bad:
        note(f"note: {sum(reader.bad.values())} values in the monitor are no records and were skipped")


def _print_status(state: Snapshot) -> None:
    ago = f", last heard {time.time() - state.heard:.0f} s ago" if state.heard else ""
    headline(f"{state.info.pipeline}: {state.life.doing if state.life else 'unknown'}{ago}")
    out = console()
    if state.batch:
        out.print(f"batch {state.batch.batch}, {state.batch.status}, OF {state.batch.of:.4f}", soft_wrap=True)
    if state.incident:
        out.print(as_text(f"incident {state.incident.id}: {', '.join(state.incident.nodes)} lost"), soft_wrap=True)
    rows = table("task", "state", "node", "rack", "replica", "in/s", "out/s", "checkpoint", right=["in/s", "out/s"])
    for task in state.tasks:
        age = "-" if task.checkpoint_age is None else f"{task.checkpoint_age} batches ago"
        cells = (
            task.task,
            task.state,
            task.node,
            task.rack,
            task.replica or "-",
            f"{task.rate_in:,.0f}",
            f"{task.rate_out:,.0f}",
            age,
        )
        rows.add_row(*map(as_text, cells))
    out.print(rows)
    for line in node_lines(state):
        out.print(as_text(line), soft_wrap=True)


def show_incidents(arguments: argparse.Namespace) -> None:
    reader = _reader(arguments)
    found = reader.incidents(reader.find(arguments.pipeline))
    if arguments.json:
        print_json([as_document(incident) for incident in found])
        return
    rows = table("id", "began", "seconds", "nodes lost", "lowest OF", "measured", right=["seconds", "lowest OF", "measured"])
    for incident in found:
        cells = (
            incident.id,
            time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(max(0.0, min(incident.since, 4e9)))),
            f"{incident.until - incident.since:.1f}" if incident.until else "not over",
            ", ".join(incident.nodes),
            "-" if incident.predicted is None else f"{incident.predicted:.4f}",
            "-" if incident.accuracy is None else f"{incident.accuracy:.4f}",
        )
        rows.add_row(*map(as_text, cells))
    console().print(rows)


def write_report(arguments: argparse.Namespace) -> None:
    if arguments.html is None and not arguments.json:
        raise RequestError("--html", "missing; name the file to write, or take --json")
    found = _report(_reader(arguments), arguments.pipeline, arguments.incident)
    if arguments.html is not None:
        from monitoring import report  # here, because plotly takes a while to load

        try:
            arguments.html.write_text(report.html(found), encoding="utf-8")
        except OSError as error:
            raise RequestError(str(arguments.html), f"cannot be written: {error.strerror}") from error
        note(f"incident {found.incident.id} of {found.info.name}: {arguments.html}")
    if arguments.json:
        print_json(as_document(found))


def _report(reader: MonitorReader, name: str | None, id_: str) -> IncidentReport:
    """The incident of that id: of the pipeline that is named, else of any."""
    for pipeline in [reader.find(name)] if name else reader.pipelines():
        known = reader.incidents(pipeline, 1) if id_ == "last" else []
        found = reader.incident(pipeline, known[-1].id if known else id_)
        if found is not None:
            return found
    raise RequestError(f"incident {id_[:60]!r}", "the monitor does not know it; `python -m monitoring incidents` lists them")


# -------------------------------------------------------------------------------------------------------------- commands


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
        what = "it did not arrive, or what came of it is not known yet; `python -m monitoring audit` shows if it was accepted"
        raise NotDone(f"{command}: no answer from {pipeline} in {arguments.wait:g} s: {what}")
    if outcome.outcome != "done":
        raise NotDone(f"{command}: {outcome.outcome}: {outcome.text}")
    if not arguments.json:
        console().print(as_text(f"{command}: done{': ' + outcome.text if outcome.text else ''}"), soft_wrap=True)


def _command(word: str, values: Sequence[str]) -> Command:
    kind = COMMANDS.get(word)
    if kind is None:
        raise RequestError(f"command {word[:60]!r}", f"there is none of that name; there are {', '.join(COMMANDS)}")
    known = fields(kind)
    needed = [field.name for field in known if field.default is MISSING]
    if not len(needed) <= len(values) <= len(known):
        raise RequestError(word, f"it takes {', '.join(field.name for field in known) or 'nothing more'}")
    given: dict[str, Any] = {field.name: value for field, value in zip(known, values, strict=False)}
    if "budget" in given:
        try:
            given["budget"] = int(given["budget"])
        except ValueError:
            raise RequestError("budget", "not a whole number") from None
    if "tasks" in given:
        given["tasks"] = tuple(filter(None, given["tasks"].split(",")))
    return kind(**given)


def show_audit(arguments: argparse.Namespace) -> None:
    reader, address = _reader(arguments), Address.find(directory=arguments.directory)
    signer = Signer.known(address.directory)
    runs = dict.fromkeys([*reader.pipelines(), *known_runs(address)])  # also those that someone took out of the monitor
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
            rows.add_row(*map(as_text, (when, line.who or "not known", line.pipeline, line.what, line.outcome, line.text)))
        console().print(rows)
    for chain in chains:
        if chain.last or chain.problems:
            note(f"{chain.pipeline}: {chain}")
    if signer is None and lines:
        what = f"there is no operator's key in {str(address.directory)!r}; name it in {KEY_VARIABLE}"
        raise NotDone(f"the audit log was not checked: {what}")
    if any(chain.problems for chain in chains):
        raise NotDone("the audit log was tampered with, or lines of it were lost; what is shown above is genuine")


# --------------------------------------------------------------------------------------------------------------- serving


def serve(arguments: argparse.Namespace) -> None:
    address = Address.find(directory=arguments.directory)
    if address.url is not None:
        raise RequestError("PPA_MONITOR_URL", "it names a server already; there is none to start")
    with start(address.directory) as server:
        said = "runs" if server.owned else "runs already, started by another process; it ends with that"
        note(f"the monitor in {str(server.address.directory)!r} {said}")
        if server.owned:
            prometheus.wait_forever()


def serve_metrics(arguments: argparse.Namespace) -> None:
    Address.find(directory=arguments.directory).check()
    server, _ = prometheus.serve(_reader(arguments), arguments.host, arguments.port)
    note(f"metrics on http://{arguments.host}:{server.server_port}/metrics")
    try:
        prometheus.wait_forever()
    finally:
        server.shutdown()
        server.server_close()
