"""Planning: choose a topology, a budget and a planner; see the tasks to replicate and what that is worth."""

from __future__ import annotations

from typing import Never

import streamlit as st

from ppa_core import plots
from ppa_core.errors import BadInput
from ppa_core.fidelity import Metric
from ppa_core.opening import from_bytes
from ppa_core.planners import DEFAULT, PLANNERS, Plan, Status, compare, plan
from ppa_core.topology import Topology, dumps
from ppa_core.topology.examples import load_example, names

STATUS_HELP = {
    Status.OPTIMAL: "It is proven that no plan within the budget is better.",
    Status.HEURISTIC: "Nothing is proven of it.",
    Status.TIME_LIMIT: "It was stopped at a limit before the optimum was proven.",
}


@st.cache_data(hash_funcs={Topology: dumps}, max_entries=100, show_spinner="Planning …")
def cached_plan(topology: Topology, budget: int, planner: str, metric: Metric, time_limit: float) -> Plan:
    return plan(topology, budget, planner, metric, time_limit)


@st.cache_data(hash_funcs={Topology: dumps}, max_entries=20, show_spinner="Drawing the curve …")
def cached_curve(topology: Topology, planners: tuple[str, ...], metric: Metric, time_limit: float) -> list[Plan]:
    return compare(topology, plots.budget_grid(topology), planners, metric, time_limit, None)


def refuse(sentence: str, error: BadInput) -> Never:
    """Say what is wrong and where, as text whatever the file says, and draw no more."""
    st.error(sentence, icon=":material/error:")
    st.code(f"{error.place}\n{error.reason}", language=None, wrap_lines=True)
    st.stop()


st.title("Planning")
st.markdown("Which tasks should have an active replica, so that the output is as good as possible when all others fail?")

with st.sidebar:
    upload = st.file_uploader("Topology file", type="json", help="Leave it empty to use a topology that ships.")
    example = st.selectbox(
        "Shipped topology",
        names(),
        index=names().index("tree"),
        disabled=upload is not None,
        key="topology",
        bind="query-params",
    )
    planner = st.selectbox("Planner", list(PLANNERS), index=list(PLANNERS).index(DEFAULT), key="planner", bind="query-params")
    st.caption(PLANNERS[planner].summary)
    metric = Metric(
        st.radio("Metric", [m.value for m in Metric], format_func=str.upper, horizontal=True, key="metric", bind="query-params")
    )
    time_limit = st.number_input("Seconds that one plan may take", min_value=0.1, max_value=60.0, value=2.0, step=0.5)

try:
    topology = load_example(example) if upload is None else from_bytes(upload.getvalue(), upload.name)
except BadInput as error:
    refuse("This file is not a topology that can be planned.", error)

tasks = len(topology.tasks)
most = max(plots.budget_grid(topology)[-1], 1)
budget = st.slider(
    "Budget: how many tasks may have an active replica", 0, most, value=-(-most // 4), key="budget", bind="query-params"
)
st.text(f"{topology.name}: {len(topology.operators)} operators, {tasks} tasks")

try:
    found = cached_plan(topology, budget, planner, metric, time_limit)
    curve = cached_curve(topology, tuple(dict.fromkeys((planner, "greedy"))), metric, time_limit)
except BadInput as error:
    refuse(f"The planner {planner} cannot plan this topology.", error)

of, ic, bound, status, used = st.columns(5)
of.metric("Output fidelity (OF)", f"{found.of:.4f}", help="With only these tasks alive: the worst case.")
ic.metric("Completeness (IC)", f"{found.ic:.4f}", help="The share of all tuples that is still processed.")
bound.metric(
    "Proven bound", "none" if found.bound is None else f"{found.bound:.4f}", help="No plan within the budget exceeds it."
)
status.metric("Status", found.status.replace("_", " "), help=f"{STATUS_HELP[found.status]} Found in {found.seconds:.3f} s.")
used.metric("Tasks replicated", f"{len(found.tasks)} of {tasks}")

figure = plots.budget_curve(curve, topology.name, metric, marked=budget)
st.plotly_chart(figure, theme=None, alt=f"{metric.value.upper()} by budget, one curve a planner")

left, right = st.columns([2, 3])
chosen = set(found.tasks)
left.subheader("Tasks to replicate")
left.dataframe(
    [
        {
            "operator": operator.name,
            "tasks": operator.tasks,
            "replicated": [task for n in range(1, operator.tasks + 1) if (task := operator.task(n)) in chosen],
        }
        for operator in topology.operators
    ],
    hide_index=True,
    alt="The operators and which of their tasks get a replica",
)
right.subheader("How the planner came there")
right.dataframe(
    [
        {
            "step": i,
            "why": step.note,
            metric.value.upper(): step.value,
            "added": list(step.added),
            "removed": list(step.removed),
        }
        for i, step in enumerate(found.steps, 1)
    ],
    hide_index=True,
    alt="The planner's steps",
)
