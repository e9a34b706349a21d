"""A drill: run a pipeline, kill processes, wait for full recovery, and report the measurements.

The nodes belong to this process, the driver is a child process: each can die without the other. Afterwards the same input runs
once more without failures (the baseline), as fast as possible, and the accurate outputs of both runs are compared byte by byte.
"""

from __future__ import annotations

import re
import statistics
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from ppa_core.driver.executors import on_a_cluster
from ppa_core.driver.host import new_run_id
from ppa_core.driver.main import Config, OutputLog
from ppa_core.driver.records import Settings
from ppa_core.errors import BadInput
from ppa_core.nodes.embedded import Embedded, launch
from ppa_core.pipeline.sources.live import passing_run
from ppa_core.placement.nodes import Cluster
from ppa_core.planners import plan as make_plan
from ppa_core.process.driver import Driver, DriverDied
from ppa_core.queries import load_query
from ppa_core.safety.owned import temporary

KINDS = "none, primaries, standbys, driver, executor, worker, rack:NAME, node:NAME[,NAME]"
TECHNIQUES = ("ppa", "source-replay")

Tell = Callable[[dict[str, Any]], None]


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

    lines: list[dict[str, Any]] = field(default_factory=list)
    killed: list[str] = field(default_factory=list)
    kill_times: list[float] = field(default_factory=list)

    def outputs(self, *statuses: str) -> list[dict[str, Any]]:
        return [line for line in self.lines if line["kind"] == "output" and (not statuses or line["status"] in statuses)]

    def accurate(self) -> dict[int, tuple[int, str]]:
        """Batch to revision and digest of the accurate output."""
        return {line["batch"]: (line["revision"], line["digest"]) for line in self.outputs("accurate", "correction")}


def drill(setup: Setup, tell: Tell = lambda line: None, baseline: Seen | None = None) -> dict[str, Any]:
    """Run the drill, and its baseline unless that is given; return the report."""
    query = load_query(setup.query, **setup.options)
    topology = query.pipeline.topology()
    chosen = make_plan(topology, setup.budget, setup.planner, setup.metric)
    same = new_run_id()
    with temporary("ppa-drill-") as folder:
        with passing_run(query.pipeline, same):
            seen = _run(setup, chosen.tasks, folder / "drill", tell, same)
            if baseline is None:
                tell({"kind": "baseline"})
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
        return _run(plain, (), folder / "baseline", lambda line: None, same)


# ------------------------------------------------------------------------------------------------------------------ running


def _run(setup: Setup, plan: Sequence[str], folder: Path, tell: Tell, same: str) -> Seen:
    folder.mkdir(parents=True)
    with launch(setup.primaries, setup.standbys, setup.racks, setup.memory_mb) as nodes:
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
                tell({"kind": "driver restarted"})
        except DriverDied as error:
            raise error.kept(config.run_id) from None  # the folder is temporary
        return seen


def _drive(config: Config, nodes: Embedded, waiting: list[PlannedKill], seen: Seen, tell: Tell) -> bool:
    """Run a driver until it has ended (True) or was killed by the drill (False)."""
    with Driver(config) as driver:
        for line in driver.lines():
            seen.lines.append(line)
            tell(line)
            while line["kind"] == "output" and waiting and line["batch"] >= waiting[0].at:
                if _kill(waiting.pop(0), nodes, driver, seen, tell):
                    seen.lines += driver.left()
                    return False
        return True


def _kill(kill: PlannedKill, nodes: Embedded, driver: Driver, seen: Seen, tell: Tell) -> bool:
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
    tell({"kind": "killed", "what": kill.what, "nodes": names})
    return kill.what == "driver"


# ------------------------------------------------------------------------------------------------------------------- report


def _accuracy(measure: Callable[[Any, Any], float | None], seen: Seen, folder: Path) -> float | None:
    """The mean accuracy of the tentative outputs, by the query's own function; None if there were none."""
    log, accurate = OutputLog(folder), seen.accurate()
    found = []
    for line in seen.outputs("tentative"):
        revision, _ = accurate[line["batch"]]
        found.append(measure(log.read(line["batch"], line["revision"]), log.read(line["batch"], revision)))
    known = [share for share in found if share is not None]
    return statistics.fmean(known) if known else None


