"""The figures of a soak: of the whole, and of each failure."""

from __future__ import annotations

import os
import platform
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import asdict
from statistics import fmean, median
from typing import Any

from benchmarks.soak.checking import Verdict
from benchmarks.soak.memory import growth
from benchmarks.soak.running import HOSTS, RACKS, RATE, Injected, Soak
from ppa_core.engine.run_events import OutputPublished

Row = dict[str, Any]


def document(soak: Soak, verdict: Verdict) -> Row:
    """All about a soak, as written to soak.json."""
    first = soak.seen.first_outputs()
    delays = sorted(output.delay for output in first if output.delay is not None)
    tentative = [output for output in first if output.status == "tentative"]
    failures = [_failure_row(soak, one, outputs) for one, outputs in _attributed(soak, first)]
    return {
        "seed": soak.seed,
        "command": f"`python -m benchmarks.soak --hours {soak.batches * soak.interval / 3600:g} --interval {soak.interval:g} "
        f"--seed {soak.seed}`",
        "began": soak.began,
        "minutes": (soak.ended - soak.began) / 60,
        "machine": f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}",
        "pipeline": f"`tree`, 16 × {RATE:,} tuples/s, windows of 30 s, a batch every {soak.interval:g} s",
        "bed": f"{HOSTS} hosts in {RACKS} racks",
        "good": verdict.good and not soak.stopped,
        "stopped": soak.stopped,
        "verdict": asdict(verdict),
        "batches": soak.batches,
        "published": len(first),
        "accurate_at_once": len(first) - len(tentative),
        "tentative": len(tentative),
        "deadline": soak.deadline,
        "late": sum(delay > soak.deadline for delay in delays),
        "late_without_driver": late_without_driver(soak, first),
        "much_late": sum(delay > soak.deadline + 1 for delay in delays),
        "delay": {"p50": _quantile(delays, 0.5), "p99": _quantile(delays, 0.99), "worst": max(delays, default=None)},
        "lowest_of": min((output.of for output in first), default=None),
        "mean_of": fmean(output.of for output in first) if first else None,
        "unplanned_driver_deaths": soak.deaths,
        "troubles": [one.trouble for one in soak.failures if one.trouble],
        "failures": failures,
        "by_kind": by_kind(failures),
        "memory": growth(soak.memory),
        "outputs": [[output.batch, output.at - soak.began, output.delay, output.of] for output in first],
        "samples": [[at - soak.began, sample] for at, sample in soak.memory],
    }


def late_without_driver(soak: Soak, first: Sequence[OutputPublished]) -> int:
    """The outputs that are late for another reason than a failure of the driver, after which all are until it has caught up."""
    begins = [one.began for one in soak.failures if one.failure.what == "driver"]
    found, in_time = 0, soak.began
    for output in sorted(first, key=lambda output: output.at):
        if output.delay is None or output.delay <= soak.deadline:
            in_time = output.at
        elif not any(in_time <= begin <= output.at for begin in begins):
            found += 1
    return found


def by_kind(failures: Sequence[Row]) -> list[Row]:
    """A row per kind of failure; failures at the same time are counted as the first of them."""
    rows = []
    for kind in sorted({row["kind"] for row in failures}):
        here = [row for row in failures if row["kind"] == kind]
        delays = [row["worst_delay"] for row in here if row["worst_delay"] is not None]
        lasting = [row["tentative_seconds"] for row in here if row["tentative_seconds"]]
        rows.append({
            "failure": kind,
            "times": len(here),
            "tentative outputs": sum(row["tentative"] for row in here),
            "lowest OF": _round(min(row["lowest_of"] for row in here)),
            "late outputs": sum(row["late"] for row in here),
            "worst delay, s": _round(max(delays, default=None)),
            "outputs tentative for, median, s": _round(median(lasting)) if lasting else 0,
        })  # fmt: skip
    return rows


def _attributed(soak: Soak, first: Sequence[OutputPublished]) -> list[tuple[list[Injected], list[OutputPublished]]]:
    """Failures that overlap, together with the outputs from the first of them to the next failure."""
    groups: list[list[Injected]] = []
    for one in soak.failures:
        if groups and not one.failure.alone:
            groups[-1].append(one)
        else:
            groups.append([one])
    begins = [group[0].began for group in groups]
    found: list[list[OutputPublished]] = [[] for _ in groups]
    for output in sorted(first, key=lambda output: output.at):
        if place := bisect_right(begins, output.at):
            found[place - 1].append(output)
    return list(zip(groups, found, strict=True))


def _failure_row(soak: Soak, group: Sequence[Injected], outputs: Sequence[OutputPublished]) -> Row:
    delays = [output.delay for output in outputs if output.delay is not None]
    tentative = [output for output in outputs if output.status == "tentative"]
    return {
        "at": group[0].began - soak.began,
        "ends": [None if one.ended is None else one.ended - soak.began for one in group],
        "what": " + ".join(f"{one.failure.how} {one.failure.what}" for one in group),
        "kind": " + ".join(sorted(_kind(one) for one in group)) if len(group) == 1 else "two at once",
        "seconds": [one.failure.seconds for one in group],
        "tentative": len(tentative),
        "tentative_seconds": tentative[-1].at - group[0].began if tentative else 0.0,
        "late": sum(delay > soak.deadline for delay in delays),
        "worst_delay": max(delays, default=None),
        "lowest_of": min((output.of for output in outputs), default=1.0),
    }


def _kind(one: Injected) -> str:
    what = "2 nodes" if "," in one.failure.what else one.failure.what.partition(":")[0]
    return f"{what}, {one.failure.how.partition(':')[0]}"


def _quantile(ordered: Sequence[float], share: float) -> float | None:
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else None


def _round(number: float | None) -> float | None:
    return None if number is None else round(number, 2)
