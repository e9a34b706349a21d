"""A drill: run a pipeline, make processes fail, wait for full recovery, and report the measurements.

The nodes belong to this process, the driver is a child process: each can die without the other. Afterwards the same input runs
once more without failures (the baseline), as fast as possible, and the accurate outputs of both runs are compared byte by byte.
"""

from __future__ import annotations

import logging
import signal
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, cast

from ppa_core.drills.delays import Delays
from ppa_core.drills.failures import PlannedFailure
from ppa_core.drills.report import Seen, accuracy_of, report
from ppa_core.drills.slowness import Slowness
from ppa_core.driver.config import Config
from ppa_core.driver.executors import on_a_cluster
from ppa_core.driver.host import new_run_id
from ppa_core.driver.records import Settings
from ppa_core.engine.run_events import BatchFinished, DriverTookOver, RunEvent
from ppa_core.errors import BadInput, PpaError
from ppa_core.nodes.embedded import EmbeddedNodes, launch, launch_witness
from ppa_core.pipeline.sources.live import passing_run
from ppa_core.placement.nodes import Node
from ppa_core.planners import plan as make_plan
from ppa_core.process.driver import Driver, DriverExited
from ppa_core.process.drivers import Drivers
from ppa_core.process.testbed import TestBed, launch_testbed
from ppa_core.queries import load_query
from ppa_core.safety.owned import temporary

_log = logging.getLogger(__name__)

TECHNIQUES = ("ppa", "source-replay")


@dataclass(frozen=True)
class FailureInjected:
    """The drill has made something fail."""

    failure: PlannedFailure
    nodes: tuple[str, ...]


@dataclass(frozen=True)
class FailureEnded:
    """What was hung, cut off or slow is as before; what was killed runs again. Or not, for the reason `trouble`."""

    failure: PlannedFailure
    trouble: str = ""


@dataclass(frozen=True)
class DriverStartedAgain:
    """The drill restarts the driver that it killed."""


@dataclass(frozen=True)
class BaselineStarted:
    """The baseline starts: the same input without failures."""


DrillEvent = RunEvent | FailureInjected | FailureEnded | DriverStartedAgain | BaselineStarted
EventHandler = Callable[[DrillEvent], None]


@dataclass(frozen=True)
class Setup:
    """The settings of a drill."""

    query: str
    options: dict[str, Any]
    budget: int
    failures: tuple[PlannedFailure, ...]
    settings: Settings
    planner: str = "default"
    metric: str = "of"
    primaries: int = 4
    standbys: int = 4
    racks: int = 2
    memory_mb: int = 1024
    master: str | None = None
    technique: str = "ppa"
    """`source-replay`: no replicas and no checkpoints; lost state is rebuilt from the source."""
    trusted_network: bool = False
    log_level: str = "warning"
    testbed: tuple[int, int] | None = None
    """Run on a test bed with this many hosts and racks."""
    standby_driver: bool = False
    """Run with a standby driver, which takes over if the driver fails."""

    def __post_init__(self) -> None:
        if self.technique not in TECHNIQUES:
            raise BadInput(f"--technique {self.technique}", f"not one of {', '.join(TECHNIQUES)}")
        if self.technique == "source-replay" and self.budget:
            raise BadInput(f"--budget {self.budget}", "source replay has no replicas; remove --budget or --technique")
        if self.testbed is None and any(failure.how == "cut" for failure in self.failures):
            raise BadInput("--how cut", "only on a test bed, where hosts have a network of their own; add --testbed 4:2")
        if self.standby_driver and (on_a_cluster(self.master) or self.testbed):
            raise BadInput("--standby-driver", "not with a Spark cluster or a test bed, whose executors it would need")
        if any(failure.what == "worker" for failure in self.failures) and not (on_a_cluster(self.master) or self.testbed):
            remedy = "add --master spark://HOST:PORT; `python -m ppa_core cluster` starts a cluster on this machine"
            raise BadInput("--fail worker", f"only a Spark cluster has workers: {remedy}")

    @property
    def run_settings(self) -> Settings:
        kept = replace(self.settings, keep_input=True)
        return kept if self.technique == "ppa" else replace(kept, checkpoint_every=0)


