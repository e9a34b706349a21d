"""A drill: run a pipeline, kill processes, wait for full recovery, and report the measurements.

The nodes belong to this process, the driver is a child process: each can die without the other. Afterwards the same input runs
once more without failures (the baseline), as fast as possible, and the accurate outputs of both runs are compared byte by byte.
"""

from __future__ import annotations

import re
import statistics
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

from ppa_core.driver.config import Config
from ppa_core.driver.executors import on_a_cluster
from ppa_core.driver.host import new_run_id
from ppa_core.driver.output_log import OutputLog
from ppa_core.driver.records import Settings
from ppa_core.engine.run_events import BatchFinished, FailedOver, NodeLost, OutputPublished, PlanChanged, Recovered, RunEvent
from ppa_core.errors import BadInput
from ppa_core.nodes.embedded import EmbeddedNodes, launch
from ppa_core.pipeline.sources.live import passing_run
from ppa_core.placement.nodes import Cluster
from ppa_core.planners import plan as make_plan
from ppa_core.process.driver import Driver, DriverExited
from ppa_core.process.testbed import TestBed
from ppa_core.queries import load_query
from ppa_core.safety.owned import temporary

KINDS = "none, primaries, standbys, driver, executor, worker, rack:NAME, node:NAME[,NAME]"
TECHNIQUES = ("ppa", "source-replay")

Reported = TypeVar("Reported", bound=RunEvent)


@dataclass(frozen=True)
class Killed:
    """The drill has killed what it was asked to."""

    what: str
    nodes: tuple[str, ...]


@dataclass(frozen=True)
class DriverStartedAgain:
    """The driver that was killed is started again."""


@dataclass(frozen=True)
class BaselineStarted:
    """The same input is run without failure."""


DrillEvent = RunEvent | Killed | DriverStartedAgain | BaselineStarted
Tell = Callable[[DrillEvent], None]


@dataclass(frozen=True)
class PlannedKill:
    """What to kill after batch `at` is published."""

    what: str
    at: int

    def __post_init__(self) -> None:
        if not re.fullmatch(r"none|primaries|standbys|driver|executor|worker|rack:[^,]+|node:.+", self.what):
            raise BadInput(f"--fail {self.what}", f"not one of {KINDS}")
        if self.at < 0:
            raise BadInput(f"--at {self.at}", "batches are counted from 0")

    def nodes(self, cluster: Cluster) -> tuple[str, ...]:
        """The nodes to kill. Raises BadInput for unknown names."""
        kind, _, names = self.what.partition(":")
        known = {node.name: node for node in cluster.nodes}
        if kind == "rack":
            found = tuple(node.name for node in cluster.nodes if node.rack == names)
            if not found:
                raise BadInput(
                    f"--fail {self.what}", f"unknown rack; the racks are {', '.join(sorted({n.rack for n in cluster.nodes}))}"
                )
            return found
        if kind == "node":
            for name in names.split(","):
                if name not in known:
                    raise BadInput(f"--fail {self.what}", f"unknown node {name!r}; the nodes are {', '.join(known)}")
            return tuple(names.split(","))
        role = {"primaries": "primary", "standbys": "standby"}.get(kind)
        return tuple(node.name for node in cluster.nodes if node.role == role) if role else ()


@dataclass(frozen=True)
class Setup:
    """The settings of a drill."""

    query: str
    options: dict[str, Any]
    budget: int
    kills: tuple[PlannedKill, ...]
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

    def __post_init__(self) -> None:
        if self.technique not in TECHNIQUES:
            raise BadInput(f"--technique {self.technique}", f"not one of {', '.join(TECHNIQUES)}")
        if self.technique == "source-replay" and self.budget:
            raise BadInput(f"--budget {self.budget}", "source replay has no replicas; remove --budget or --technique")
        if any(kill.what == "worker" for kill in self.kills) and not on_a_cluster(self.master):
            remedy = "add --master spark://HOST:PORT; `python -m ppa_core cluster` starts a cluster on this machine"
            raise BadInput("--fail worker", f"only a Spark cluster has workers: {remedy}")

    @property
    def run_settings(self) -> Settings:
        kept = replace(self.settings, keep_input=True)
        return kept if self.technique == "ppa" else replace(kept, checkpoint_every=0)


