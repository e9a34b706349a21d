"""Live: the current output fidelity, the latest outputs, and the topology with the state of each task."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from monitoring.views import BatchRecord, Snapshot
from pages.shared import frame, reading
from pages.shared.details import budget_of, delay_line, incident_line, plan_of, planner_of, result_line, scene, task_rows
from pages.shared.picture import clicked, topology_figure
from pages.shared.placing import layout, opened_by_default
from pages.shared.series import of_chart, strip_chart
from pages.shared.words import share
from ppa_core.engine.predictions import worst_case_of
from ppa_core.topology import Topology

# No docstrings of constants in page scripts: Streamlit would show them on the page.

frame.begin("Live")
pipeline = frame.require_pipeline()


def take_click() -> None:
    name = clicked(st.session_state["topology picture"].selection.points)
    if name.startswith("operator "):
        st.session_state["opened"] = [*st.session_state.get("opened", []), name.removeprefix("operator ")]
    elif name:
        st.session_state["task"] = name


def show_outputs(snapshot: Snapshot, batches: Sequence[BatchRecord]) -> None:
    left, right = st.columns([1, 3])
    with left:
        st.metric(
            "Current output fidelity (OF)", share(snapshot.of), help="OF of the latest output; 1 means that nothing is missing."
        )
        loaded = reading.loaded_topology(pipeline)
        worst = worst_case_of(loaded, plan_of(snapshot)) if loaded else None
        st.metric("Worst-case OF", share(worst), help="OF if all tasks fail except those in the plan.")
        st.text(
            f"budget {budget_of(snapshot)}, planner {planner_of(snapshot)}\nbatch interval {snapshot.info.batch_seconds:g} s"
        )
        st.text(delay_line(snapshot))
    with right:
        frame.draw(of_chart(batches), "Output fidelity over the last ten minutes", "of")
    st.text(f"Latest output: {result_line(snapshot.batch, len(snapshot.tasks))}")
    if snapshot.sample and snapshot.sample.rows:
        with st.expander(f"First {len(snapshot.sample.rows)} rows of batch {snapshot.sample.batch} ({snapshot.sample.status})"):
            st.dataframe(snapshot.sample.rows, hide_index=True)
    st.caption("Latest outputs, one cell per batch: A accurate, T tentative (not corrected yet), C corrected")
    frame.draw(strip_chart(batches), "The last batches: A accurate, T tentative, C corrected", "strip")


def show_topology(snapshot: Snapshot, topology: Topology) -> None:
    own = opened_by_default(topology)
    few = layout(topology, own).layers <= 5
    picture, details = st.columns([3, 1]) if few else (st.container(), st.container())
    with details:
        task = st.selectbox(
            "Task", topology.tasks, index=None, placeholder="click or select a task", key="task", bind="query-params"
        )
        large = [operator.name for operator in topology.operators if operator.name not in own]
        chosen = st.multiselect("Show the tasks of these operators", large, key="opened") if large else []
        if task is not None:
            st.text("\n".join(f"{what}: {now}" for what, now in task_rows(task, snapshot, topology)))
    with picture:
        st.plotly_chart(
            topology_figure(scene(snapshot, topology, task or "", own | set(chosen)), frame.ink()),
            key="topology picture",
            on_select=take_click,
            selection_mode="points",
            config={"displayModeBar": False},
            alt="The topology: tasks by operator, with their states",
        )


@frame.panel(every=1)
def live() -> None:
    answer, topology = reading.state(pipeline), reading.topology(pipeline)
    frame.show_notices(answer.value, answer.trouble)
    if answer.value is None or topology is None:
        return
    if answer.value.incident is not None:
        st.warning(incident_line(answer.value.incident, reading.now()), icon=":material/warning:")
    show_outputs(answer.value, reading.batches(pipeline, 600).value)
    st.subheader("Topology")
    show_topology(answer.value, topology)


live()
