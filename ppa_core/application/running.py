"""`run`: runs a pipeline on Spark, in a separate driver process, until it ends or is stopped."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, TextIO

from ppa_core.application.config import RunConfig
from ppa_core.application.preparing import alone, check_empty, check_folder
from ppa_core.application.stopping import stopping
from ppa_core.driver.config import Config
from ppa_core.driver.host import new_run_id
from ppa_core.driver.output_log import OutputLog
from ppa_core.driver.records import Settings
from ppa_core.driver.session import check_master
from ppa_core.engine.event_codec import as_document
from ppa_core.engine.run_events import OutputPublished, RunEvent
from ppa_core.errors import BadInput
from ppa_core.nodes.embedded import launch, launch_witness
from ppa_core.nodes.health import check_nodes
from ppa_core.nodes.lease import new_owner
from ppa_core.pipeline.definition import Pipeline
from ppa_core.pipeline.sinks import open_sink
from ppa_core.pipeline.sinks.console import Console
from ppa_core.pipeline.sinks.records import SinkRecord
from ppa_core.pipeline.sources.live import passing_run
from ppa_core.placement.files import load_cluster
from ppa_core.planners import plan
from ppa_core.process.driver import DriverExited
from ppa_core.process.run import SupervisedRun, is_ordinary
from ppa_core.queries import load_query
from ppa_core.queries.own import being_loaded
from ppa_core.safety.owned import temporary
from ppa_core.terminal import logs
from ppa_core.terminal.output import note
from ppa_core.terminal.printing import Dropped, Printing

OnEvent = Callable[[dict[str, Any]], None]
EventHandler = Callable[[RunEvent | Dropped], None]

CONSOLE = "console"
KEPT = 1_000
"""Number of batches whose outputs are kept in a temporary run folder."""


def run(
    query: str | Callable[..., Pipeline],
    config: RunConfig | None = None,
    on_event: OnEvent | None = None,
    *,
    printed_to: TextIO | None = None,
) -> None:
    """Run a pipeline on Spark until it ends, or until SIGTERM or Ctrl-C stops it after the current batch.

    The pipeline is a built-in query (`"q1"`), a function in a file (`"words.py:words"`), or a function at the top level of a
    file that returns a pipeline. The driver is a separate process that imports this file: a file that calls `run` must do so
    below `if __name__ == "__main__":`. `on_event` is called in a separate thread with a dictionary for each event, the same
    that `run --json` prints. The sink `console` prints to standard output, or to `printed_to`.

    Raises BadInput for invalid arguments or input, Unavailable if something required is missing or does not respond, and
    PpaError if the run fails.
    """
    run_with_events(query, config or RunConfig(), _documents(on_event) if on_event is not None else None, printed_to)


def run_with_events(
    query: str | Callable[..., Pipeline],
    config: RunConfig,
    handle: EventHandler | None = None,
    printed_to: TextIO | None = None,
) -> None:
    """Like `run`, but `handle` is called with event objects instead of dictionaries."""
    name = query_name(query)
    with ExitStack() as stack:
        if config.nodes_file:
            nodes, embedded = load_cluster(str(config.nodes_file)).nodes, None
        else:
            embedded = stack.enter_context(launch(config.primaries, config.standbys, config.racks, config.memory))
            nodes = embedded.cluster.nodes
        folder = Path(config.output or stack.enter_context(temporary("ppa-run-")))
        run_on(name, config, nodes, embedded, folder, handle, printed_to)


def query_name(query: str | Callable[..., Pipeline]) -> str:
    """The name by which the driver process finds a pipeline: a built-in query, or a file or module and a function."""
    loading = being_loaded()
    if loading is not None:
        raise BadInput(loading, 'it calls run when it is imported; put the call below `if __name__ == "__main__":`')
    if isinstance(query, str):
        return query
    if not callable(query):
        raise BadInput(
            "the pipeline",
            f"got {type(query).__name__}; the driver is a separate process: pass the function that returns the pipeline, "
            "or its name, such as 'words.py:words'",
        )
    name, module = getattr(query, "__name__", ""), sys.modules.get(getattr(query, "__module__", None) or "")
    if module is None or getattr(module, name, None) is not query:
        raise BadInput(
            f"the pipeline {name or type(query).__name__!r}",
            "the driver is a separate process and cannot import it; define it as a function at the top level of a file",
        )
    called = module.__spec__.name if module.__spec__ else module.__name__  # `python -m` calls it __main__
    if "." in called:  # part of a package
        return f"{called}:{name}"
    path = None
    with suppress(TypeError):  # written in C
        path = inspect.getsourcefile(query)
    if path is None or not Path(path).is_file():
        raise BadInput(
            f"the pipeline {name!r}", "it is not defined in a file; the driver is a separate process and cannot import it"
        )
    return f"{Path(path).resolve()}:{name}"


def run_on(
    name: str,
    wanted: RunConfig,
    nodes: Sequence[Any],
    embedded: Any,
    folder: Path,
    handle: EventHandler | None = None,
    printed_to: TextIO | None = None,
) -> None:
    """Plan, start the driver and wait until it ends; SIGTERM and Ctrl-C stop it after the current batch."""
    check_master(wanted.master)
    query = load_query(name, **wanted.options)
    for text in wanted.sinks:
        if not wanted.name:
            check_empty(text)
        open_sink(text).close()  # report errors before anything is started
    check_folder(folder, embedded)
    for reason in check_nodes(nodes, wanted.patched_redis):  # before Spark is started, which takes a while
        note(f"a node does not answer: {reason}")
    chosen = plan(query.pipeline.topology(), wanted.budget, wanted.planner, wanted.metric)
    note(f"{name}: {len(chosen.tasks)} replicas, worst-case OF {chosen.of:.4f}")
    settings = Settings(
        wanted.partitions, wanted.checkpoint_every, wanted.sync_every, batches=wanted.batches,
        replan_every=wanted.replan_every, replan_gain=wanted.replan_gain, deadline=wanted.deadline,
    )  # fmt: skip
    config = Config(
        name, dict(wanted.options), tuple(nodes), chosen.tasks, settings, wanted.name or new_run_id(), folder,
        wanted.master, wanted.budget, wanted.planner, wanted.metric,
        tuple(sink for sink in wanted.sinks if sink != CONSOLE), keep=None if wanted.output else KEPT,
        detailed=wanted.monitored, owner=new_owner(), trusted_network=wanted.trusted_network,
        log_level=wanted.log_level, strict_lease=wanted.standby_driver,
    )  # fmt: skip
    logs.of_run(config.run_id)
    with ExitStack() as stack:
        printing = stack.enter_context(Printing[RunEvent](ordinary=is_ordinary))
        if handle is not None:
            printing.add(handle)
        listeners: list[Callable[[RunEvent], None]] = [printing]
        if CONSOLE in wanted.sinks:
            printing.add(_printer(config, printed_to))
        if wanted.standby_driver:
            config = replace(config, witness=stack.enter_context(launch_witness(config.nodes)))
        stack.enter_context(alone(config))
        if embedded is not None:  # the run cannot be resumed once its nodes are gone
            stack.enter_context(passing_run(query.pipeline, config.run_id))
        attached = None
        if wanted.monitored:
            from ppa_core.application.monitored import attach

            attached = stack.enter_context(attach(wanted, config, query, chosen, embedded))
            listeners.append(attached.handle)

        def handle_all(event: RunEvent) -> None:
            for listener in listeners:
                listener(event)

        supervised = SupervisedRun(config, handle_all)
        if attached is not None:
            attached.take_commands(supervised)
        stack.enter_context(stopping(supervised))
        try:
            supervised.run()
        except DriverExited as error:
            raise error if wanted.output else error.kept(config.run_id) from None


def document(event: RunEvent | Dropped) -> dict[str, Any]:
    """An event as `run --json` prints it."""
    return {"kind": "dropped", "lines": event.lines} if isinstance(event, Dropped) else as_document(event)


def _documents(on_event: OnEvent) -> EventHandler:
    """A handler that passes events on as dictionaries."""

    def handle(event: RunEvent | Dropped) -> None:
        on_event(document(event))

    return handle


def _printer(config: Config, out: TextIO | None) -> EventHandler:
    """A handler that prints outputs. The driver cannot: it is another process, whose standard output is a pipe for events."""
    log = OutputLog(config.folder / "outputs", config.keep)
    printed = Console(out=out)

    def handle(event: RunEvent | Dropped) -> None:
        match event:
            case OutputPublished(at, batch, revision, status, of, missing):
                printed(SinkRecord(batch, revision, status, of, missing, log.read(batch, revision), at))

    return handle