@dataclass
class Seen:
    """The events of a run, and the kills."""

    events: list[RunEvent] = field(default_factory=list)
    killed: list[str] = field(default_factory=list)
    kill_times: list[float] = field(default_factory=list)

    def of(self, kind: type[Reported]) -> list[Reported]:
        """The events of one type."""
        return [event for event in self.events if isinstance(event, kind)]

    def outputs(self, *statuses: str) -> list[OutputPublished]:
        return [event for event in self.of(OutputPublished) if not statuses or event.status in statuses]

    def accurate(self) -> dict[int, tuple[int, str]]:
        """Batch to revision and digest of the accurate output."""
        return {event.batch: (event.revision, event.digest) for event in self.outputs("accurate", "correction")}


def drill(
    setup: Setup, tell: Tell = lambda event: None, baseline: Seen | None = None, bed: TestBed | None = None
) -> dict[str, Any]:
    """Run the drill, and its baseline unless that is given; return the report.

    With a test bed, the drill runs on its nodes and its Spark cluster, and its driver in the namespace `control`. The baseline
    never does.
    """
    setup = setup if bed is None else replace(setup, master=bed.master)
    query = load_query(setup.query, **setup.options)
    topology = query.pipeline.topology()
    chosen = make_plan(topology, setup.budget, setup.planner, setup.metric)
    same = new_run_id()
    with temporary("ppa-drill-") as folder:
        with passing_run(query.pipeline, same):
            seen = _run(setup, chosen.tasks, folder / "drill", tell, same, bed)
            if baseline is None:
                tell(BaselineStarted())
                baseline = failure_free(setup, same)
        outputs = folder / "drill" / "outputs"
        accuracy = _accuracy(query.accuracy, seen, outputs)
        also = {name: _accuracy(measure, seen, outputs) for name, measure in query.also.items()}
        return _report(setup, chosen.tasks, chosen.of, seen, baseline, accuracy) | also


def failure_free(setup: Setup, same: str = "") -> Seen:
    """The baseline: a drill's input without failures and replicas, as fast as possible, never on a cluster.

    For live sources, the input is that sealed by the run `same`.
    """
    master = None if on_a_cluster(setup.master) else setup.master
    plain = replace(setup, kills=(), budget=0, master=master, settings=replace(setup.settings, interval=0.0))
    with temporary("ppa-drill-") as folder:
        return _run(plain, (), folder / "baseline", lambda event: None, same)


# ------------------------------------------------------------------------------------------------------------------ running


def _run(setup: Setup, plan: Sequence[str], folder: Path, tell: Tell, same: str, bed: TestBed | None = None) -> Seen:
    folder.mkdir(parents=True)
    with nullcontext(bed) if bed else launch(setup.primaries, setup.standbys, setup.racks, setup.memory_mb) as nodes:
        for kill in setup.kills:
            kill.nodes(nodes.cluster)
        config = Config(
            setup.query,
            setup.options,
            tuple(nodes.cluster.nodes),
            tuple(plan),
            setup.run_settings,
            new_run_id(),
            folder,
            setup.master,
            setup.budget,
            setup.planner,
            setup.metric,
            input=same,
            trusted_network=setup.trusted_network,
            log_level=setup.log_level,
        )
        seen, waiting = Seen(), sorted((kill for kill in setup.kills if kill.what != "none"), key=lambda kill: kill.at)
        try:
            while not _drive(config, nodes, waiting, seen, tell):
                tell(DriverStartedAgain())
        except DriverExited as error:
            raise error.kept(config.run_id) from None  # the folder is temporary
        return seen


def _drive(config: Config, nodes: EmbeddedNodes | TestBed, waiting: list[PlannedKill], seen: Seen, tell: Tell) -> bool:
    """Run a driver until it has ended (True) or was killed by the drill (False)."""
    with Driver(config, prefix=nodes.prefix if isinstance(nodes, TestBed) else ()) as driver:
        for event in driver.events():
            seen.events.append(event)
            tell(event)
            while isinstance(event, OutputPublished) and waiting and event.batch >= waiting[0].at:
                if _kill(waiting.pop(0), nodes, driver, seen, tell):
                    seen.events += driver.remaining_events()
                    return False
        return True


def _kill(kill: PlannedKill, nodes: EmbeddedNodes | TestBed, driver: Driver, seen: Seen, tell: Tell) -> bool:
    """Kill processes; returns True if the driver was killed."""
    if kill.what == "executor":
        driver.kill_executor()
    if kill.what == "worker":
        driver.kill_worker()
    seen.kill_times.append(time.time())
    names = kill.nodes(nodes.cluster)
    for name in names:
        nodes.kill(name)
    if kill.what == "driver":
        driver.kill()
    seen.killed += names or [kill.what]
    tell(Killed(kill.what, names))
    return kill.what == "driver"


