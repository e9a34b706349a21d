"""Incidents: what happened, moment by moment, what was predicted and what was measured."""

from __future__ import annotations

from functools import partial

import streamlit as st

from monitoring.report import html
from monitoring.views import IncidentReport
from pages.shared import frame, reading
from pages.shared.picture import Scene, topology_figure
from pages.shared.replay import batches_at, incident_rows, plan_at, since, span, states_at, whole_at
from pages.shared.series import accuracy_chart, strip_chart
from pages.shared.tables import event_rows
from pages.shared.words import clock, counted, share
from ppa_core.topology import Topology

frame.begin("Incidents")
pipeline = frame.require_pipeline()
frame.tell_on(pipeline)
known = reading.incidents(pipeline).value
topology = reading.topology(pipeline)
if not known or topology is None:
    st.info("There was no incident in this run.", icon=":material/info:")
    st.stop()

table = incident_rows(known)
st.dataframe(
    table,
    hide_index=True,
    height="content" if len(table) <= 8 else 320,
    alt="The incidents of this run",
    column_config={
        "predicted OF": st.column_config.TextColumn(help="The lowest that was told with an output."),
        "accuracy": st.column_config.TextColumn(help="Measured when outputs were corrected: their mean."),
        "tentative": st.column_config.NumberColumn(help="Batches whose output was tentative at first."),
        "failed": st.column_config.NumberColumn(help="Tasks."),
        "taken over": st.column_config.NumberColumn(help="Tasks that went on where their replica was."),
    },
)

ids = [incident.id for incident in reversed(known)]
if (wanted := st.query_params.get("incident", "")) and wanted not in ids:
    st.info("The address names an incident that this run does not have; the latest is shown.", icon=":material/info:")
chosen = frame.choose_one("Incident", ids, "incident", st.query_params.get("incident", ""))
report = reading.incident(pipeline, chosen).value
if report is None:
    st.info("This incident can no longer be read.")
    st.stop()


@frame.panel()
def replay(report: IncidentReport, topology: Topology) -> None:
    first, last = span(report)
    after = st.slider("Seconds since the incident began", first, last, value=1.0, step=0.5, key=f"moment {chosen}")
    at = report.incident.since + after
    then = batches_at(report, at)
    plan = plan_at(report, reading.plans(pipeline).value, at)
    open_ = counted(sum(batch.status == "tentative" for batch in then), "output")
    st.text(f"{clock(at)}: last output OF {share(then[-1].of if then else None)}, {open_} tentative")
    frame.draw_figure(
        topology_figure(Scene(topology, states_at(report, plan, at), plan), frame.ink()), "The topology then", "then"
    )
    st.caption("Outputs as they were known then: A accurate, T tentative (not corrected yet), C corrected")
    frame.draw(strip_chart(then), "The outputs then", "outputs then")


st.subheader("Replay")
replay(report, topology)

st.subheader("Predicted and measured")
of, accuracy, waited, recovered = st.columns(4)
incident = report.incident
of.metric("Lowest OF predicted", share(incident.predicted))
accuracy.metric("Accuracy measured", share(incident.accuracy), help=f"Mean of {incident.measured} batches that were corrected.")
waited.metric("First tentative output after", since(incident, incident.first_tentative))
recovered.metric(
    "Whole again after", since(incident, whole_at(report)), help="When the last task that had failed was up to date again."
)
frame.draw(accuracy_chart(report.batches), "Predicted OF and measured accuracy of each tentative batch", "accuracy")

st.subheader("What happened")
st.dataframe(event_rows(report.events), hide_index=True, alt="The incident's events")
st.download_button(
    "Download the report (HTML)",
    frame.while_shown(partial(html, report)),
    f"incident-{chosen}.html",
    "text/html",
    on_click="ignore",
    key="report",
)
