"""The run of a soak: a driver on the test bed, restarted as often as it dies, while things fail."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.engine import HALF, tree
from benchmarks.soak.memory import MemorySampler, Sample
from benchmarks.soak.schedule import Bed, schedule
from ppa_core.drills.drill import DrillEvent, Failing, FailureEnded, FailureInjected, Setup, config_of
from ppa_core.drills.failures import PlannedFailure
from ppa_core.drills.report import Seen
from ppa_core.driver.config import Config
from ppa_core.driver.records import Settings
from ppa_core.errors import PpaError
from ppa_core.planners import plan as make_plan
from ppa_core.process.driver import DriverExited
from ppa_core.process.run import RESTARTS
from ppa_core.process.testbed import launch_testbed
from ppa_core.queries import load_query

RATE = 1000
HOSTS, RACKS = 4, 2

Say = Callable[[str], None]

_log = logging.getLogger(__name__)


@dataclass
class Injected:
    """A failure as it happened, in seconds since 1970; `trouble`: why it could not be ended."""

    failure: PlannedFailure
    began: float
    ended: float | None = None
    trouble: str = ""


@dataclass
class Soak:
    """What was seen of a soak."""

    batches: int
    seed: int
    interval: float = 1.0
    began: float = field(default_factory=time.time)
    ended: float = 0.0
    seen: Seen = field(default_factory=Seen)
    failures: list[Injected] = field(default_factory=list)
    memory: list[Sample] = field(default_factory=list)
    deaths: list[str] = field(default_factory=list)
    """Why a driver ended that nobody had killed."""
    stopped: str = ""
    """Why the run ended before its last batch."""

    @property
    def deadline(self) -> float:
        return 2 * self.interval

    def progress(self) -> str:
        """One line about the state of the soak."""
        first, corrected = self.seen.first_outputs(), {output.batch for output in self.seen.outputs("correction")}
        tentative = {output.batch for output in first if output.status == "tentative"}
        late = sum(output.delay is not None and output.delay > self.deadline for output in first)
        lowest = min((output.of for output in first), default=1.0)
        used = sum(self.memory[-1][1].values()) / 1024 if self.memory else 0.0
        now = [f"{one.failure.how} {one.failure.what}" for one in self.failures if one.failure.seconds and one.ended is None]
        return (
            f"batch {len(first)} of {self.batches}, {len(self.failures)} failures, {len(tentative)} tentative, "
            f"{len(tentative - corrected)} not corrected, {late} late, lowest OF {lowest:.2f}, {used:.1f} GB"
            + (f", now: {', '.join(now)}" if now else "")
        )


def options() -> dict[str, Any]:
    """The options of the query."""
    return tree(RATE)


def run(soak: Soak, folder: Path, say: Say) -> None:
    """Run a soak; its files are in `folder`."""
    settings = Settings(batches=soak.batches, interval=soak.interval, deadline=soak.deadline)
    with launch_testbed(HOSTS, RACKS) as bed, ExitStack() as stack:
        failures = schedule(soak.batches * soak.interval, soak.seed, Bed(bed.racks), soak.interval)
        setup = Setup("tree", options(), HALF, failures, settings, master=bed.master, testbed=(HOSTS, RACKS))
        chosen = make_plan(load_query(setup.query, **setup.options).pipeline.topology(), setup.budget)

        def sampled(sample: Sample) -> None:
            soak.memory.append(sample)
            say(soak.progress())

        failing = Failing(bed, failures, stack, lambda event: _record(soak, event, say))
        soak.seen = failing.seen
        config = config_of(setup, chosen.tasks, failing.nodes, folder)
        with MemorySampler(bed, sampled):
            soak.began = time.time()
            _drive(soak, failing, config, say)
            soak.ended = time.time()


def _drive(soak: Soak, failing: Failing, config: Config, say: Say) -> None:
    """Run drivers until the run has ended. One that dies by itself is restarted, as by `SupervisedRun`."""
    fruitless = 0
    while True:
        before = len(soak.seen.events)
        try:
            if failing.drive(config):
                return
        except DriverExited as error:
            say(f"the driver died unexpectedly: {error}")
            soak.deaths.append(error.last)
            fruitless = 0 if Seen(soak.seen.events[before:]).outputs() else fruitless + 1
            if fruitless > RESTARTS:
                soak.stopped = f"the driver died {fruitless} times and published nothing"
                return
        except PpaError as error:
            _log.warning("the run has ended", exc_info=True)
            soak.stopped = str(error)
            return
        say("the driver is restarted")


def _record(soak: Soak, event: DrillEvent, say: Say) -> None:
    match event:
        case FailureInjected(failure):
            soak.failures.append(Injected(failure, time.time()))
            lasting = f" for {failure.seconds:g} s" if failure.seconds else ""
            say(f"{failure.how} {failure.what}{lasting}")
        case FailureEnded(failure, trouble):
            one = next(one for one in soak.failures if one.failure is failure)
            one.ended, one.trouble = time.time(), trouble
            say(f"end of {failure.how} {failure.what}{f': {trouble}' if trouble else ''}")
