"""Failures as they come: the longest silence of the output when things are killed, hang, or are cut off the network.

Every failure is measured several times, each in a run of its own; the record of every run is compared with that of a run
without failures.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

from benchmarks.engine import HALF, Row, Say, tree
from ppa_core.drills.drill import Setup, drill, failure_free
from ppa_core.drills.failures import PlannedFailure
from ppa_core.driver.records import Settings
from ppa_core.errors import Unavailable
from ppa_core.process.testbed import launch_testbed

AT, BATCHES = 12, 26
BED = (4, 2)


@dataclass(frozen=True)
class Case:
    """A failure, and the longest silence that is wanted: in the median, and at worst."""

    name: str
    what: str
    how: str
    rate: int
    wanted: float
    worst: float | None = None
    bed: bool = False
    seconds: float | None = None


CASES = (
    Case("node hung", "node:n1", "hang", 1000, 2.0, 3.0),
    Case("all primaries hung", "primaries", "hang", 1000, 2.0, 3.0),
    Case("node hung", "node:n1", "hang", 20_000, 3.0),
    Case("all primaries hung", "primaries", "hang", 20_000, 3.0),
    Case("all primaries killed", "primaries", "kill", 1000, 1.2),
    Case("all primaries killed", "primaries", "kill", 20_000, 1.6),
    Case("host hung, test bed", "host:h2", "hang", 1000, 2.0, 3.0, True, 8.0),
    Case("rack cut off (2 of 4 hosts), test bed", "rack:r1", "cut", 1000, 2.0, 3.0, True, 8.0),
    Case("driver killed, no standby", "driver", "kill", 1000, 12.0),
)


def rows(say: Say, times: int = 5) -> list[Row]:
    """A row per failure."""
    plain = {rate: failure_free(_setup(rate)) for rate in {case.rate for case in CASES}}
    found = []
    for case in CASES:
        say(f"{case.name}, {case.rate}/s")
        try:
            reports = list(_reports(case, plain[case.rate], times))
        except Unavailable as error:
            say(f"{case.name}: not measured: {error}")
            continue
        found.append(_row(case, reports))
    return found


def _setup(rate: int) -> Setup:
    return Setup("tree", tree(rate), HALF, (), Settings(batches=BATCHES))


def _reports(case: Case, baseline: Any, times: int) -> Iterator[dict[str, Any]]:
    failure = PlannedFailure(case.what, AT, case.how, case.seconds)
    for _ in range(times):
        setup = replace(_setup(case.rate), failures=(failure,), testbed=BED if case.bed else None)
        if case.bed:
            with launch_testbed(*BED) as bed:
                yield drill(setup, baseline=baseline, bed=bed)
        else:
            yield drill(setup, baseline=baseline)


def _row(case: Case, reports: list[dict[str, Any]]) -> Row:
    silences = [report["longest_silence"] for report in reports]
    middle, worst = median(silences), max(silences)
    reached = middle <= case.wanted and (case.worst is None or worst <= case.worst)
    limits = f"<= {case.wanted:g}" + (f", worst <= {case.worst:g}" if case.worst else "")
    return {
        "failure": case.name,
        "rate": f"16 × {case.rate:,}/s",
        "longest silence, median, s": round(middle, 2),
        "worst, s": round(worst, 2),
        "wanted": limits,
        "reached": "yes" if reached else "NO",
        "late outputs": sum(report["late_outputs"] for report in reports),
        "tentative": sum(report["batches"]["tentative"] for report in reports),
        "equal": f"{sum(report['equal_to_failure_free'] for report in reports)} of {len(reports)}",
    }
