"""Commands that run pipelines: `run` and `drill`."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ppa_core.application.config import RunConfig
from ppa_core.engine import run_events as e
from ppa_core.engine.event_codec import kind_of
from ppa_core.engine.run_events import RunEvent
from ppa_core.errors import BadInput
from ppa_core.home import FOLDER
from ppa_core.planners import DEFAULT, PLANNERS
from ppa_core.terminal import logs
from ppa_core.terminal.arguments import add_metric, hosts_and_racks, natural, number, positive, run_name, seconds, whole
from ppa_core.terminal.output import as_text, console, note, print_json
from ppa_core.terminal.printing import Dropped, Printing

if TYPE_CHECKING:
    from ppa_core.drills.drill import DrillEvent


def register(commands: Any) -> None:
    runner = commands.add_parser("run", help="run a pipeline on Spark until stopped")
    add_common(runner)
    runner.add_argument("--batches", type=positive, metavar="N", help="stop after N batches (default: run until stopped)")
    runner.add_argument(
        "--nodes-file", metavar="FILE", help="JSON file with the nodes' URLs, racks and roles (default: embedded nodes)"
    )
    runner.add_argument(
        "--output", metavar="FOLDER", help="folder for the outputs (default: a temporary folder, removed after the run)"
    )
    add_run_options(runner)
    runner.set_defaults(command=run_pipeline)

    drill = commands.add_parser("drill", help="run a pipeline, make real processes fail, wait for recovery, and print a report")
    add_common(drill)
    drill.add_argument("--batches", type=positive, default=40, metavar="N", help="batches to run (default: 40)")
    drill.add_argument(
        "--fail", action="append", default=[], metavar="WHAT",
        help="none, primaries, standbys, driver, executor, worker, rack:NAME, host:NAME or node:NAME[,NAME]; may be repeated",
    )  # fmt: skip
    drill.add_argument(
        "--how", action="append", default=[], metavar="HOW",
        help="kill: the process dies; hang: it stops and says nothing (SIGSTOP); slow:MS: its answers are delayed by MS "
        "milliseconds; one --how for each --fail, or one for all (default: kill)",
    )  # fmt: skip
    drill.add_argument(
        "--for", action="append", type=seconds, default=[], metavar="S", dest="seconds",
        help="what hangs or is slow is as before after S seconds; what was killed is started again, empty "
        "(default: it stays so)",
    )  # fmt: skip
    drill.add_argument(
        "--at",
        type=whole,
        action="append",
        default=[],
        metavar="BATCH",
        help="kill after this batch; one --at for each --fail, in the same order",
    )
    drill.add_argument(
        "--testbed", type=hosts_and_racks, metavar="HOSTS:RACKS",
        help="run on a test bed of hosts with a network of their own, such as 4:2 (needs root and iproute2); then --how cut "
        "takes the link of a host or rack down",
    )  # fmt: skip
    drill.add_argument(
        "--technique", default="ppa", choices=["ppa", "source-replay"],
        help="source-replay: no replicas and no checkpoints; lost tasks are rebuilt from the source (default: ppa)",
    )  # fmt: skip
    drill.set_defaults(command=run_drill)


def add_run_options(parser: argparse.ArgumentParser) -> None:
    """Options of `run` and `serve`, but not of `drill`."""
    parser.add_argument(
        "--sink", action="append", default=[], metavar="SINK",
        help="where to write outputs: jsonl:FOLDER, parquet:FOLDER, redis://HOST:PORT#KEY or console; may be repeated. "
        "Set a password with PPA_SINK_PASSWORD, or in a file: redis://HOST:PORT?password-file=FILE#KEY",
    )  # fmt: skip
    parser.add_argument(
        "--name",
        type=run_name,
        metavar="RUN",
        help="name of the run; a run with the same name, nodes and output folder is resumed",
    )
    parser.add_argument("--monitor", action="store_true", help="send events to the monitor, and take commands from it")
    parser.add_argument(
        "--monitor-url",
        metavar="URL",
        help="URL of the monitor's Redis (default: PPA_MONITOR_URL, which other users cannot see; else an embedded monitor)",
    )
    parser.add_argument(
        "--monitor-directory", default=str(FOLDER / "monitor"), metavar="FOLDER", help="folder of the embedded monitor"
    )
    parser.add_argument(
        "--patched-redis", action="store_true",
        help="confirm that your nodes and monitor have the fixes for CVE-2025-49844 and CVE-2025-21605, whatever their version",
    )  # fmt: skip


def add_common(parser: argparse.ArgumentParser, budget: str = "0") -> None:
    """Options of `run`, `serve` and `drill`; `budget` is the default budget as the help shows it."""
    parser.add_argument("query", metavar="QUERY", help="the pipeline: tree, q1, q2, or your own as FILE.py:FUNCTION")
    parser.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", dest="more",
        help="set an option of the query; the value is JSON or a string; may be repeated",
    )  # fmt: skip
    parser.add_argument(
        "--budget",
        type=whole,
        default=0,
        metavar="R",
        help=f"maximum number of tasks with an active replica (default: {budget})",
    )
    parser.add_argument(
        "--planner", default=DEFAULT, choices=list(PLANNERS), help=f"planner that chooses these tasks (default: {DEFAULT})"
    )
    add_metric(parser)
    parser.add_argument("--rate", type=number, metavar="T", help="tuples/s of each source task (default: the query's)")
    parser.add_argument("--window", type=number, metavar="S", help="window in seconds (default: the query's)")
    parser.add_argument("--interval", type=number, metavar="S", help="batch interval in seconds (default: the query's)")
    parser.add_argument(
        "--deadline", type=seconds, metavar="S",
        help="every batch has an output S seconds after the end of its interval, tentative if it must be "
        "(default: two intervals)",
    )  # fmt: skip
    parser.add_argument(
        "--standby-driver", action="store_true",
        help="keep a second driver ready, which takes over within seconds if the driver dies or hangs",
    )  # fmt: skip
    parser.add_argument(
        "--checkpoint-every", type=positive, default=15, metavar="K", help="checkpoint interval in batches (default: 15)"
    )
    parser.add_argument(
        "--sync-every", type=positive, default=1, metavar="S", help="replica synchronisation interval in batches (default: 1)"
    )
    parser.add_argument(
        "--primaries", type=positive, default=4, metavar="N", help="number of embedded nodes for tasks (default: 4)"
    )
    parser.add_argument(
        "--standbys",
        type=positive,
        default=4,
        metavar="N",
        help="number of embedded nodes for replicas and checkpoints (default: 4)",
    )
    parser.add_argument(
        "--racks", type=positive, default=2, metavar="N", help="number of racks for primaries, and for standbys (default: 2)"
    )
    parser.add_argument(
        "--memory", type=positive, default=1024, metavar="MB", help="memory limit of each embedded node (default: 1024)"
    )
    parser.add_argument(
        "--replan-every",
        type=natural,
        default=0,
        metavar="N",
        help="plan again from the measured rates every N batches (default: 0, never)",
    )
    parser.add_argument(
        "--replan-gain",
        type=number,
        default=0.02,
        metavar="G",
        help="minimum gain in worst-case OF for a new plan (default: 0.02)",
    )
    parser.add_argument(
        "--partitions", type=positive, default=2, metavar="P", help="number of physical partitions (default: 2)"
    )
    parser.add_argument("--master", metavar="URL", help="Spark master (default: local, with 4 slots per partition)")
    parser.add_argument(
        "--trusted-network",
        action="store_true",
        help="accept a Spark cluster without authentication, because nobody else can reach it",
    )
    logs.add_log_options(parser)


def options_of(arguments: argparse.Namespace) -> dict[str, Any]:
    """The options of the query, from the command line."""
    named = {"rate": arguments.rate, "window": arguments.window, "batch_seconds": arguments.interval}
    found = {name: value for name, value in named.items() if value is not None}
    for text in arguments.more:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise BadInput(f"--set {text}", "not of the form NAME=VALUE")
        try:
            found[name] = json.loads(value)
        except ValueError:
            found[name] = value
    return found


def config_of(arguments: argparse.Namespace) -> RunConfig:
    """The run configuration, from the command line."""
    return RunConfig(
        options=options_of(arguments),
        sinks=arguments.sink,
        log_level=logs.settings_of(arguments).lowest,
        **{name: getattr(arguments, name) for name in _SAME_NAME},
    )


_SAME_NAME = (
    "budget", "planner", "metric", "batches", "output", "name", "nodes_file", "primaries", "standbys", "racks", "memory",
    "deadline", "standby_driver", "checkpoint_every", "sync_every", "replan_every", "replan_gain", "partitions", "master",
    "trusted_network", "monitor", "monitor_url", "monitor_directory", "patched_redis",
)  # fmt: skip


def run_pipeline(arguments: argparse.Namespace) -> None:
    """Start nodes, a driver process and, with --monitor, the monitor; all end together."""
    from ppa_core.application.running import run_with_events

    printed_to = sys.stderr if arguments.json else None
    run_with_events(arguments.query, config_of(arguments), event_printer(arguments.json), printed_to)


def event_printer(as_json: bool) -> Callable[[RunEvent | Dropped], None]:
    """A function that prints events: one line per batch, and unusual events."""
    if as_json:
        from ppa_core.application.running import document

        return lambda event: print_json(document(event))
    return _print_event


def _print_event(event: RunEvent | Dropped) -> None:
    match event:
        case e.BatchFinished(_, batch, seconds, _, source_rows):
            rate = source_rows / seconds if seconds else 0
            console().print(f"  batch {batch:6}  {seconds:6.2f} s  {source_rows:10,} tuples  {rate:12,.0f} tuples/s")
            if event.refused:
                named = "; ".join(event.refusals) + ("; …" if event.refused > len(event.refusals) else "")
                _print_unusual(f"batch {batch:6}  {event.refused} rows refused: {named}", "yellow")
        case e.Starting(what=what):
            note(f"starting {what} …")
        case e.OutputPublished(_, batch, _, status, of, missing) if status != "accurate":
            gone = f"  {len(missing)} tasks missing" if missing else ""
            _print_unusual(f"batch {batch:6}  {status}  OF {of:.4f}{gone}", "yellow")
        case Dropped(lines):
            note(f"{lines} lines were dropped: standard output or standard error was blocked")
        case e.CopyLost(node=node, task=task):
            _print_unusual(f"copy lost: {task} on {node} was damaged", "yellow")
        case e.NodeLost(node=what, suspected=True):
            _print_unusual(f"node suspected: {what} does not answer; the run continues without it", "red")
        case e.NodeLost(node=what) | e.DriverDied(reason=what):
            _print_unusual(f"{kind_of(event)}: {what}", "red")
        case e.NodeBack(node=what) | e.PlanChanged(reason=what):
            _print_unusual(f"{kind_of(event)}: {what}", "green")
        case e.Recovered(tasks=tasks):
            _print_unusual(f"{kind_of(event)}: {len(tasks)} tasks", "green")
        case e.DriverRestarted(missing=tasks):
            _print_unusual(f"{kind_of(event)}: {len(tasks)} tasks missing", "green")
        case e.Paused() | e.Resumed() | e.StandbyReady() | e.DriverTookOver():
            _print_unusual(kind_of(event), "green")


def _print_unusual(text: str, style: str) -> None:
    console().print(as_text(f"! {text}"), style=style, markup=False)


def run_drill(arguments: argparse.Namespace) -> None:
    from ppa_core.drills.drill import Setup, drill
    from ppa_core.drills.failures import PlannedFailure
    from ppa_core.driver.records import Settings
    from ppa_core.process.run import is_ordinary

    if len(arguments.fail) != len(arguments.at) and any(what != "none" for what in arguments.fail):
        raise BadInput(
            "--fail and --at", f"{len(arguments.fail)} --fail and {len(arguments.at)} --at; give one --at for each --fail"
        )
    hows = _each(arguments.how, "--how", len(arguments.fail), "kill")
    lengths = _each(arguments.seconds, "--for", len(arguments.fail), None)
    failures = tuple(map(PlannedFailure, arguments.fail, arguments.at or [0], hows, lengths))
    for kill in failures:
        if kill.at >= arguments.batches - 1:
            after = f"there must be a batch after the failure, but the run has only {arguments.batches}"
            raise BadInput(f"--at {kill.at}", f"{after}; use a smaller number, or more --batches")
    settings = Settings(
        arguments.partitions, arguments.checkpoint_every, arguments.sync_every, batches=arguments.batches,
        replan_every=arguments.replan_every, replan_gain=arguments.replan_gain, deadline=arguments.deadline,
    )  # fmt: skip
    setup = Setup(
        arguments.query, options_of(arguments), arguments.budget, failures, settings, arguments.planner, arguments.metric,
        arguments.primaries, arguments.standbys, arguments.racks, arguments.memory, arguments.master, arguments.technique,
        arguments.trusted_network, logs.settings_of(arguments).lowest, arguments.testbed, arguments.standby_driver,
    )  # fmt: skip
    with Printing(_progress, ordinary=is_ordinary) as printing:
        report = drill(setup, printing)
    if arguments.json:
        print_json(report)
    else:
        _show(report)


def _each(given: list[Any], option: str, count: int, default: Any) -> list[Any]:
    """One value per --fail; a single one counts for all."""
    if len(given) not in (0, 1, count):
        raise BadInput(option, f"{len(given)} {option} and {count} --fail; give one for each --fail, or one for all")
    return given if len(given) == count else (given or [default]) * count


def _progress(event: DrillEvent | Dropped) -> None:
    from ppa_core.drills import drill

    match event:
        case e.OutputPublished(_, batch, _, status, of):
            note(f"batch {batch}: {status}" + (f", OF {of:.4f}" if status == "tentative" else ""))
        case drill.FailureInjected(failure, nodes):
            note(f"{failure.how} {failure.what}: {', '.join(nodes) or failure.what}")
        case drill.FailureEnded(failure):
            note(f"end of {failure.how} {failure.what}")
        case drill.DriverStartedAgain():
            note("driver restarted")
        case drill.BaselineStarted():
            note("baseline: the same input without failures")
        case e.NodeLost(node=node, suspected=suspected):
            note(f"node {'suspected' if suspected else 'lost'}: {node}")
        case e.NodeBack(node=node):
            note(f"node back: {node}")
        case e.DriverRestarted() | e.Recovered() | e.StandbyReady() | e.DriverTookOver():
            note(kind_of(event))


def _show(report: dict[str, Any]) -> None:
    shown = console()
    for name, value in report.items():
        if isinstance(value, dict):
            value = ", ".join(f"{k} {_short(v)}" for k, v in value.items())
        elif isinstance(value, list):
            value = ", ".join(map(str, value)) or "none"
        shown.print(f"{name:22} {_short(value)}", soft_wrap=True)


def _short(value: Any) -> str:
    return f"{value:.3f}" if isinstance(value, float) else "-" if value is None else str(value)
