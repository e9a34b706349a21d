"""Incidents: a replay of each, its events, and predicted against measured values."""

from __future__ import annotations

from functools import partial

import streamlit as st

from monitoring.report import html
from monitoring.views import IncidentReport
from pages.shared import frame, reading
from pages.shared.picture import Scene, topology_figure
from pages.shared.replay import batches_at, incident_rows, plan_at, recovered_at, since, span, states_at
from pages.shared.series import accuracy_chart, strip_chart
from pages.shared.tables import event_rows
from pages.shared.words import clock, counted, share
from ppa_core.topology import Topology

frame.begin("Incidents")
pipeline = frame.require_pipeline()
frame.show_notices_live(pipeline)
known = reading.incidents(pipeline).value
topology = reading.topology(pipeline)
if not known or topology is None:
    st.info("This run has had no incidents.", icon=":material/info:")
    st.stop()

table = incident_rows(known)
st.dataframe(
    table,
    hide_index=True,
    height="content" if len(table) <= 8 else 320,
    alt="The incidents of this run",
    column_config={
        "predicted OF": st.column_config.TextColumn(help="The lowest predicted OF of a tentative output."),
        "accuracy": st.column_config.TextColumn(
            help="Mean accuracy of the tentative outputs, measured when they were corrected."
        ),
        "tentative": st.column_config.NumberColumn(help="Batches whose output was first published as tentative."),
        "failed": st.column_config.NumberColumn(help="Tasks that failed."),
        "taken over": st.column_config.NumberColumn(help="Tasks that continued on their replica."),
    },
)

ids = [incident.id for incident in reversed(known)]
if (wanted := st.query_params.get("incident", "")) and wanted not in ids:
    st.info("This run has no incident with the id in the URL; the latest is shown.", icon=":material/info:")
chosen = frame.choose_one("Incident", ids, "incident", st.query_params.get("incident", ""))
report = reading.incident(pipeline, chosen).value
if report is None:
    st.info("The data of this incident is no longer available.")
    st.stop()


@frame.panel()
def replay(report: IncidentReport, topology: Topology) -> None:
    first, last = span(report)
    after = st.slider("Seconds since the start of the incident", first, last, value=1.0, step=0.5, key=f"moment {chosen}")
    at = report.incident.since + after
    then = batches_at(report, at)
    plan = plan_at(report, reading.plans(pipeline).value, at)
    open_ = counted(sum(batch.status == "tentative" for batch in then), "output")
    st.text(f"{clock(at)}: OF of the last output {share(then[-1].of if then else None)}, {open_} tentative")
    frame.draw_figure(
        topology_figure(Scene(topology, states_at(report, plan, at), plan), frame.ink()), "The topology at that time", "then"
    )
    st.caption("Outputs at that time: A accurate, T tentative (not corrected yet), C corrected")
    frame.draw(strip_chart(then), "The outputs at that time", "outputs then")


st.subheader("Replay")
replay(report, topology)

st.subheader("Predicted and measured")
of, accuracy, first, recovered = st.columns(4)
incident = report.incident
of.metric("Lowest predicted OF", share(incident.predicted))
accuracy.metric("Measured accuracy", share(incident.accuracy), help=f"Mean over {incident.measured} corrected batches.")
first.metric("First tentative output after", since(incident, incident.first_tentative))
recovered.metric(
    "Fully recovered after", since(incident, recovered_at(report)), help="When the last failed task was up to date again."
)
frame.draw(accuracy_chart(report.batches), "Predicted OF and measured accuracy of each tentative batch", "accuracy")

st.subheader("Events")
st.dataframe(event_rows(report.events), hide_index=True, alt="The incident's events")
st.download_button(
    "Download the report (HTML)",
    frame.while_shown(partial(html, report)),
    f"incident-{chosen}.html",
    "text/html",
    on_click="ignore",
    key="report",
)
