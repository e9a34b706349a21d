"""An incident at one moment of it: the tasks' states and the outputs as they were then. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from monitoring.incidents import count
from monitoring.records import Incident, PlanChange
from monitoring.views import BatchRecord, IncidentReport
from pages.shared.words import clock, lasted, share

AROUND = 10.0
"""Seconds before and after an incident that a replay shows."""


def span(report: IncidentReport) -> tuple[float, float]:
    """From when to when a replay goes, in seconds since the incident began: a little before it to a little after it."""
    since = report.incident.since
    known = [*(batch.at for batch in report.batches), *(change.at for change in report.changes)]
    end = max(known, default=since) if report.incident.until is None else report.incident.until + AROUND
    return -AROUND, max(2.0, float(round(end - since)))


def whole_at(report: IncidentReport) -> float | None:
    """When the last task that had failed was up to date again; None while one is not."""
    times = [recovery.whole for recovery in report.recoveries]
    known = [at for at in times if at is not None]
    return max(known) if known and len(known) == len(times) else None


def since(incident: Incident, at: float | None) -> str:
    """How long after its beginning something happened."""
    return lasted(None if at is None else at - incident.since)


def plan_at(report: IncidentReport, plans: Sequence[PlanChange], at: float) -> frozenset[str]:
    """The plan that held at a moment."""
    before = [plan for plan in plans if plan.at <= at]
    return frozenset(before[-1].plan if before else report.info.plan)


def states_at(report: IncidentReport, plan: frozenset[str], at: float) -> dict[str, str]:
    """The state of every task at a moment; those that the incident did not touch are as the plan has them."""
    states: dict[str, str] = dict.fromkeys(plan, "replicated")
    states.update(report.states_at(at))
    return states


def batches_at(report: IncidentReport, at: float) -> list[BatchRecord]:
    """The outputs that were published by then, as they were known then: what was corrected later was tentative still."""
    return [
        replace(batch, status="tentative", corrected_at=None, accuracy=None)
        if batch.corrected_at is not None and batch.corrected_at > at
        else batch
        for batch in report.batches
        if batch.at <= at
    ]


def incident_rows(incidents: Sequence[Incident]) -> list[dict[str, object]]:
    """Incidents as rows of a table, the newest first."""
    return [
        {
            "incident": incident.id,
            "began": clock(incident.since),
            "lasted": "goes on" if incident.until is None else lasted(incident.until - incident.since),
            "predicted OF": share(incident.predicted),
            "accuracy": share(incident.accuracy),
            "tentative": count(incident.tentative),
            "corrected": count(incident.corrected),
            "failed": len(incident.failed),
            "taken over": len(incident.taken_over),
            "nodes lost": list(incident.nodes),
        }
        for incident in reversed(incidents)
    ]
