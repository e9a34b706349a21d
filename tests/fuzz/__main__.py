"""`python -m tests.fuzz --minutes 5`: mutants of every kind, as many of one as of another, until the time is over.

What fails is kept in a file that says how to see it again: `--only KIND --seed SEED --round NUMBER`.
"""

from __future__ import annotations

import argparse
import faulthandler
import secrets
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from tests.fuzz.commands import signed_commands
from tests.fuzz.contents import node_contents
from tests.fuzz.monitored import monitor_values
from tests.fuzz.records import csv_records, json_records, log_records, parquet_records
from tests.fuzz.streams import stream_entries
from tests.fuzz.target import Open, Runner, Target, random_of
from tests.fuzz.topologies import topologies

TARGETS: dict[str, Open] = {
    "topologies": topologies,
    "csv": csv_records,
    "jsonl": json_records,
    "parquet": parquet_records,
    "worldcup98": log_records,
    "streams": stream_entries,
    "commands": signed_commands,
    "monitor": monitor_values,
    "nodes": node_contents,
}
ENOUGH = 10_000
_TELL_EVERY = 5.0
_MOST_FAILURES = 20


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, default=5.0, help="how long (default 5)")
    parser.add_argument(
        "--seed", type=int, default=secrets.randbelow(10**6), help="what the mutants are made of (default: a new one)"
    )
    parser.add_argument("--only", choices=sorted(TARGETS), help="this kind alone")
    parser.add_argument("--round", type=int, help="this round alone, as a file of a failure names it")
    parser.add_argument("--failures", type=Path, default=Path("build/fuzz"), help="the folder for them (default build/fuzz)")
    given = parser.parse_args(words)
    names = [given.only] if given.only else list(TARGETS)
    with tempfile.TemporaryDirectory(prefix="ppa-fuzz-") as folder, ExitStack() as opened:
        targets: dict[str, Target] = {}
        for name in names:
            place = Path(folder) / name
            place.mkdir()
            targets[name] = opened.enter_context(TARGETS[name](place))
        if given.round is not None:
            for name, target in targets.items():
                print(f"{name}: {target.round(random_of(name, given.seed, given.round))} mutants, and nothing is wrong")
            return 0
        return fuzz(targets, Runner(given.seed, given.failures), 60 * given.minutes)


def fuzz(targets: dict[str, Target], runner: Runner, seconds: float) -> int:
    print(f"seed {runner.seed}", flush=True)
    end, told = time.monotonic() + seconds, 0.0
    while (now := time.monotonic()) < end and len(runner.failures) < _MOST_FAILURES:
        name = min(targets, key=lambda one: (runner.tried.get(one, 0), runner.rounds.get(one, 0)))
        runner.step(name, targets[name])
        if now - told >= _TELL_EVERY:
            told = now
            print(runner.line(list(targets), end - now), file=sys.stderr, flush=True)
    print(f"mutants: {', '.join(f'{name} {runner.tried.get(name, 0):,}' for name in targets)}")
    for path in runner.failures:
        print(f"FAILED: see {path}")
    least = min(runner.tried.get(name, 0) for name in targets)
    if not runner.failures:
        print("nothing failed" + ("" if least >= ENOUGH else f"; {ENOUGH:,} of each want more minutes"))
    return 1 if runner.failures else 0


if __name__ == "__main__":
    faulthandler.enable()  # a library may end the process
    sys.exit(main())
