"""Planners: a comparison on one topology of their plans, run times, chosen tasks and steps."""

from __future__ import annotations

import streamlit as st

from pages.shared import frame, reading
from pages.shared.budgets import comparison_rows, pick_rows, step_rows
from pages.shared.choosing import cached_plan, cached_points, choose_budget, choose_topology, no_plan, note_sparse
from pages.shared.curves import curve_figure, time_chart
from pages.shared.details import budget_of
from ppa_core.fidelity import Metric
from ppa_core.planners import PLANNERS

COMPARED = ["greedy", "dp", "structure_aware", "exact"]

frame.begin("Planners")
topology, pipeline = choose_topology()
snapshot = reading.state(pipeline).value if pipeline else None
if pipeline is not None:
    frame.show_notices_live(pipeline)
with st.sidebar:
    chosen = st.multiselect("Planners", list(PLANNERS), default=COMPARED, key="planners", bind="query-params")
    metric = Metric(
        st.radio("Metric", [m.value for m in Metric], format_func=str.upper, horizontal=True, key="metric", bind="query-params")
    )
    limit = st.number_input("Time limit per plan (s)", min_value=0.1, max_value=10.0, value=2.0, step=0.5)
    seconds = st.number_input("Time limit per curve (s)", min_value=1.0, max_value=30.0, value=6.0, step=1.0)
if not chosen:
    st.info("Select at least one planner in the sidebar.")
    st.stop()
budget = choose_budget(topology, budget_of(snapshot) if snapshot else None)
external = f", {len(topology.external_tasks)} of them external" if topology.external_tasks else ""
st.text(f"{topology.name}: {len(topology.operators)} operators, {len(topology.tasks)} tasks{external}")

with st.spinner("Planning …"):
    results = {name: cached_plan(topology, budget, name, metric, limit) for name in chosen}
plans = [each for each in results.values() if each is not None]
for name in results:
    if results[name] is None:
        no_plan(name, limit)
if not plans:
    st.stop()
st.subheader("Plans for this budget")
st.dataframe(
    comparison_rows(plans),
    hide_index=True,
    alt="Planners with the OF of their plan and their run time",
    column_config={
        "OF": st.column_config.NumberColumn(format="%.4f"),
        "IC": st.column_config.NumberColumn(format="%.4f"),
        "gap": st.column_config.NumberColumn("gap to the best bound", format="percent"),
        "seconds": st.column_config.NumberColumn("time (s)", format="%.4f"),
        "tasks": st.column_config.NumberColumn("replicated tasks"),
    },
)
st.caption(
    "The gap is measured from the lowest upper bound that one of these planners has proven; it is empty if none has proven one."
)

st.subheader("Tasks chosen by each planner")
picks = pick_rows(topology, plans)
st.dataframe(
    picks, hide_index=True, height="content" if len(picks) <= 20 else 400, alt="Tasks, and the planners that choose them"
)

st.subheader("Steps of a planner, with reasons")
by_name = {each.planner: each for each in plans}
which = st.selectbox("Planner", list(by_name), key="steps", bind="query-params")
value = metric.value.upper()
st.dataframe(
    step_rows(by_name[which]),
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

st.subheader(f"{value} and run time by budget")
with st.spinner("Computing plans for all budgets …"):
    points = [cached_points(topology, name, metric, limit, seconds) for name in (each.planner for each in plans)]
present = budget_of(snapshot) if snapshot else None
frame.draw_figure(curve_figure(points, topology.name, metric, budget, present, frame.ink()), f"{value} by budget", "curve")
note_sparse(points, seconds)
frame.draw(time_chart(points), "Run time by budget", "times")
