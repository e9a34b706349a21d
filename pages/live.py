"""Live: the topology as it is now, the output fidelity, and what became of the last outputs."""

from __future__ import annotations

import streamlit as st

from pages.shared import frame, reading
from pages.shared.details import budget_of, incident_line, planner_of, result_line, scene, task_rows
from pages.shared.picture import clicked, topology_figure
from pages.shared.placing import layout, opened_by_itself
from pages.shared.series import of_chart, strip_chart
from pages.shared.words import share

# Comments and no texts below constants here: Streamlit would show these on the page.

frame.begin("Live")
pipeline = frame.require_pipeline()


@st.fragment(run_every=1)
def vitals() -> None:
    answer = reading.state(pipeline)
    snapshot = answer.value
    frame.tell(snapshot, answer.trouble)
    if snapshot is None:
        return
    if snapshot.incident is not None:
        st.warning(incident_line(snapshot.incident, reading.now()), icon=":material/warning:")
    batches = reading.batches(pipeline, 600).value
    left, right = st.columns([1, 3])
    with left:
        st.metric("Output fidelity (OF) now", share(snapshot.of), help="Of the last output; 1 means that nothing is missing.")
        worst = snapshot.plan.of if snapshot.plan else snapshot.info.of
        st.metric("OF if all else fails", share(worst), help="What the plan in force guarantees with only its tasks alive.")
        st.text(f"budget {budget_of(snapshot)}, planner {planner_of(snapshot)}\nbatches of {snapshot.info.batch_seconds:g} s")
    with right:
        frame.draw(of_chart(batches), "Output fidelity over the last ten minutes", "of")
    st.text(f"Latest result, {result_line(snapshot.batch)}")
    st.caption("Outputs, one cell a batch: A accurate, T tentative (not corrected yet), C corrected")
    frame.draw(strip_chart(batches), "The last batches: A accurate, T tentative, C corrected", "strip")


def take_click() -> None:
    found = clicked(st.session_state["topology picture"].selection.points)
    if found.startswith("operator "):
        name = found.removeprefix("operator ")
        st.session_state["opened"] = [*st.session_state.get("opened", []), name]
    elif found:
        st.session_state["task"] = found


@st.fragment(run_every=1)
def tasks() -> None:
    snapshot, topology = reading.state(pipeline).value, reading.topology(pipeline)
    if snapshot is None or topology is None:
        return
    layers = layout(topology, opened_by_itself(topology)).layers
    picture, details = st.columns([3, 1]) if layers <= 5 else (st.container(), st.container())
    with details:
        task = st.selectbox(
            "Task", topology.tasks, index=None, placeholder="click one, or choose", key="task", bind="query-params"
        )
        large = [o.name for o in topology.operators if o.name not in opened_by_itself(topology)]
        chosen = st.multiselect("Operators to show task by task", large, key="opened") if large else []
        if task is not None:
            st.text("\n".join(f"{what}: {now}" for what, now in task_rows(task, snapshot, topology)))
    with picture:
        figure = topology_figure(scene(snapshot, topology, task or "", opened_by_itself(topology) | set(chosen)), frame.ink())
        st.plotly_chart(
            figure,
            key="topology picture",
            on_select=take_click,
            selection_mode="points",
            config={"displayModeBar": False},
            alt="The topology: tasks in layers by state",
        )


vitals()
st.subheader("Topology")
tasks()
