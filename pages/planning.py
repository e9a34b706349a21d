"""Planning: choose a topology, a budget and a planner; see the tasks to replicate and what that is worth."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any, Never

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from ppa_core import plots
from ppa_core.errors import BadInput
from ppa_core.fidelity import Metric
from ppa_core.opening import from_bytes
from ppa_core.planners import DEFAULT, PLANNERS, Plan, Status, curve, plan
from ppa_core.topology import Topology, dumps
from ppa_core.topology.examples import load_example, names

# Comments and no texts below constants here: Streamlit would show these on the page.

# What a curve may take in all. It is drawn after the plan, with the points that this time allows.
CURVE_SECONDS = 8.0

# Up to so many tasks the default planner's curve over all budgets is cheap enough to be drawn always.
CURVE_TASKS = 300

STATUS_HELP = {
    Status.OPTIMAL: "It is proven that no plan within the budget is better.",
    Status.HEURISTIC: "Nothing is proven of it.",
    Status.TIME_LIMIT: "It was stopped at a limit before the optimum was proven.",
}


@st.cache_data(hash_funcs={Topology: dumps}, max_entries=100, show_spinner=False)
def cached_plan(topology: Topology, budget: int, planner: str, metric: Metric, time_limit: float) -> Plan:
    return plan(topology, budget, planner, metric, time_limit)


def refuse(sentence: str, error: BadInput) -> Never:
    """Say what is wrong and where, as text whatever the file says, and draw no more."""
    st.error(sentence, icon=":material/error:")
    st.code(f"{error.place}\n{error.reason}", language=None, wrap_lines=True)
    st.stop()


def remembered(question: Any) -> dict[str, Any]:
    """What this session knows of a curve: its points by planner and budget, and the seconds spent on it."""
    curves: dict[Any, dict[str, Any]] = st.session_state.setdefault("curves", {})
    known = curves.pop(question, {"points": {}, "spent": 0.0, "curve": False, "done": False})
    curves[question] = known  # the one asked for last is forgotten last
    while len(curves) > 10:
        del curves[next(iter(curves))]
    return known


def find_points(known: dict[str, Any], place: DeltaGenerator) -> None:
    """Add points to a curve until all are there or its time is spent. Whatever is found stays if the user goes on before."""
    began, before = time.perf_counter(), known["spent"]
    grid = plots.budget_grid(topology)
    spread = list(dict.fromkeys(b for step in (32, 16, 8, 4, 2, 1) for b in (*grid[::step], grid[-1])))  # rough, then fine

    def left(share: float = 1.0) -> float:
        known["spent"] = before + time.perf_counter() - began
        return float(share * CURVE_SECONDS - known["spent"])

    def tell(name: str, done: int, total: int) -> None:
        place.progress(done / max(1, total), f"The curve, budget by budget: {name}, {done} of {total}")

    def ask(name: str, share: float) -> None:
        for done, at in enumerate(spread):
            if left(share) <= 0:
                return
            if (name, at) not in known["points"]:
                tell(name, done, len(spread))
                limit = max(0.1, min(time_limit, left(share)))
                known["points"][name, at] = replace(plan(topology, at, name, metric, limit), steps=())

    whole = len(topology.tasks) <= CURVE_TASKS
    ask("greedy", 0.3)
    if whole and not known["curve"] and left() > 0:
        tell(DEFAULT, 0, len(grid))
        limit = min(time_limit, CURVE_SECONDS / 4)
        for row in curve(topology, metric, limit, grid, lambda done, total: tell(DEFAULT, done, total)):
            known["points"][DEFAULT, row.budget] = replace(row, steps=())
        known["curve"] = True
    if not (whole and planner == DEFAULT):
        ask(planner, 1.0)
    left()
    known["done"] = True


def draw_curve(known: dict[str, Any], place: DeltaGenerator) -> None:
    """The curve with the points that are known, and a word on those that are not."""
    points, wanted = known["points"], plots.budget_grid(topology)
    asked = {name: sum((name, at) in points for at in wanted) for name, _ in points}
    sparse = [name for name, count in asked.items() if count < len(wanted)]
    figure = plots.budget_curve(list(points.values()), topology.name, metric, marked=budget, sparse=sparse)
    with place.container():
        alt = f"{metric.value.upper()} by budget, one curve a planner"
        st.plotly_chart(figure, theme=None, alt=alt, key=f"curve of {len(points)} points")
        for name in sparse:
            st.caption(f"{name}: single points, as many as {CURVE_SECONDS:g} seconds allow.")


def show_numbers(found: Plan) -> None:
    of, ic, bound, status, used = st.columns(5)
    of.metric("Output fidelity (OF)", f"{found.of:.4f}", help="With only these tasks alive: the worst case.")
    ic.metric("Completeness (IC)", f"{found.ic:.4f}", help="The share of all tuples that is still processed.")
    proven = "none" if found.bound is None else f"{found.bound:.4f}"
    bound.metric("Proven bound", proven, help="No plan within the budget exceeds it.")
    told = f"{STATUS_HELP[found.status]} Found in {found.seconds:.3f} s."
    status.metric("Status", found.status.replace("_", " "), help=told)
    external = len(topology.external_tasks)
    counted = f"Not counted: {external} tasks of external sources, which never fail." if external else None
    used.metric("Tasks replicated", f"{len(found.tasks)} of {len(topology.tasks) - external}", help=counted)


def show_tables(found: Plan) -> None:
    chosen = set(found.tasks)
    st.subheader("Tasks to replicate")
    picture = plots.operators_dot(topology, chosen)
    if picture is not None:
        st.graphviz_chart(picture)
    rows = []
    for operator in topology.operators:
        which = [task for n in range(1, operator.tasks + 1) if (task := operator.task(n)) in chosen]
        share = "external, never fails" if operator.external else f"{len(which)} of {operator.tasks}"
        rows.append({"operator": operator.name, "replicated": share, "tasks": which})
    st.dataframe(
        rows,
        column_config={
            "operator": st.column_config.TextColumn(width=150),
            "replicated": st.column_config.TextColumn(width=150),
            "tasks": st.column_config.ListColumn(width=480),
        },
        hide_index=True,
        alt="The operators and which of their tasks get a replica",
    )
    st.subheader("How the planner came there")
    value = metric.value.upper()
    steps = [
        {"step": i, value: step.value, "why": step.note, "added": list(step.added), "removed": list(step.removed)}
        for i, step in enumerate(found.steps, 1)
    ]
    removed = any(step.removed for step in found.steps)
    st.dataframe(
        steps,
        column_order=["step", value, "added", *(["removed"] if removed else []), "why"],
        column_config={
            "step": st.column_config.NumberColumn(width=50),
            value: st.column_config.NumberColumn(format="%.4f", width=70),
            "added": st.column_config.ListColumn(width=220),
            "removed": st.column_config.ListColumn(width=120),
            "why": st.column_config.TextColumn(width=440),
        },
        hide_index=True,
        alt="The planner's steps",
    )


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

most = max(plots.budget_grid(topology)[-1], 1)
if st.session_state.get("budget", 0) > most:
    del st.session_state["budget"]  # of a larger topology; Streamlit would refuse it
budget = st.slider(
    "Budget: how many tasks may have an active replica", 0, most, value=-(-most // 4), key="budget", bind="query-params"
)
external = f", {len(topology.external_tasks)} of them external" if topology.external_tasks else ""
st.text(f"{topology.name}: {len(topology.operators)} operators, {len(topology.tasks)} tasks{external}")

# Every place is emptied or filled anew before the work starts, so that nothing of an earlier question is left to see.
numbers, drawing, tables = st.empty(), st.empty(), st.empty()
known = remembered((topology, planner, metric, time_limit))
if known["done"]:
    draw_curve(known, drawing)
drawn = len(known["points"]) if known["done"] else -1
try:
    with numbers, st.spinner("Planning …"):
        found = cached_plan(topology, budget, planner, metric, time_limit)
except BadInput as error:
    drawing.empty()
    refuse(f"The planner {planner} cannot plan this topology.", error)
with numbers.container():
    show_numbers(found)
with tables.container():
    show_tables(found)
known["points"].setdefault((planner, budget), replace(found, steps=()))
if not known["done"]:
    find_points(known, drawing)
if len(known["points"]) != drawn:
    draw_curve(known, drawing)
