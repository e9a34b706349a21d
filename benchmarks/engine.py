"""The engine under load and failures, with real Spark, nodes and SIGKILL."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

import psutil

from ppa_core.drills.drill import DrillEvent, Setup, drill
from ppa_core.drills.failures import PlannedFailure
from ppa_core.drills.report import Seen
from ppa_core.driver.config import Config
from ppa_core.driver.host import new_run_id
from ppa_core.driver.records import Settings
from ppa_core.engine.run_events import BatchFinished, ReplayFinished, ReplayStarted
from ppa_core.nodes.embedded import launch
from ppa_core.process.driver import Driver
from ppa_core.safety.owned import temporary

Row = dict[str, object]
Say = Callable[[str], None]

HALF = 8
"""Replicas for half of the 15 tasks of `tree`."""


def tree(rate: int, window: float = 30.0) -> dict[str, Any]:
    return {"rate": rate, "window": window, "batch_seconds": 1.0}


def rows(say: Say, minutes: float = 10.0) -> list[Row]:
    """All figures; `minutes` is how long memory use is measured."""
    found: list[Row] = []
    for part in (steady, cost, failures, heavy, catching_up, wide):
        say(part.__name__)
        found += part()
    if minutes:
        say("memory")
        found += memory(minutes)
    return found


def row(figure: str, measured: float, wanted: str, reached: bool, more: str = "") -> Row:
    """One line of the table."""
    return {"figure": figure, "measured": measured, "wanted": wanted, "reached": "yes" if reached else "NO", "more": more}


def steady() -> list[Row]:
    """At 16 × 1,000/s, and maximum throughput."""
    light = drill(Setup("tree", tree(1000), HALF, (), Settings(batches=45)), baseline=Seen())
    full = drill(Setup("tree", tree(20_000), HALF, (), Settings(batches=25, interval=0.0)), baseline=Seen())
    p95, most = light["batch_seconds"]["p95"], full["tuples_per_second"]
    return [
        row("batch at 16 × 1,000/s, p95, s", p95, "<= 1", p95 <= 1, f"p50 {light['batch_seconds']['p50']:.2f}"),
        row("most tuples/s at 16 × 20,000", most, ">= 300,000", most >= 300_000, f"p50 {full['batch_seconds']['p50']:.2f} s"),
    ]


def cost() -> list[Row]:
    """The same load with checkpoints and half the tasks replicated, and with neither, in turn."""
    found: list[Row] = []
    for rate in (1000, 20_000):
        with_, without = [], []
        for _ in range(2):
            base = Setup("tree", tree(rate), HALF, (), Settings(batches=25, interval=0.0))
            with_.append(drill(base, baseline=Seen())["batch_seconds"]["p50"])
            plain = replace(base, budget=0, technique="source-replay")
            without.append(drill(plain, baseline=Seen())["batch_seconds"]["p50"])
        ratio = median(with_) / median(without)
        more = f"{median(with_):.3f} s against {median(without):.3f} s"
        found.append(row(f"batch time with fault tolerance ÷ without, {rate}/s", ratio, "<= 1.2", ratio <= 1.2, more))
    return found


def failures() -> list[Row]:
    """All primaries killed at several settings: time until output continues, and until it is corrected."""
    found: list[Row] = []
    for rate, budget, at in ((1000, HALF, 20), (1000, 0, 20), (20_000, HALF, 20)):
        report = drill(Setup("tree", tree(rate), budget, (PlannedFailure("primaries", at),), Settings(batches=at + 16)))
        seconds, gap = report["seconds"], report["longest_silence"]
        first = seconds["first_tentative"]
        name = f"primaries killed, {rate}/s, {budget} replicas: "
        equal, tentative = report["equal_to_failure_free"], report["batches"]["tentative"]
        more = f"equal: {equal}, recovered {seconds['all_recovered']:.2f} s, {tentative} tentative batches"
        if first is not None:
            found.append(row(name + "first tentative output, s", first, "<= 2", first <= 2, more))
        found.append(row(name + "longest gap between outputs, s", gap, "<= 2", gap <= 2, more))
    return found


def heavy() -> list[Row]:
    """20,000/s, windows and checkpoints of 30 s: recovery against the time that the tuples to replay would have taken."""
    setup = Setup("tree", tree(20_000), HALF, (PlannedFailure("primaries", 40),), Settings(batches=62, checkpoint_every=30))
    seen: list[DrillEvent] = []
    report = drill(setup, seen.append)
    recovered = report["seconds"]["all_recovered"]
    batches = 41 - min(event.first for event in seen if isinstance(event, ReplayStarted))
    budgeted = batches * 16 * 20_000 / report["tuples_per_second"]
    ratio = recovered / budgeted
    most, equal = report["tuples_per_second"], report["equal_to_failure_free"]
    more = f"{recovered:.1f} s for {batches} batches, {budgeted:.1f} s at {most:,.0f} tuples/s; equal: {equal}"
    first, gap = report["seconds"]["first_tentative"], report["longest_silence"]
    found = [row("recovery ÷ (tuples to replay ÷ throughput), heavy", ratio, "<= 1.5", ratio <= 1.5, more)]
    if first is not None:
        found.append(row("heavy: first tentative output, s", first, "<= 2", first <= 2))
    return [*found, row("heavy: longest gap between outputs, s", gap, "<= 2", gap <= 2)]


def catching_up() -> list[Row]:
    """Everything is lost and rebuilt from the source: batches a second of the one job that does it."""
    seen: list[DrillEvent] = []
    setup = Setup("tree", tree(1000), 0, (PlannedFailure("primaries", 40),), Settings(batches=60), technique="source-replay")
    drill(setup, seen.append, baseline=Seen())
    longest = max((event for event in seen if isinstance(event, ReplayFinished)), key=lambda replay: replay.batches)
    speed = longest.batches / longest.seconds
    more = f"{longest.batches} batches of 1 s in {longest.seconds:.1f} s"
    return [row("catching up, × real time", speed, ">= 5", speed >= 5, more)]


def wide() -> list[Row]:
    """1,001 tasks at a batch interval of 5 s."""
    setup = Setup("benchmarks.wide:wide", {}, 300, (), Settings(batches=12), planner="greedy")
    report = drill(setup, baseline=Seen())
    p95 = report["batch_seconds"]["p95"]
    more = f"p50 {report['batch_seconds']['p50']:.2f} s"
    return [row("1,001 tasks, 300 × 300 full: batch p95, s", p95, "<= 5", p95 <= 5, more)]


@dataclass(frozen=True)
class Usage:
    """Resident megabytes of the driver's processes and of the nodes."""

    driver: float
    nodes: float


