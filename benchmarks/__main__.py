"""`python -m benchmarks`: measure, print the tables, save them as JSON and as plots."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from pathlib import Path

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from benchmarks import dashboard, engine, failures, pictures, queries, random_topologies, speed

PARTS = ("engine", "failures", "queries", "dashboard", "speed", "random")


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks", description="Measure the figures in README and docs.")
    parser.add_argument("--topologies", type=int, default=100, help="random topologies per setting (default 100)")
    parser.add_argument("--minutes", type=float, default=120, help="time limit for the random topologies (default 120)")
    parser.add_argument(
        "--workers", type=int, default=os.cpu_count() or 1, help="number of processes for the random topologies"
    )
    parser.add_argument("--times", type=int, default=5, help="how often each failure is measured (default 5)")
    parser.add_argument("--only", choices=PARTS, help="run one part only")
    parser.add_argument("--output", type=Path, default=Path("build/bench.json"), help="write the JSON to this file")
    parser.add_argument(
        "--memory-minutes", type=float, default=10, help="how long memory use is measured (default 10; 0: skip)"
    )
    options = parser.parse_args()
    console = Console(width=max(160, Console().width))
    result: dict[str, object] = {
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "python": platform.python_version(),
    }
    with Progress(console=Console(stderr=True)) as progress:
        bar = progress.add_task("engine", total=None)

        def say(text: str) -> None:
            progress.update(bar, description=text)
            if not sys.stderr.isatty():
                print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)

        if options.only in (None, "engine"):
            result["engine"] = engine.rows(say, options.memory_minutes)
        if options.only in (None, "failures"):
            result["failures"] = failures.rows(say, options.times)
        if options.only in (None, "queries"):
            result |= queries.tables(say)
        if options.only in (None, "dashboard"):
            say("dashboard")
            result["dashboard"] = dashboard.rows()
        progress.update(bar, total=1, completed=1, description="engine, queries, dashboard")
        if options.only in (None, "speed"):
            bar = progress.add_task("speed", total=None)
            result["fidelity"] = speed.fidelity_rows()
            result["planners"] = speed.planner_rows(lambda text: progress.update(bar, description=text))
            progress.update(bar, total=1, completed=1, description="speed")
        if options.only in (None, "random"):
            bar = progress.add_task("random topologies")
            cases = []
            for done, total, case in random_topologies.run(options.topologies, options.workers, options.minutes):
                cases.append(case)
                progress.update(bar, completed=done, total=total)
            result["random_topologies"] = random_topologies.rows(cases)
            result["summary"] = random_topologies.summary(cases)
    show(console, result)
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    written = pictures.write(result, options.output.parent)
    console.print(f"saved {options.output}{''.join(f', {path}' for path in written)}", soft_wrap=True)


def show(console: Console, result: dict[str, object]) -> None:
    """The tables of a result."""
    for name, title in (
        ("engine", "The engine"),
        ("failures", "Failures: longest silence of the output, the normal interval of 1 s included"),
        ("queries", "The queries"),
        ("accuracy", "Predicted OF and measured accuracy, all primaries killed"),
        ("dashboard", "The dashboard"),
        ("fidelity", "Fidelity: seconds by number of tasks"),
        ("planners", "Planners: seconds by number of tasks, budget 30 %"),
        ("random_topologies", "Random topologies: mean OF, gap to the optimum, share proven"),
    ):
        rows = result.get(name)
        if isinstance(rows, list) and rows:
            table = Table(title=title, title_justify="left")
            for column in rows[0]:
                table.add_column(str(column), justify="right" if column not in _TEXTS else "left")
            for row in rows:
                table.add_row(*(_text(column, value) for column, value in row.items()))
            console.print(table)
    summary = result.get("summary")
    if isinstance(summary, dict):
        table = Table(title="Summary", title_justify="left")
        table.add_column("figure")
        table.add_column("value", justify="right")
        for name, value in summary.items():
            table.add_row(name, _text(name, value))
        console.print(table)


_TEXTS = (
    "failure",
    "rate",
    "equal",
    "experiment",
    "setting",
    "planner",
    "figure",
    "wanted",
    "reached",
    "more",
    "query",
    "metric",
)


def _text(column: str, value: object) -> str:
    if not isinstance(value, float):
        return str(value)
    return f"{value:.1%}" if "gap" in column or "proven" in column else f"{value:.3g}" if value < 0.01 else f"{value:.3f}"


if __name__ == "__main__":
    main()
