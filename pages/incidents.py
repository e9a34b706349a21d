"""Incidents: what happened, moment by moment, what was predicted and what was measured."""

from __future__ import annotations

from functools import partial

import streamlit as st

from monitoring.report import html
from pages.shared import frame, reading
from pages.shared.picture import Scene, topology_figure
from pages.shared.replay import batches_at, incident_rows, plan_at, span, states_at
from pages.shared.series import accuracy_chart, strip_chart
from pages.shared.tables import event_rows
from pages.shared.words import clock, lasted, share

frame.begin("Incidents")
pipeline = frame.require_pipeline()
answer = reading.state(pipeline)
frame.tell(answer.value, answer.trouble)
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
        "tentative": st.column_config.NumberColumn("tentative batches"),
        "predicted OF": st.column_config.NumberColumn("lowest OF predicted", format="%.4f"),
        "accuracy": st.column_config.NumberColumn("accuracy measured", format="%.4f"),
    },
)

ids = [incident.id for incident in reversed(known)]
chosen = st.selectbox("Incident", ids, key="incident", bind="query-params")
report = reading.incident(pipeline, chosen).value
if report is None:
    st.info("This incident can no longer be read.")
    st.stop()

st.subheader("Replay")
first, last = span(report)
after = st.slider("Seconds since the incident began", first, last, value=1.0, step=0.5, key=f"moment {chosen}")
at = report.incident.since + after
then = batches_at(report, at)
plan = plan_at(report, reading.plans(pipeline).value, at)
st.text(
    f"{clock(at)}: OF {share(then[-1].of if then else None)}, {sum(b.status == 'tentative' for b in then)} outputs tentative"
)
frame.draw_figure(topology_figure(Scene(topology, states_at(report, plan, at), plan), frame.ink()), "The topology then", "then")
st.caption("Outputs as they were known then: A accurate, T tentative (not corrected yet), C corrected")
frame.draw(strip_chart(then), "The outputs then", "outputs then")

st.subheader("Predicted and measured")
of, accuracy, waited, recovered = st.columns(4)
incident = report.incident
of.metric("Lowest OF predicted", share(incident.predicted))
accuracy.metric("Accuracy measured", share(incident.accuracy), help=f"Mean of {incident.measured} batches that were corrected.")
waited.metric(
    "First tentative output after",
    lasted(None if incident.first_tentative is None else incident.first_tentative - incident.since),
)
recovered.metric("Tasks recovered after", lasted(None if incident.recovered is None else incident.recovered - incident.since))
frame.draw(accuracy_chart(report.batches), "Predicted OF and measured accuracy of each tentative batch", "accuracy")

st.subheader("What happened")
st.dataframe(event_rows(report.events), hide_index=True, alt="The incident's events")
st.download_button(
    "Download the report (HTML)", partial(html, report), f"incident-{chosen}.html", "text/html", on_click="ignore", key="report"
)