# ------------------------------------------------------------------------------------------------------------------- report


def _accuracy(measure: Callable[[Any, Any], float | None], seen: Seen, folder: Path) -> float | None:
    """The mean accuracy of the tentative outputs, by the query's own function; None if there were none."""
    log, accurate = OutputLog(folder), seen.accurate()
    found = []
    for event in seen.outputs("tentative"):
        revision, _ = accurate[event.batch]
        found.append(measure(log.read(event.batch, event.revision), log.read(event.batch, revision)))
    told = [share for share in found if share is not None]
    return statistics.fmean(told) if told else None


def _report(
    setup: Setup, plan: Sequence[str], predicted: float, seen: Seen, clean: Seen, accuracy: float | None
) -> dict[str, Any]:
    batches, failovers = seen.of(BatchFinished), seen.of(FailedOver)
    steady = [batch.seconds for batch in batches[3:]] or [batch.seconds for batch in batches]
    normal = sum(batch.step_cpu for batch in batches)
    tentative = seen.outputs("tentative")
    expected = {batch: digest for batch, (_, digest) in clean.accurate().items()}
    accurate = {batch: digest for batch, (_, digest) in seen.accurate().items()}
    different = sorted(batch for batch in accurate.keys() | expected.keys() if accurate.get(batch) != expected.get(batch))
    lost = sorted({task for failover in failovers for task in failover.lost})
    first = [batch for batch in batches if batch.batch == 3]
    return {
        "query": setup.query,
        "budget": setup.budget,
        "plan": list(plan),
        "killed": seen.killed,
        "lost_tasks": lost,
        "predicted_of": predicted,
        "seconds": _seconds(seen, plan),
        "batches": {
            "accurate": len({output.batch for output in seen.outputs("accurate")} - {output.batch for output in tentative}),
            "tentative": len({output.batch for output in tentative}),
            "corrected": len({output.batch for output in seen.outputs("correction")}),
        },
        "accuracy": accuracy,
        "tentative_of": statistics.fmean(output.of for output in tentative) if tentative else None,
        "equal_to_failure_free": not different,
        "different_batches": different,
        "batch_seconds": {"p50": _quantile(steady, 0.5), "p95": _quantile(steady, 0.95)},
        "tuples_per_second": _throughput(batches[3:] if first else batches),
        "checkpoint_cpu_ratio": sum(batch.checkpoint_cpu for batch in batches) / normal if normal else None,
        "longest_gap": _longest_gap(seen),
        "lowest_of": min((failover.of for failover in failovers), default=None),
        "plan_changes": [
            {"batch": change.batch, "plan": list(change.plan), "of": change.of, "of_before": change.of_before}
            for change in seen.of(PlanChanged)
        ],
    }


def _seconds(seen: Seen, plan: Collection[str]) -> dict[str, float | None]:
    """Seconds from the first kill to detection, first tentative output, recovery of replicated and of all tasks, correction."""
    if not seen.kill_times:
        return dict.fromkeys(("detected", "first_tentative", "active_recovered", "all_recovered", "reconciled"))
    zero = seen.kill_times[0]

    def after(events: Sequence[RunEvent], pick: Callable[[list[float]], float] = min) -> float | None:
        times = [event.at - zero for event in events if event.at >= zero]
        return pick(times) if times else None

    failovers, recovered = seen.of(FailedOver), seen.of(Recovered)
    actives = set(plan) & {task for failover in failovers for task in failover.lost}
    back = actives - {task for failover in failovers for task in failover.missing}
    return {
        "detected": after(seen.of(NodeLost)),
        "first_tentative": after(seen.outputs("tentative")),
        "active_recovered": after(failovers, max) if actives <= back else after(recovered, max),
        "all_recovered": after(recovered, max),
        "reconciled": after(seen.outputs("correction"), max),
    }


def _throughput(batches: list[BatchFinished]) -> float | None:
    spent = sum(batch.seconds for batch in batches)
    return sum(batch.source_rows for batch in batches) / spent if spent else None


def _longest_gap(seen: Seen) -> float | None:
    """The longest time between two batches' first outputs, without the first few batches, in which Spark warms up."""
    times = [output.at for output in seen.outputs("accurate", "tentative")][3:]
    return max((b - a for a, b in pairwise(times)), default=None)


def _quantile(values: list[float], share: float) -> float | None:
    if not values:
        return None
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
