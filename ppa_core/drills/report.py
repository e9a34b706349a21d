"""The report of a drill: what was seen, and what was measured from it."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

from ppa_core.driver.output_log import OutputLog
from ppa_core.engine.run_events import BatchFinished, FailedOver, NodeLost, OutputPublished, PlanChanged, Recovered, RunEvent

Reported = TypeVar("Reported", bound=RunEvent)


@dataclass
class Seen:
    """The events of a run, and what the drill made fail."""

    events: list[RunEvent] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    failed_at: list[float] = field(default_factory=list)

    def of(self, kind: type[Reported]) -> list[Reported]:
        """The events of one type."""
        return [event for event in self.events if isinstance(event, kind)]

    def outputs(self, *statuses: str) -> list[OutputPublished]:
        return [event for event in self.of(OutputPublished) if not statuses or event.status in statuses]

    def first_outputs(self) -> list[OutputPublished]:
        """The first output of each batch, by batch."""
        found: dict[int, OutputPublished] = {}
        for output in self.outputs("accurate", "tentative"):
            found.setdefault(output.batch, output)
        return [found[batch] for batch in sorted(found)]

    def accurate(self) -> dict[int, tuple[int, str]]:
        """Batch to revision and digest of the accurate output."""
        return {event.batch: (event.revision, event.digest) for event in self.outputs("accurate", "correction")}


def accuracy_of(measure: Callable[[Any, Any], float | None], seen: Seen, folder: Path) -> float | None:
    """The mean accuracy of the tentative outputs, by the query's own function; None if there were none."""
    log, accurate = OutputLog(folder), seen.accurate()
    found = []
    for event in seen.outputs("tentative"):
        revision, _ = accurate[event.batch]
        found.append(measure(log.read(event.batch, event.revision), log.read(event.batch, revision)))
    known = [share for share in found if share is not None]
    return statistics.fmean(known) if known else None


def report(
    plan: Sequence[str], predicted: float, seen: Seen, clean: Seen, accuracy: float | None, deadline: float
) -> dict[str, Any]:
    """What a run with failures came to, beside one without (`clean`)."""
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
        "deadline": deadline,
        "late_outputs": sum(output.delay is not None and output.delay > deadline for output in seen.first_outputs()),
        "longest_silence": _longest_silence(seen),
        "lowest_of": min((failover.of for failover in failovers), default=None),
        "plan_changes": [
            {"batch": change.batch, "plan": list(change.plan), "of": change.of, "of_before": change.of_before}
            for change in seen.of(PlanChanged)
        ],
    }


def _seconds(seen: Seen, plan: Collection[str]) -> dict[str, float | None]:
    """Seconds from the first failure to detection, first tentative output, recovery of replicated and of all tasks, and
    correction."""
    if not seen.failed_at:
        return dict.fromkeys(("detected", "first_tentative", "active_recovered", "all_recovered", "reconciled"))
    zero = seen.failed_at[0]

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


def _longest_silence(seen: Seen) -> float | None:
    """The longest time between the first outputs of two batches in a row, without the first few batches, in which Spark warms
    up. The normal interval is part of it."""
    times = [output.at for output in seen.first_outputs()][3:]
    return max((b - a for a, b in pairwise(times)), default=None)


def _quantile(values: list[float], share: float) -> float | None:
    if not values:
        return None
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