def drill(
    setup: Setup, report_event: EventHandler = lambda event: None, baseline: Seen | None = None, bed: TestBed | None = None
) -> dict[str, Any]:
    """Run the drill, and its baseline unless that is given; return the report.

    With a test bed, the drill runs on its nodes and its Spark cluster, and its driver in the namespace `control`. The baseline
    never does.
    """
    if setup.testbed is not None and bed is None:
        with launch_testbed(*setup.testbed) as bed:
            return drill(setup, report_event, baseline, bed)
    setup = setup if bed is None else replace(setup, master=bed.master)
    query = load_query(setup.query, **setup.options)
    topology = query.pipeline.topology()
    chosen = make_plan(topology, setup.budget, setup.planner, setup.metric)
    same = new_run_id()
    with temporary("ppa-drill-") as folder:
        with passing_run(query.pipeline, same):
            seen = _run(setup, chosen.tasks, folder / "drill", report_event, same, bed)
            if baseline is None:
                report_event(BaselineStarted())
                baseline = failure_free(setup, same)
        outputs = folder / "drill" / "outputs"
        accuracy = accuracy_of(query.accuracy, seen, outputs)
        also = {name: accuracy_of(measure, seen, outputs) for name, measure in query.also.items()}
        about = {"query": setup.query, "budget": setup.budget, "plan": list(chosen.tasks), "failed": seen.failed}
        deadline = setup.settings.deadline or 2 * (setup.settings.interval or query.pipeline.batch_seconds)
        return about | report(chosen.tasks, chosen.of, seen, baseline, accuracy, deadline) | also


def failure_free(setup: Setup, same: str = "") -> Seen:
    """The baseline: a drill's input without failures and replicas, as fast as possible, never on a cluster.

    For live sources, the input is that sealed by the run `same`.
    """
    master = None if on_a_cluster(setup.master) else setup.master
    plain = replace(
        setup, failures=(), budget=0, master=master, standby_driver=False, settings=replace(setup.settings, interval=0.0)
    )
    with temporary("ppa-drill-") as folder:
        return _run(plain, (), folder / "baseline", lambda event: None, same)


# ------------------------------------------------------------------------------------------------------------------ running


def _run(
    setup: Setup, plan: Sequence[str], folder: Path, report_event: EventHandler, same: str, bed: TestBed | None = None
) -> Seen:
    folder.mkdir(parents=True)
    with ExitStack() as stack:
        embedded = launch(setup.primaries, setup.standbys, setup.racks, setup.memory_mb) if bed is None else None
        nodes = bed or stack.enter_context(cast(EmbeddedNodes, embedded))
        failing = Failing(nodes, setup.failures, stack, report_event)
        config = config_of(setup, plan, failing.nodes, folder, same)
        if setup.standby_driver:
            witness = stack.enter_context(launch_witness(failing.nodes))
            config = replace(config, strict_lease=True, witness=witness)
        try:
            while not failing.drive(config):
                report_event(DriverStartedAgain())
        except DriverExited as error:
            raise error.kept(config.run_id) from None  # the folder is temporary
        return failing.seen


def config_of(setup: Setup, plan: Sequence[str], nodes: Sequence[Node], folder: Path, same: str = "") -> Config:
    """The configuration of a drill's drivers."""
    return Config(
        setup.query, setup.options, tuple(nodes), tuple(plan), setup.run_settings, new_run_id(), folder, setup.master,
        setup.budget, setup.planner, setup.metric, input=same, trusted_network=setup.trusted_network, log_level=setup.log_level,
    )  # fmt: skip


