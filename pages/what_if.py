"""What-if: the effect of another budget or planner, and of the loss of nodes, before it happens."""

from __future__ import annotations

import streamlit as st

from monitoring.commands import ApplyPlan
from pages.shared import acting, frame, reading
from pages.shared.budgets import change, max_budget
from pages.shared.choosing import cached_plan, cached_points, choose_budget, choose_topology, no_plan, note_sparse
from pages.shared.curves import curve_figure
from pages.shared.details import budget_of, plan_of, planner_of
from pages.shared.effects import NOT_PUBLISHED, known_nodes, measured_recovery, nodes_of, pace_of, placement_of
from pages.shared.picture import Scene, topology_figure
from pages.shared.tables import change_lines, failure_lines
from pages.shared.words import counted, duration, share
from ppa_core.engine.predictions import predict, with_plan, worst_case_of
from ppa_core.fidelity import Metric
from ppa_core.planners import DEFAULT, PLANNERS

# Time limits in seconds for one plan and for a curve.
PLAN_SECONDS, CURVE_SECONDS = 2.0, 6.0

frame.begin("What-if")
topology, pipeline = choose_topology()
snapshot = reading.state(pipeline).value if pipeline else None
if pipeline is not None:
    frame.show_notices_live(pipeline)
running = planner_of(snapshot) if snapshot else ""
names = list(PLANNERS)
begin = names.index(running if running in names else DEFAULT)
planner = st.sidebar.selectbox("Planner", names, index=begin, key="planner", bind="query-params")
st.sidebar.caption(PLANNERS[planner].summary)
budget = choose_budget(topology, budget_of(snapshot) if snapshot else None)
external = f", {len(topology.external_tasks)} of them external" if topology.external_tasks else ""
st.text(f"{topology.name}: {len(topology.operators)} operators, {len(topology.tasks)} tasks{external}")

proposed = cached_plan(topology, budget, planner, Metric.OF, PLAN_SECONDS)
more = cached_plan(topology, min(budget + 1, max_budget(topology)), planner, Metric.OF, PLAN_SECONDS)
if proposed is None or more is None:
    no_plan(planner, PLAN_SECONDS)
    st.stop()
now = plan_of(snapshot) if snapshot else frozenset()
changed = change(now, proposed.tasks)
of, marginal, used, bound = st.columns(4)
of.metric("Worst-case OF", share(proposed.of), help="OF if all tasks fail except those in the plan.")
marginal.metric(
    "Gain of one more replica", f"{more.of - proposed.of:+.4f}", help="Increase of the worst-case OF, with the same planner."
)
used.metric("Tasks replicated", f"{len(proposed.tasks)} of {max_budget(topology)}")
bound.metric(
    "Proven upper bound", share(proposed.bound), help="No plan within the budget has a higher OF; – if nothing is proven."
)

if pipeline is not None and snapshot is not None:
    lines = change_lines(budget, worst_case_of(topology, now), proposed.of, changed)
    with st.container(border=True):
        st.text("\n".join(lines))
        if frame.operator() is None:
            st.caption("Log in as operator to apply this plan to the running pipeline.")
        elif st.button("Apply to the running pipeline …", key="apply", type="primary"):
            acting.ask("what-if", pipeline, ApplyPlan(budget, planner, tuple(proposed.tasks)), lines)
    acting.confirm("what-if", pipeline)

st.subheader("OF by budget")
with st.spinner("Computing plans for all budgets …"):
    points = [
        cached_points(topology, name, Metric.OF, PLAN_SECONDS, CURVE_SECONDS) for name in dict.fromkeys([DEFAULT, planner])
    ]
present = budget_of(snapshot) if snapshot else None
frame.draw_figure(curve_figure(points, topology.name, Metric.OF, budget, present, frame.ink()), "OF by budget", "curve")
note_sparse(points, CURVE_SECONDS)

st.subheader("If nodes or racks fail" if snapshot else "The plan")
missing: tuple[str, ...] = ()
if snapshot is not None and snapshot.standing is None:
    st.info(NOT_PUBLISHED)
if snapshot is not None and snapshot.standing is not None:
    nodes = known_nodes(snapshot)
    choices = [*sorted({f"rack:{node.rack}" for node in nodes}), *(f"node:{node.name}" for node in nodes)]
    failing = st.multiselect("Nodes and racks that fail", choices, key="failing", bind="query-params")
    lost = nodes_of(snapshot, failing)
    pace = pace_of(reading.batches(pipeline, 600).value, snapshot.info.batch_seconds) if pipeline else None
    as_is = predict(snapshot.standing, lost, topology, pace)
    planned = with_plan(snapshot.standing, placement_of(snapshot), proposed.tasks)
    with_budget = predict(planned, lost, topology, pace)
    missing = with_budget.loss.missing
    left, right = st.columns(2)
    left.metric("OF with the current replicas", share(as_is.of))
    left.text("\n".join(failure_lines(as_is)))
    right.metric(f"OF with a budget of {budget}", share(with_budget.of))
    right.text("\n".join(failure_lines(with_budget)))
    if pipeline is not None and (took := measured_recovery(reading.incidents(pipeline).value)):
        st.caption(
            f"Median time until everything was corrected, over {counted(took[1], 'earlier incident')}: {duration(took[0])}."
        )
st.caption("Plan for this budget. Tasks that would be missing are shown as failed." if missing else "Plan for this budget.")
states = {**dict.fromkeys(proposed.tasks, "replicated"), **dict.fromkeys(missing, "failed")}
frame.draw_figure(topology_figure(Scene(topology, states, frozenset(proposed.tasks)), frame.ink()), "The plan", "plan")