def memory(minutes: float) -> list[Row]:
    """`tree` for some minutes: memory in the third minute (or after a third of the time) against the last."""
    seconds = minutes * 60
    setup = Settings(batches=int(seconds))
    with launch(4, 4, 2, 1024) as nodes, temporary("ppa-bench-") as folder:
        config = Config(
            "tree", tree(1000), tuple(nodes.cluster.nodes), tuple(f"O1.{n}" for n in range(1, 9)), setup, new_run_id(),
            folder, keep=10,
        )  # fmt: skip
        with Driver(config) as driver:
            tenths = (event.batch for event in driver.events() if isinstance(event, BatchFinished) and event.batch % 10 == 0)
            samples = [(batch, _usage(driver.process.pid, nodes.pids.values())) for batch in tenths]
    early = [usage for batch, usage in samples if seconds / 3 <= batch < seconds / 2]
    late = [usage for batch, usage in samples if batch >= seconds * 5 / 6]
    found = []
    for name in ("driver", "nodes"):
        before, after = (median(getattr(usage, name) for usage in part) for part in (early, late))
        growth = after / before
        found.append(
            row(f"memory of {name}, end ÷ after a third", growth, "<= 1.05", growth <= 1.05, f"{before:.0f} MB, {after:.0f} MB")
        )
    return found


def _usage(driver: int, nodes: Any) -> Usage:
    def resident(processes: Iterator[psutil.Process]) -> float:
        total = 0
        for process in processes:
            try:
                total += process.memory_info().rss
            except psutil.Error:
                continue
        return total / 2**20

    root = psutil.Process(driver)
    return Usage(resident(iter([root, *root.children(recursive=True)])), resident(psutil.Process(pid) for pid in nodes))


def main() -> None:
    argparse.ArgumentParser(description="Measure the engine; it takes a while.").parse_args()
    started = time.time()
    for row in rows(lambda text: print(f"{time.time() - started:6.0f} s  {text}", flush=True), minutes=0):
        print(row, flush=True)


if __name__ == "__main__":
    main()
