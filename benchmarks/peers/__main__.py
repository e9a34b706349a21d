"""`python -m benchmarks.peers`: the same work and the same failures in PPA, Flink and Spark, in one table."""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import sys
import time
from pathlib import Path

import psutil
from rich.console import Console
from rich.table import Table

from benchmarks.peers.cases import FAILURES, SYSTEMS, Case, cases
from benchmarks.peers.measure import figures
from benchmarks.peers.others import Others
from benchmarks.peers.table import Measured, picture, rows
from ppa_core.errors import PpaError
from ppa_core.plots import write_figure

IDLE = 0.2
"""The share of the machine that may be busy with other things when a run starts."""
_LOOK_SECONDS = 3.0


def main() -> int:
    parser = argparse.ArgumentParser(prog="benchmarks.peers", description=__doc__)
    parser.add_argument("--times", type=int, default=3, help="how often each failure is measured (default 3)")
    parser.add_argument("--only", choices=SYSTEMS, action="append", help="this system only; can be repeated")
    parser.add_argument("--fail", choices=FAILURES, action="append", help="this failure only; can be repeated")
    parser.add_argument("--output", type=Path, default=Path("build/peers.json"), help="write the JSON to this file")
    parser.add_argument(
        "--folder", type=Path, default=Path("build/peers"), help="where Flink is installed (default build/peers)"
    )
    parser.add_argument(
        "--wait", type=float, default=120, help="wait up to so many seconds before each run until the machine is idle"
    )
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C: everything is stopped and removed
    runs: list[Measured] = []
    failed = 0
    try:
        chosen = list(cases(tuple(options.only or SYSTEMS), options.folder, say))
        for number in range(1, options.times + 1):  # round by round, so that a change of the machine's load hits all alike
            for case in chosen:
                for how in options.fail or FAILURES:
                    quiet(options.wait)
                    say(f"run {number} of {options.times}: {case.system}, {how}")
                    try:
                        runs += measured(case, how)
                    except PpaError as error:
                        failed += 1
                        say(f"not measured: {error}")
                    save(options.output, runs)
    except KeyboardInterrupt:
        say("stopped")
    except PpaError as error:
        print(f"benchmarks.peers: {error}", file=sys.stderr)
        return 1
    if runs:
        show(runs, options.output)
    return 1 if failed or not runs else 0


def quiet(seconds: float) -> None:
    """Wait until the machine is idle, but no longer than this."""
    end = time.monotonic() + seconds
    while psutil.cpu_percent(interval=_LOOK_SECONDS) > IDLE * 100 and time.monotonic() < end:
        pass


def measured(case: Case, how: str) -> list[Measured]:
    """One run, at each of the system's sinks."""
    with Others() as others:
        seen, end = case.run(how)
    found = [Measured(case.system, how, sink, round(others.share, 2), figures(one, end)) for sink, one in seen.items()]
    for one in found:
        back = "not back" if one.figures.back is None else f"back after {one.figures.back:.1f} s"
        say(f"  {one.sink}: silence {one.figures.silence:.1f} s, latency {back}; others took {one.others:.0%} of the machine")
    return found


def save(path: Path, runs: list[Measured]) -> None:
    """Write all that was measured so far."""
    path.parent.mkdir(parents=True, exist_ok=True)
    machine = f"{platform.machine()}, {os.cpu_count()} cores"
    content = {"machine": machine, "table": rows(runs), "runs": [run.as_json() for run in runs]}
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def show(runs: list[Measured], path: Path) -> None:
    """Print the table, and write the plot beside the JSON."""
    found = rows(runs)
    table = Table(title="One of three hosts fails", title_justify="left")
    for column in found[0]:
        table.add_column(column, justify="left" if isinstance(found[0][column], str) else "right")
    for row in found:
        table.add_row(*map(str, row.values()))
    console = Console(width=max(190, Console().width))
    console.print(table)
    drawn = path.with_suffix(".png")
    write_figure(picture(found), drawn)
    console.print(f"saved {path}, {drawn}", soft_wrap=True)


def say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
