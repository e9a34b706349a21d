"""The state of tasks and outputs at one moment of an incident. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from monitoring.incidents import count
from monitoring.records import Incident, PlanChange
from monitoring.views import BatchRecord, IncidentReport
from pages.shared.words import clock, duration, share

AROUND = 10.0
"""Seconds before and after an incident that a replay includes."""


def span(report: IncidentReport) -> tuple[float, float]:
    """Start and end of a replay, in seconds since the start of the incident."""
    since = report.incident.since
    known = [*(batch.at for batch in report.batches), *(change.at for change in report.changes)]
    end = max(known, default=since) if report.incident.until is None else report.incident.until + AROUND
    return -AROUND, max(2.0, float(round(end - since)))


def recovered_at(report: IncidentReport) -> float | None:
    """When the last failed task was up to date again; None while one is not."""
    times = [recovery.whole for recovery in report.recoveries]
    known = [at for at in times if at is not None]
    return max(known) if known and len(known) == len(times) else None


def since(incident: Incident, at: float | None) -> str:
    """The time from the start of an incident to `at`, as text."""
    return duration(None if at is None else at - incident.since)


def plan_at(report: IncidentReport, plans: Sequence[PlanChange], at: float) -> frozenset[str]:
    """The plan at a moment."""
    before = [plan for plan in plans if plan.at <= at]
    return frozenset(before[-1].plan if before else report.info.plan)


def states_at(report: IncidentReport, plan: frozenset[str], at: float) -> dict[str, str]:
    """The state of tasks at a moment; those not affected by the incident are running, replicated if in the plan."""
    states: dict[str, str] = dict.fromkeys(plan, "replicated")
    states.update(report.states_at(at))
    return states


def batches_at(report: IncidentReport, at: float) -> list[BatchRecord]:
    """The outputs published until a moment, with their status at that time: corrected later means still tentative."""
    return [
        replace(batch, status="tentative", corrected_at=None, accuracy=None)
        if batch.corrected_at is not None and batch.corrected_at > at
        else batch
        for batch in report.batches
        if batch.at <= at
    ]


def incident_rows(incidents: Sequence[Incident]) -> list[dict[str, object]]:
    """Incidents as rows of a table, newest first."""
    return [
        {
            "incident": incident.id,
            "started": clock(incident.since),
            "duration": "in progress" if incident.until is None else duration(incident.until - incident.since),
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
