"""Choice of the topology to plan: that of the running pipeline, an example, or an uploaded file. And planning itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Never, TypeVar

import streamlit as st

from monitoring.records import MAX_TASKS, RunKey
from pages.server.workers import Unwanted, WorkerEnded, Workers
from pages.shared import frame, reading
from pages.shared.budgets import Points, find_points, max_budget
from pages.shared.words import counted
from ppa_core.errors import BadInput
from ppa_core.fidelity import Metric
from ppa_core.opening import from_bytes
from ppa_core.planners import Plan, plan
from ppa_core.topology import Topology, dumps
from ppa_core.topology.examples import load_example, names

RUNNING = "running pipeline"
GRACE = 5.0
"""Seconds beyond the time limit after which the planning process is killed."""
_WORKERS = Workers()
T = TypeVar("T")
_SOURCES = (RUNNING, "example topology", "file")


def choose_topology() -> tuple[Topology, RunKey | None]:
    """The topology to plan, and the pipeline if it is that of a running one."""
    known = bool(reading.pipelines().value)
    with st.sidebar:
        sources = _SOURCES if known else _SOURCES[1:]
        source = st.radio("Topology", sources, key="source", bind="query-params")
    if source == RUNNING:
        pipeline = frame.choose_pipeline()
        topology = reading.loaded_topology(pipeline) if pipeline else None
        if topology is not None:
            return topology, pipeline
        st.info("The topology of this pipeline is not available; an example is shown.")
    if not known and (trouble := reading.pipelines().trouble):
        st.info("No monitor is available. Example topologies and topology files can still be planned.", icon=":material/info:")
        st.text(trouble)
    if source == "file":
        frame.allow_upload()
        upload = st.sidebar.file_uploader("Topology file", type="json")
        if upload is None:
            st.info("Select a topology file in the sidebar.")
            st.stop()
        try:
            return from_bytes(upload.getvalue(), upload.name, MAX_TASKS), None
        except BadInput as error:
            refuse("This file is not a valid topology.", error)
    place = names().index("tree")
    example = st.sidebar.selectbox("Example topology", names(), index=place, key="topology", bind="query-params")
    return load_example(example), None


def refuse(sentence: str, error: BadInput) -> Never:
    """Show what is wrong and where, as plain text, and stop."""
    st.error(sentence, icon=":material/error:")
    st.code(f"{error.place}\n{error.reason}", language=None, wrap_lines=True)
    st.stop()


def choose_budget(topology: Topology, now: int | None = None) -> int:
    """A slider for the budget. Its default is that of the URL, of the page before, of the pipeline, or a quarter of the tasks.

    The URL always contains the budget, as the default may change.
    """
    most = max(max_budget(topology), 1)
    if st.session_state.get("budget", 0) > most:
        del st.session_state["budget"]  # of a larger topology; Streamlit would reject it
    asked = st.query_params.get("budget", "")
    of, kept = st.session_state.get("kept budget", ("", 0))
    begin = -(-most // 4) if now is None else min(now, most)
    if asked.isdecimal() and len(asked) < 9 and int(asked) <= most:
        begin = int(asked)
    elif of == topology.name and kept <= most:
        begin = kept
    chosen = int(st.slider("Budget: maximum number of tasks with a replica", 0, most, value=begin, key="budget"))
    st.query_params["budget"] = str(chosen)
    st.session_state["kept budget"] = (topology.name, chosen)
    return chosen


@st.cache_data(hash_funcs={Topology: dumps}, max_entries=200, show_spinner=False)
def cached_plan(topology: Topology, budget: int, planner: str, metric: Metric, time_limit: float) -> Plan | None:
    """A plan; None if the planner did not finish in time."""
    return _work(time_limit, plan, topology, budget, planner, metric, time_limit)


@st.cache_data(hash_funcs={Topology: dumps}, max_entries=60, show_spinner=False)
def cached_points(topology: Topology, planner: str, metric: Metric, time_limit: float, seconds: float) -> Points:
    """A planner's plans by budget; empty if they took too long."""
    found = _work(seconds + time_limit, find_points, topology, planner, metric, time_limit, seconds)
    return found or Points(planner, sparse=True)


def no_plan(planner: str, time_limit: float) -> None:
    """Say that a planner did not finish in time."""
    st.warning(f"The planner {planner} did not finish within {time_limit + GRACE:g} s.", icon=":material/timer:")
    st.caption("Select another planner, or use a longer time limit on the command line: `ppa plan --help`.")


def note_sparse(points: Sequence[Points], seconds: float) -> None:
    """Name the planners whose curve is incomplete because of the time limit."""
    for each in points:
        if each.sparse:
            computed = f"only {counted(len(each.plans), 'budget')} computed"
            st.caption(f"{each.planner}: {computed} within the time limit of {seconds:g} s.")


def _work(seconds: float, do: Callable[..., T], *arguments: Any) -> T | None:
    """Plan in a process that ends when the viewer leaves; None if it exceeded its time or memory."""
    try:
        return _WORKERS.run(seconds + GRACE, frame.watched(), do, *arguments)
    except Unwanted:
        st.stop()
    except WorkerEnded:
        return None