def _report(
    setup: Setup, plan: Sequence[str], predicted: float, seen: Seen, clean: Seen, accuracy: float | None
) -> dict[str, Any]:
    batches = [line for line in seen.lines if line["kind"] == "batch"]
    steady = [line["seconds"] for line in batches[3:]] or [line["seconds"] for line in batches]
    normal = sum(line["step_cpu"] for line in batches)
    tentative = seen.outputs("tentative")
    expected = {batch: digest for batch, (_, digest) in clean.accurate().items()}
    accurate = {batch: digest for batch, (_, digest) in seen.accurate().items()}
    different = sorted(batch for batch in accurate.keys() | expected.keys() if accurate.get(batch) != expected.get(batch))
    lost = sorted({task for line in seen.lines if line["kind"] == "failover" for task in line["lost"]})
    first = [line for line in batches if line["batch"] == 3]
    return {
        "query": setup.query,
        "budget": setup.budget,
        "plan": list(plan),
        "killed": seen.killed,
        "lost_tasks": lost,
        "predicted_of": predicted,
        "seconds": _seconds(seen, plan),
        "batches": {
            "accurate": len({line["batch"] for line in seen.outputs("accurate")} - {line["batch"] for line in tentative}),
            "tentative": len({line["batch"] for line in tentative}),
            "corrected": len({line["batch"] for line in seen.outputs("correction")}),
        },
        "accuracy": accuracy,
        "tentative_of": statistics.fmean(line["of"] for line in tentative) if tentative else None,
        "equal_to_failure_free": not different,
        "different_batches": different,
        "batch_seconds": {"p50": _quantile(steady, 0.5), "p95": _quantile(steady, 0.95)},
        "tuples_per_second": _throughput(batches[3:] if first else batches),
        "checkpoint_cpu_ratio": sum(line["checkpoint_cpu"] for line in batches) / normal if normal else None,
        "longest_gap": _longest_gap(seen),
        "lowest_of": min((line["of"] for line in seen.lines if line["kind"] == "failover"), default=None),
        "plan_changes": [
            {"batch": line["batch"], "plan": line["plan"], "of": line["of"], "of_before": line["of_before"]}
            for line in seen.lines
            if line["kind"] == "plan changed"
        ],
    }


def _seconds(seen: Seen, plan: Collection[str]) -> dict[str, float | None]:
    """Seconds from the first kill to detection, first tentative output, recovery of replicated and of all tasks, correction."""
    if not seen.kill_times:
        return dict.fromkeys(("detected", "first_tentative", "active_recovered", "all_recovered", "reconciled"))
    zero = seen.kill_times[0]

    def after(lines: list[dict[str, Any]], pick: Callable[[list[float]], float] = min) -> float | None:
        times = [line["at"] - zero for line in lines if line["at"] >= zero]
        return pick(times) if times else None

    def of(kind: str) -> list[dict[str, Any]]:
        return [line for line in seen.lines if line["kind"] == kind]

    actives = set(plan) & {task for line in of("failover") for task in line["lost"]}
    back = actives - {task for line in of("failover") for task in line["missing"]}
    return {
        "detected": after(of("node lost")),
        "first_tentative": after(seen.outputs("tentative")),
        "active_recovered": after(of("failover"), max) if actives <= back else after(of("recovered"), max),
        "all_recovered": after(of("recovered"), max),
        "reconciled": after(seen.outputs("correction"), max),
    }


def _throughput(batches: list[dict[str, Any]]) -> float | None:
    spent = sum(line["seconds"] for line in batches)
    return sum(line["source_rows"] for line in batches) / spent if spent else None


def _longest_gap(seen: Seen) -> float | None:
    """The longest time between two batches' first outputs, without the first few batches, in which Spark warms up."""
    times = [line["at"] for line in seen.outputs("accurate", "tentative")][3:]
    return max((b - a for a, b in pairwise(times)), default=None)


def _quantile(values: list[float], share: float) -> float | None:
    if not values:
        return None
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
