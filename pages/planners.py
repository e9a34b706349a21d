"""Planners side by side on one topology: what their plans are worth, what they take, what they pick and why."""

from __future__ import annotations

import streamlit as st

from pages.shared import frame, reading
from pages.shared.budgets import comparison_rows, pick_rows, step_rows
from pages.shared.choosing import cached_plan, cached_points, choose_budget, choose_topology, no_plan
from pages.shared.curves import curve_figure, time_chart
from pages.shared.details import budget_of
from ppa_core.fidelity import Metric
from ppa_core.planners import PLANNERS

COMPARED = ["greedy", "dp", "structure_aware", "exact"]

frame.begin("Planners")
topology, pipeline = choose_topology()
snapshot = reading.state(pipeline).value if pipeline else None
if pipeline is not None:
    frame.tell_on(pipeline)
with st.sidebar:
    chosen = st.multiselect("Planners", list(PLANNERS), default=COMPARED, key="planners", bind="query-params")
    metric = Metric(
        st.radio("Metric", [m.value for m in Metric], format_func=str.upper, horizontal=True, key="metric", bind="query-params")
    )
    limit = st.number_input("Seconds that one plan may take", min_value=0.1, max_value=10.0, value=2.0, step=0.5)
    seconds = st.number_input("Seconds for each planner's curve", min_value=1.0, max_value=30.0, value=6.0, step=1.0)
if not chosen:
    st.info("Choose planners at the left.")
    st.stop()
budget = choose_budget(topology, budget_of(snapshot) if snapshot else None)
external = f", {len(topology.external_tasks)} of them external" if topology.external_tasks else ""
st.text(f"{topology.name}: {len(topology.operators)} operators, {len(topology.tasks)} tasks{external}")

with st.spinner("Planning …"):
    found = {name: cached_plan(topology, budget, name, metric, limit) for name in chosen}
plans = [each for each in found.values() if each is not None]
for name in found:
    if found[name] is None:
        no_plan(name, limit)
if not plans:
    st.stop()
st.subheader("With this budget")
st.dataframe(
    comparison_rows(plans),
    hide_index=True,
    alt="Planners with what their plan is worth and what it took",
    column_config={
        "OF": st.column_config.NumberColumn(format="%.4f"),
        "IC": st.column_config.NumberColumn(format="%.4f"),
        "gap": st.column_config.NumberColumn("gap to the proven optimum", format="percent"),
        "seconds": st.column_config.NumberColumn("time (s)", format="%.4f"),
        "tasks": st.column_config.NumberColumn("tasks replicated"),
    },
)
st.caption("The gap is to the lowest bound that any of these planners has proven; empty where none has proven one.")

st.subheader("Which tasks each picks")
picks = pick_rows(topology, plans)
st.dataframe(picks, hide_index=True, height="content" if len(picks) <= 20 else 400, alt="Tasks and which planners pick them")

st.subheader("Why: the planner's own steps")
told = {each.planner: each for each in plans}
which = st.selectbox("Planner", list(told), key="told", bind="query-params")
value = metric.value.upper()
st.dataframe(
    step_rows(told[which]),
    hide_index=True,
    alt="The planner's steps",
    column_config={
        "step": st.column_config.NumberColumn(width=50),
        value: st.column_config.NumberColumn(format="%.4f", width=80),
        "added": st.column_config.ListColumn(width=220),
        "removed": st.column_config.ListColumn(width=120),
        "why": st.column_config.TextColumn(width=440),
    },
)

st.subheader("By budget")
with st.spinner("Every planner, budget by budget …"):
    points = [cached_points(topology, name, metric, limit, seconds) for name in (each.planner for each in plans)]
present = budget_of(snapshot) if snapshot else None
frame.draw_figure(curve_figure(points, topology.name, metric, budget, present, frame.ink()), "Worth by budget", "curve")
for each in points:
    if each.sparse:
        st.caption(f"{each.planner}: {'single points' if each.plans else 'none'}, as many as {seconds:g} seconds allow.")
frame.draw(time_chart(points), "Time by budget", "times")
