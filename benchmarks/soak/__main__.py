"""`python -m benchmarks.soak --hours 1 --seed 1`: run a soak, check it, and write its report."""

from __future__ import annotations

import argparse
import json
import secrets
import signal
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.soak import page, running
from benchmarks.soak.checking import check
from benchmarks.soak.summary import document
from ppa_core.drills.baseline import tables
from ppa_core.driver.output_log import OutputLog
from ppa_core.errors import PpaError
from ppa_core.pipeline.tables import digest, encode
from ppa_core.plots import write_figure
from ppa_core.queries import load_query


def main() -> int:
    parser = argparse.ArgumentParser(prog="benchmarks.soak", description="A pipeline on the test bed under random failures.")
    parser.add_argument("--hours", type=float, default=1.0, help="how long (default 1)")
    parser.add_argument("--seed", type=int, help="which failures, and when (default: a random one)")
    parser.add_argument(
        "--interval", type=float, default=1.0, help="seconds between batches; more on a busy machine (default 1)"
    )
    parser.add_argument("--output", type=Path, default=Path("build/soak"), help="folder for the report (default build/soak)")
    parser.add_argument("--report", type=Path, metavar="FOLDER", help="write soak.md and images/soak.png there too, as in docs")
    arguments = parser.parse_args()
    seed = secrets.randbelow(1_000_000) if arguments.seed is None else arguments.seed
    say(f"seed {seed}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # the driver and the test bed are closed
    run_folder = arguments.output / f"run-{int(time.time())}"
    run_folder.mkdir(parents=True)
    try:
        batches = max(1, round(arguments.hours * 3600 / arguments.interval))
        found = measured(running.Soak(batches, seed, arguments.interval), run_folder)
    except PpaError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    (arguments.output / "soak.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    write(found, arguments.output, "soak.png")
    if arguments.report:
        (arguments.report / "images").mkdir(parents=True, exist_ok=True)
        write(found, arguments.report, "images/soak.png")
    for name, value in page.figures(found).items():
        print(f"{name}: {value}")
    say(f"the report is in {arguments.output}, the run's files are in {run_folder}")
    return 0 if found["good"] else 1


def measured(soak: running.Soak, folder: Path) -> dict[str, Any]:
    """Run a soak, and compare it with a run without failures."""
    running.run(soak, folder, say)
    say("the same batches without failures")
    batches = soak.batches
    expected = [digest(encode(table)) for table in tables(load_query("tree", **running.options()).pipeline, batches)]
    log = OutputLog(folder / "outputs")

    def stored(batch: int, revision: int) -> str | None:
        path = log.path(batch, revision)
        return digest(path.read_bytes()) if path.exists() else None

    return document(soak, check(soak.seen.events, expected, stored))


def write(found: dict[str, Any], folder: Path, picture: str) -> None:
    """Write the page and its picture."""
    (folder / "soak.md").write_text(page.markdown(found, picture), encoding="utf-8")
    write_figure(page.picture(found), folder / picture)


def say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
