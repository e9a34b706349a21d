"""Choosing a topology to think about: that of the running pipeline, one that ships, or an uploaded file."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Never, TypeVar

import streamlit as st

from monitoring.records import MAX_TASKS, RunKey
from pages.server.workers import Ended, Unwanted, Workers
from pages.shared import frame, reading
from pages.shared.budgets import Points, find_points, most_budget
from ppa_core.errors import BadInput
from ppa_core.fidelity import Metric
from ppa_core.opening import from_bytes
from ppa_core.planners import Plan, plan
from ppa_core.topology import Topology, dumps
from ppa_core.topology.examples import load_example, names

RUNNING = "running pipeline"
GRACE = 5.0
"""Seconds that planning may take beyond what it was given: then its process is killed."""
_WORKERS = Workers()
T = TypeVar("T")
_SOURCES = (RUNNING, "shipped topology", "file")


def choose_topology() -> tuple[Topology, RunKey | None]:
    """The topology to plan, and the pipeline that runs it, if it is the running one's."""
    known = bool(reading.pipelines().value)
    with st.sidebar:
        sources = _SOURCES if known else _SOURCES[1:]
        source = st.radio("Topology", sources, key="source", bind="query-params")
    if source == RUNNING:
        pipeline = frame.choose_pipeline()
        topology = reading.loaded_topology(pipeline) if pipeline else None
        if topology is not None:
            return topology, pipeline
        st.info("The monitor does not know this pipeline's topology; a topology that ships is shown.")
    if not known and (trouble := reading.pipelines().trouble):
        st.info("There is no monitor to read from: topologies that ship and files can be planned.", icon=":material/info:")
        st.text(trouble)
    if source == "file":
        frame.allow_upload()
        upload = st.sidebar.file_uploader("Topology file", type="json")
        if upload is None:
            st.info("Choose a topology file at the left.")
            st.stop()
        try:
            return from_bytes(upload.getvalue(), upload.name, MAX_TASKS), None
        except BadInput as error:
            refuse("This file is not a topology that can be planned.", error)
    place = names().index("tree")
    example = st.sidebar.selectbox("Shipped topology", names(), index=place, key="topology", bind="query-params")
    return load_example(example), None


def refuse(sentence: str, error: BadInput) -> Never:
    """Say what is wrong and where, as text whatever the file says, and draw no more."""
    st.error(sentence, icon=":material/error:")
    st.code(f"{error.place}\n{error.reason}", language=None, wrap_lines=True)
    st.stop()


def choose_budget(topology: Topology, now: int | None = None) -> int:
    """The budget, by a slider: that of the address or the page before, else that of the pipeline or a quarter of the tasks.

    It stands in the address also while it is the one that the page began with: what it is then may change.
    """
    most = max(most_budget(topology), 1)
    if st.session_state.get("budget", 0) > most:
        del st.session_state["budget"]  # of a larger topology; Streamlit would refuse it
    asked = st.query_params.get("budget", "")
    of, kept = st.session_state.get("kept budget", ("", 0))
    begin = -(-most // 4) if now is None else min(now, most)
    if asked.isdecimal() and len(asked) < 9 and int(asked) <= most:
        begin = int(asked)
    elif of == topology.name and kept <= most:
        begin = kept
    chosen = int(st.slider("Budget: how many tasks may have an active replica", 0, most, value=begin, key="budget"))
    st.query_params["budget"] = str(chosen)
    st.session_state["kept budget"] = (topology.name, chosen)
    return chosen


@st.cache_data(hash_funcs={Topology: dumps}, max_entries=200, show_spinner=False)
def cached_plan(topology: Topology, budget: int, planner: str, metric: Metric, time_limit: float) -> Plan | None:
    """A plan; None if there was none in time."""
    return _work(time_limit, plan, topology, budget, planner, metric, time_limit)


@st.cache_data(hash_funcs={Topology: dumps}, max_entries=60, show_spinner=False)
def cached_points(topology: Topology, planner: str, metric: Metric, time_limit: float, seconds: float) -> Points:
    """A planner's plans by budget; none of them if they took too long."""
    found = _work(seconds + time_limit, find_points, topology, planner, metric, time_limit, seconds)
    return found or Points(planner, sparse=True)


def no_plan(planner: str, time_limit: float) -> None:
    """Say that a planner had no plan in time."""
    st.warning(f"The planner {planner} had no plan for this topology in {time_limit + GRACE:g} s.", icon=":material/timer:")
    st.caption("Choose another planner, or let it take its time on the command line: `python -m ppa_core plan --help`.")


def _work(seconds: float, do: Callable[..., T], *arguments: Any) -> T | None:
    """Planning in a process that ends with this viewer; None if it was ended for its time or its memory."""
    try:
        return _WORKERS.run(seconds + GRACE, frame.watched(), do, *arguments)
    except Unwanted:
        st.stop()
    except Ended:
        return None
