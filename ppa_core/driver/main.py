"""The driver process: a host in a separate process. It reads its configuration and commands, and reports events.

`python -m ppa_core.driver.main [PIPE]` reads one JSON document, then commands, one per line, and writes a JSON line for every
event (`ppa_core/engine/run_events.py`), and twice a second a byte to PIPE: its pulse. It ends when its input ends, because then
its parent process is gone. Outputs go to `outputs/` in the run's folder. Started again with the same document, it resumes the
run. A standby driver does everything that can be done beforehand, and waits until the lease of the one that runs expires, or
its parent sends `take over`.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, closing, suppress
from typing import Any

from msgspec.structs import replace

from ppa_core.driver.config import RESUMABLE, TAKE_OVER, Config
from ppa_core.driver.outbox import Outbox
from ppa_core.driver.output_log import OutputLog
from ppa_core.driver.records import PublishedOutput
from ppa_core.engine import run_events
from ppa_core.engine.event_codec import as_document, cut, encode, kind_of
from ppa_core.engine.event_fields import MOST_REASON
from ppa_core.engine.run_events import RunEvent
from ppa_core.errors import BadInput, PpaError, Unavailable
from ppa_core.nodes.errors import LeaseLost
from ppa_core.nodes.lease import Lease
from ppa_core.pipeline.sinks.records import Sink
from ppa_core.queries import load_query
from ppa_core.safety.masking import masked
from ppa_core.terminal import logs

Report = Callable[[RunEvent], None]
Commands = Callable[[], dict[str, Any] | None]
Lost = Callable[[PpaError], None]

_PULSE_SECONDS = 0.5
_ORPHAN_SECONDS = 15.0
_LAST_WORDS = 2.0
"""Seconds to write the last events before the process ends."""

_log = logging.getLogger("ppa_core.driver.main")  # as a program this module has another name


def run(
    config: Config,
    report: Report,
    commands: Commands | None = None,
    lost: Lost = lambda error: None,
    outbox: Outbox | None = None,
) -> None:
    """Run a config to its end in this process; `report` is called with every event, in one thread.

    `commands` waits for the next command; None means that there are no more and the run should stop. `lost` is called if
    another driver has taken over the run.
    """
    outbox = outbox or Outbox()
    about = (config.nodes, config.run_id, config.owner, lost)
    lease = Lease(*about, strict=config.strict_lease, witness=config.witness)
    try:
        with ExitStack() as stack:
            if not config.standby:  # before Spark is started: who is refused is told at once
                stack.enter_context(lease)
            _run(config, report, commands, lease, outbox, stack)
    except LeaseLost as error:
        if config.strict_lease and lease.epoch:  # the standby driver has taken over
            lost(error)
        raise
    finally:
        outbox.flush()


def _run(config: Config, report: Report, commands: Commands | None, lease: Lease, outbox: Outbox, stack: ExitStack) -> None:
    from ppa_core.driver.commands import report_numbers, run_commands
    from ppa_core.driver.controls import Controls
    from ppa_core.driver.host import Host
    from ppa_core.driver.progress import Listener
    from ppa_core.driver.session import check_reach, open_session
    from ppa_core.engine.intent import PlanRequest
    from ppa_core.pipeline.sinks import open_sink
    from ppa_core.pipeline.sources.live import of_run

    query = load_query(config.query, **config.options)
    pipeline = of_run(query.pipeline, config.input or config.run_id)
    log = OutputLog(config.folder / "outputs", config.keep)
    sinks: list[Sink] = []
    check_reach(config.master, config.nodes)

    def later(event: RunEvent) -> None:
        outbox.put(lambda: report(event), publishes=False)

    later(run_events.Starting(time.time(), -1, "Spark's session"))
    spark = open_session(config.master, config.settings.partitions, config.trusted_network)
    later(run_events.Starting(time.time(), -1, "its workers, and the first batch"))

    def watch(seen: PublishedOutput | RunEvent) -> None:
        _log_seen(seen)
        if isinstance(seen, PublishedOutput):
            lease.ensure_held()
            for sink in sinks:
                sink(seen)
            report(log.write(seen))
        elif (event := reported(seen, config.detailed)) is not None:
            report(event)

    plan, resumable = frozenset(config.plan), config.folder / RESUMABLE
    about = (config.settings, watch, config.run_id, resumable, outbox)
    host = Host(spark, pipeline, config.nodes, plan, *about, strict=config.strict_lease, witness=config.witness)
    controls = Controls(host, PlanRequest(config.budget, config.planner, config.metric))
    lease.stopping, turn = host.stopping, threading.Event()
    if commands is not None:
        threading.Thread(target=run_commands, args=(_turns(commands, turn), controls, later), daemon=True).start()
    if commands is not None and config.detailed:
        threading.Thread(target=report_numbers, args=(controls, later), daemon=True).start()
    host.prepare()
    if config.detailed:
        spark.streams.addListener(Listener(later, lambda: host.batches.first))
    if config.standby:
        later(run_events.StandbyReady(time.time(), -1))
        if not lease.follow(host.stopping, turn):
            return
        stack.enter_context(lease)
        later(run_events.DriverTookOver(time.time(), -1, lease.epoch))
    sinks += [stack.enter_context(closing(open_sink(text, lease.epoch))) for text in config.sinks]
    try:
        host.run(lease.epoch)
    finally:
        outbox.flush()
    later(run_events.Ended(time.time(), host.machine.head))


def _turns(commands: Commands, turn: threading.Event) -> Commands:
    """The commands without `take over`, which sets `turn`."""

    def following() -> dict[str, Any] | None:
        while (command := commands()) is not None and command.get("do") == TAKE_OVER:
            turn.set()
        return command

    return following


def reported(event: RunEvent, detailed: bool) -> RunEvent | None:
    """An event as the driver reports it: without passwords, and unless `detailed`, without details; None if it is not
    reported."""
    match event:
        case run_events.Heartbeat() | run_events.StandingChanged() | run_events.RatesMeasured() if not detailed:
            return None
        case run_events.BatchFinished() if not detailed:
            return replace(event, stats=None)
        case (
            run_events.NodeLost()
            | run_events.JobFailed()
            | run_events.StreamRestarted()
            | run_events.PlanningFailed()
            | run_events.PlanChanged()
        ):
            return replace(event, reason=cut(masked(event.reason)))
    return event


def _log_seen(seen: PublishedOutput | RunEvent) -> None:
    match seen:
        case PublishedOutput():
            level = logging.INFO if seen.missing else logging.DEBUG
            message = (
                "output: %s, revision %d, OF %.4f, %d tasks missing",
                seen.status,
                seen.revision,
                seen.of,
                len(seen.missing),
            )
            _log.log(level, *message, extra={"batch": seen.batch, "cause": seen.cause})
            return
        case run_events.BatchFinished() | run_events.Heartbeat() | run_events.Placed() | run_events.StandingChanged():
            level = logging.DEBUG
        case (
            run_events.NodeLost()
            | run_events.CopyLost()
            | run_events.JobFailed()
            | run_events.PlanningFailed()
            | run_events.StreamRestarted()
            | run_events.SourceSilent()
        ):
            level = logging.WARNING
        case _:
            level = logging.INFO
    if _log.isEnabledFor(level):
        figures = {name: value for name, value in as_document(seen).items() if name not in _COMMON}
        _log.log(level, "%s: %s", kind_of(seen), figures, extra={"batch": seen.batch, "cause": seen.cause})


_COMMON = ("kind", "at", "batch", "cause", "stats")


def main() -> int:
    config = Config.decode(sys.stdin.readline())
    config.hide_passwords()
    logs.of_run(config.run_id)
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever else is printed must not be mixed with the events
    outbox = Outbox()

    def write(line: bytes) -> None:
        """Called only in the outbox's thread, which may wait for the pipe."""
        out.write(line + b"\n")
        out.flush()

    def report(event: RunEvent) -> None:
        write(encode(event))

    def commands() -> dict[str, Any] | None:
        text = sys.stdin.readline()
        if not text:  # the parent process is gone, and this one ends soon, whatever it is doing
            threading.Timer(_ORPHAN_SECONDS, os._exit, (1,)).start()
        return json.loads(text) if text else None

    def last(event: RunEvent) -> None:
        outbox.put(lambda: report(event), publishes=False)
        outbox.flush(_LAST_WORDS)

    def lost(error: PpaError) -> None:
        """Exit at once: this driver must not write any more, because another one has taken over. If that is the standby driver,
        it is no error."""
        if not config.strict_lease:
            last(_failure(error))
        os._exit(1)

    def log(line: dict[str, Any]) -> None:
        outbox.put(lambda: write(json.dumps(line).encode()), publishes=False)

    if len(sys.argv) > 1:
        threading.Thread(target=_pulse, args=(int(sys.argv[1]),), name="ppa-pulse", daemon=True).start()
    with logs.configured(logs.LogSettings(config.log_level), log):
        try:
            run(config, report, commands, lost, outbox)
        except PpaError as error:
            _log.info("the run failed", exc_info=True)
            failure = _failure(error)
        except Exception:
            _log.exception("the driver failed")  # the parent process restarts it
            outbox.flush(_LAST_WORDS)
            raise
        else:
            return 0
    last(failure)
    return 1


def _pulse(pipe: int) -> None:
    """Show the parent process that this one is alive, whatever else waits for what."""
    with suppress(OSError):  # the parent has ended, and this process ends with its input
        while os.write(pipe, b"."):
            time.sleep(_PULSE_SECONDS)


def _failure(error: PpaError) -> RunEvent:
    reason = cut(error, MOST_REASON)
    if isinstance(error, Unavailable):
        return run_events.RunUnavailable(time.time(), -1, reason)
    place = (cut(error.place), cut(error.reason, MOST_REASON)) if isinstance(error, BadInput) else None
    return run_events.Failed(time.time(), -1, reason, place)


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    os._exit(code)  # Spark's threads would keep the process running