class Failing:
    """Makes things fail as planned, one after the other, while drivers run."""

    def __init__(
        self,
        places: EmbeddedNodes | TestBed,
        failures: Sequence[PlannedFailure],
        stack: ExitStack,
        report_event: EventHandler,
    ) -> None:
        self.places, self.report_event, self.seen = places, report_event, Seen()
        self.bed = places if isinstance(places, TestBed) else None
        self._failed = False
        """Whether the drill has killed or hung the last driver."""
        self._going_on: list[PlannedFailure] = []
        """The failures that will end."""
        self._slow: dict[str, Slowness] = {}
        self.waiting = sorted((one for one in failures if one.what != "none"), key=lambda one: one.at)
        slow = {name for one in failures if one.delay for name in one.nodes(places.cluster)}
        for one in failures:
            one.nodes(places.cluster)
        behind = [node for node in places.cluster.nodes if node.name in slow and self.bed is None]
        self.delays = stack.enter_context(Delays(behind, stack.enter_context(temporary("ppa-slow-"))))
        self.nodes = tuple(self.delays.nodes.get(node.name, node) for node in places.cluster.nodes)

    def drive(self, config: Config) -> bool:
        """Run drivers until the run has ended (True), or the drill has killed or hung the last one (False)."""
        self._failed = False
        with Drivers(config, self.bed.prefix if self.bed else ()) as drivers:
            try:
                for event in drivers.events():
                    self.seen.events.append(event)
                    self.report_event(event)
                    self._failed &= not isinstance(event, DriverTookOver)
                    if isinstance(event, BatchFinished):
                        self._fail_what_is_due(event.batch, drivers)
            except DriverExited:
                if not self._failed:
                    raise
                return False
            return True

    def _fail_what_is_due(self, batch: int, drivers: Drivers) -> None:
        while drivers.active is not None and self._due(batch, drivers):
            self._fail(self.waiting.pop(0), drivers.active)

    def _due(self, batch: int, drivers: Drivers) -> bool:
        if not self.waiting or batch < self.waiting[0].at or (self.waiting[0].alone and self._going_on):
            return False
        # a driver does not fail before its standby driver is there
        return self.waiting[0].what != "driver" or drivers.ready or not drivers.config.strict_lease

    def _fail(self, failure: PlannedFailure, driver: Driver) -> None:
        time.sleep(failure.later)
        names = failure.nodes(self.places.cluster)
        sign = signal.SIGKILL if failure.how == "kill" else signal.SIGSTOP
        if failure.what == "executor":
            driver.fail_executor(sign)
        if failure.what == "worker":
            driver.fail_worker(sign)
        self.seen.failed_at.append(time.time())
        for name in self._targets(failure):
            match failure.how:
                case "kill":
                    self.places.kill(name)
                case "hang":
                    self.places.hang(name)
                case "cut":
                    assert self.bed is not None
                    self.bed.cut(**failure.link)
                case _ if self.bed is not None:
                    self._slow[name] = Slowness(partial(self.bed.processes, name), failure.delay)
                case _:
                    self.delays.set(name, failure.delay)
        if failure.what == "driver":
            self._failed = True
            driver.hang() if failure.how == "hang" else driver.kill()
        self.seen.failed += names or [failure.what]
        self.report_event(FailureInjected(failure, names))
        if failure.seconds is not None:
            self._going_on.append(failure)
            timer = threading.Timer(failure.seconds, self._end, (failure, driver))
            timer.daemon = True
            timer.start()

    def _targets(self, failure: PlannedFailure) -> Sequence[str]:
        """What fails: nodes, or on a test bed whole hosts; a link, if it is cut."""
        kind, _, name = failure.what.partition(":")
        if failure.how == "cut":
            return (name,)
        if self.bed is not None and kind in ("host", "rack"):
            return self.bed.racks[name] if kind == "rack" else (name,)
        return failure.nodes(self.places.cluster)

    def _end(self, failure: PlannedFailure, driver: Driver) -> None:
        trouble = ""
        try:
            self._undo(failure, driver)
        except PpaError as error:
            _log.warning("%s %s could not be ended", failure.how, failure.what, exc_info=True)
            trouble = str(error)
        self._going_on.remove(failure)
        self.report_event(FailureEnded(failure, trouble))

    def _undo(self, failure: PlannedFailure, driver: Driver) -> None:
        if failure.what in ("driver", "executor", "worker"):
            driver.resume()
            self._failed = False
        if failure.what == "worker" and failure.how == "kill" and self.bed is not None:
            for name in self.bed.ended():
                if name.startswith("worker-"):
                    self.bed.restart(name)
        for name in self._targets(failure):
            match failure.how:
                case "kill":
                    self.places.restart(name)
                case "hang":
                    self.places.resume(name)
                case "cut":
                    assert self.bed is not None
                    self.bed.mend(**failure.link)
                case _ if self.bed is not None:
                    self._slow.pop(name).end()
                case _:
                    self.delays.set(name, 0.0)
