"""The commands `tail`, `status`, `incidents` and `report`. Their parser is in `main.py`."""

from __future__ import annotations

import argparse
import sys
import time

from monitoring.codec import as_document
from monitoring.connection import Address
from monitoring.reader import MonitorReader
from monitoring.records import StoredEvent
from monitoring.sentences import counted, line_of
from monitoring.views import IncidentReport, Snapshot, node_lines, silence
from ppa_core.errors import RequestError, Unavailable
from ppa_core.terminal.output import as_text, console, headline, note, print_json, table

POLL_SECONDS = 0.5


def _reader(arguments: argparse.Namespace) -> MonitorReader:
    return MonitorReader(Address.find(directory=arguments.directory))


# ----------------------------------------------------------------------------------------------------------------- events


def show_tail(arguments: argparse.Namespace) -> None:
    reader = _reader(arguments)
    pipeline = reader.find(arguments.pipeline)
    found = reader.events(pipeline, limit=arguments.last) if arguments.last else []
    newest = found or reader.events(pipeline, limit=1)
    after = newest[-1].id if newest else "0-0"
    down = False
    while True:
        for event in found:
            _print_event(event, arguments.json)
            after = event.id
        sys.stdout.flush()
        if arguments.no_follow:
            return
        time.sleep(POLL_SECONDS)
        try:
            found = reader.events(pipeline, after)
            down = False
        except Unavailable as error:
            if not down:
                note(f"{error}; waiting until it answers")
            down, found = True, []


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
        raise RequestError(f"pipeline {pipeline}", "the monitor no longer has any data about it")
    if arguments.json:
        print_json(as_document(state))
        return
    _print_status(state)
    if reader.bad:
        note(f"note: {sum(reader.bad.values())} values in the monitor are not valid records and were skipped")


def _print_status(state: Snapshot) -> None:
    ago = f", last data {time.time() - state.heard:.0f} s ago" if state.heard else ""
    headline(f"{state.info.pipeline}: {state.life.doing if state.life else 'unknown'}{ago}")
    out = console()
    if state.batch:
        silent = silence(state, time.time())
        late = "" if silent is None else f"; no output for {silent:.0f} s, the deadline has passed"
        out.print(f"batch {state.batch.batch}, {state.batch.status}, OF {state.batch.of:.4f}{late}", soft_wrap=True)
    if state.incident:
        out.print(as_text(f"incident {state.incident.id}: {', '.join(state.incident.nodes)} lost"), soft_wrap=True)
    rows = table("task", "state", "node", "rack", "replica", "in/s", "out/s", "checkpoint", right=["in/s", "out/s"])
    for task in state.tasks:
        age = "-" if task.checkpoint_age is None else f"{counted(task.checkpoint_age, 'batch', 'batches')} ago"
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
            f"{incident.until - incident.since:.1f}" if incident.until else "open",
            ", ".join(incident.nodes),
            "-" if incident.predicted is None else f"{incident.predicted:.4f}",
            "-" if incident.accuracy is None else f"{incident.accuracy:.4f}",
        )
        rows.add_row(*map(as_text, cells))
    console().print(rows)


def write_report(arguments: argparse.Namespace) -> None:
    if arguments.html is None and not arguments.json:
        raise RequestError("--html", "missing; give the file to write, or use --json")
    found = _report(_reader(arguments), arguments.pipeline, arguments.incident)
    if arguments.html is not None:
        from monitoring import report  # here, because plotly is slow to load

        try:
            arguments.html.write_text(report.html(found), encoding="utf-8")
        except OSError as error:
            raise RequestError(str(arguments.html), f"cannot be written: {error.strerror}") from error
        note(f"incident {found.incident.id} of {found.info.name}: {arguments.html}")
    if arguments.json:
        print_json(as_document(found))


def _report(reader: MonitorReader, name: str | None, id_: str) -> IncidentReport:
    """The incident with that id, of the given pipeline or of any."""
    for pipeline in [reader.find(name)] if name else reader.pipelines():
        known = reader.incidents(pipeline, 1) if id_ == "last" else []
        found = reader.incident(pipeline, known[-1].id if known else id_)
        if found is not None:
            return found
    raise RequestError(f"incident {id_[:60]!r}", "unknown incident; `python -m monitoring incidents` lists them")
