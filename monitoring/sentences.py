"""Events as plain sentences, for terminals, reports and pages. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from ppa_core.engine import run_events as e
from ppa_core.engine.event_codec import as_document, kind_of
from ppa_core.engine.run_events import RunEvent


def sentence(event: RunEvent) -> str:
    """The event as a sentence, without time, batch and cause."""
    match event:
        case e.RunStarted(_, _, query, tasks, nodes):
            return f"{query} started: {counted(tasks, 'task')} on {counted(nodes, 'node')}"
        case e.Starting(what=what):
            return f"starting {what}"
        case e.NodeLost(_, _, node, reason, rack, suspected):
            what = "suspected, and left out until it answers" if suspected else "lost"
            return f"node {node} (rack {rack}) {what}: {reason}" if rack else f"node {node} {what}: {reason}"
        case e.NodeBack(node=node):
            return f"node {node} answers again and is back in use"
        case e.FailedOver(_, _, node, lost, missing, of):
            moved = sorted(set(lost) - set(missing))
            return f"node {node}: taken over: {listed(moved)}; missing: {listed(missing)}; OF {of:.4f}"
        case e.CopyLost(_, _, node, task, missing):
            return f"the copy of {task} on {node} was damaged; " + (
                "the task must be replayed" if missing else "another copy is up to date"
            )
        case e.ReplayStarted(_, batch, tasks, first):
            return f"replaying batches {first} to {batch} for {listed(tasks)}"
        case e.ReplayFinished(_, _, batches, seconds, rows):
            return f"{counted(batches, 'batch', 'batches')} replayed in {seconds:.2f} s, {rows:,} tuples"
        case e.Recovered(tasks=tasks):
            return f"recovered: {listed(tasks)}"
        case e.TentativeBegan(_, _, of, missing):
            return f"output is tentative: OF {of:.4f}, missing: {listed(missing)}"
        case e.Corrected(_, _, first, last, batches, accuracy):
            what = f"batch {first}" if first == last else f"{counted(batches, 'batch', 'batches')} from {first} to {last}"
            return f"{what} corrected{_measured(accuracy)}"
        case e.Reconciled(_, _, seconds, accuracy):
            return f"all output is accurate again, {seconds:.1f} s after the first failure{_measured(accuracy)}"
        case e.PlanChanged(_, _, plan, budget, planner, metric, of, before, reason):
            value = f"{metric.upper()} {of:.4f}, previously {before:.4f}"
            return f"{counted(len(plan), 'replica')} by planner {planner}, budget {budget}, {value}: {reason}"
        case e.PlanningFailed(reason=reason):
            return f"planning failed, the plan is unchanged: {reason}"
        case e.DriverRestarted(_, _, missing, tentative, lost, paused):
            state = "paused" if paused else "running"
            open_ = counted(len(tentative), "tentative batch", "tentative batches")
            return f"the driver was restarted ({state}): missing: {listed(missing)}; {open_}; lost nodes: {listed(lost)}"
        case e.DriverDied(reason=reason):
            return f"the driver ended unexpectedly and is being restarted: {reason}"
        case e.StandbyReady():
            return "the standby driver is ready to take over"
        case e.DriverTookOver(epoch=epoch):
            return f"the standby driver has taken over (driver {epoch} of the run)"
        case e.JobFailed(reason=reason):
            return f"a Spark job failed and is being run again: {reason}"
        case e.StreamRestarted(reason=reason):
            return f"Spark's streaming query is being restarted: {reason}"
        case e.SourceSilent():
            return "a live source does not answer; trying again"
        case e.Paused():
            return "paused: no new batch is started"
        case e.Resumed():
            return "the run continues"
        case e.Stopping():
            return "the run stops after the current batch"
        case e.Ended():
            return "the run has ended"
        case e.Failed(reason=reason) | e.RunUnavailable(reason=reason):
            return f"the run failed: {reason}"
        case e.CommandCarriedOut(_, _, who, what, outcome, text):
            return f"{what} by {who}: {outcome}" + (f": {text}" if text else "")
        case _:
            return _fields(event)


def line_of(event: RunEvent) -> str:
    """An event as one line, without its time."""
    return f"batch {event.batch:<6}  {kind_of(event):<14}  {event.cause:<12}  {sentence(event)}".rstrip()


def listed(items: Sequence[str], most: int = 20) -> str:
    """The first names, and how many more there are."""
    more = f" and {len(items) - most} more" if len(items) > most else ""
    return ", ".join(items[:most]) + more if items else "none"


def _fields(event: RunEvent) -> str:
    """All fields of an event."""
    known = {name: value for name, value in as_document(event).items() if name not in ("kind", "at", "batch", "cause")}
    shown = {name: listed([*map(str, value)]) if isinstance(value, list) else value for name, value in known.items()}
    return ", ".join(f"{name} {value}" for name, value in shown.items())


def counted(number: int, one: str, many: str = "") -> str:
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def _measured(accuracy: float | None) -> str:
    return "" if accuracy is None else f"; measured accuracy {accuracy:.4f}"
