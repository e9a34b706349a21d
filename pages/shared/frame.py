"""What is around every page: its title, which pipeline, who is there, and what has to be known of the data."""

from __future__ import annotations

import hmac
from pathlib import Path
from typing import Any, Never

import streamlit as st

from monitoring.access import Attempts, TooMany, find_hash
from monitoring.records import Pipeline
from monitoring.views import Snapshot
from pages.shared import condition, reading
from pages.shared.series import Chart
from ppa_core.errors import BadInput

ICON = Path(__file__).parents[2] / ".streamlit" / "icon.png"
LOOPBACK = ("127.0.0.1", "localhost", "::1")
INK = {"dark": "#FAFAFA", "light": "#31333F"}


def begin(title: str) -> None:
    """Start a page."""
    # A picture from here and no named icon: the browser would fetch that from elsewhere to show it on its tab.
    st.set_page_config(page_title=f"{title} · PPA", page_icon=ICON, layout="wide")
    st.title(title)
    with st.sidebar:
        _access()


def ink() -> str:
    """The colour of the page's text."""
    return INK["dark" if st.context.theme.type == "dark" else "light"]


def draw(chart: Chart, alt: str, key: str) -> None:
    """A drawing of a table; it is updated in place while its key stays."""
    st.vega_lite_chart(chart.data, chart.spec, width="stretch", key=key, alt=alt)


def draw_figure(figure: Any, alt: str, key: str) -> None:
    st.plotly_chart(figure, width="stretch", key=key, alt=alt, config={"displayModeBar": False})


# -------------------------------------------------------------------------------------------------------------- pipelines


def may_view() -> bool:
    """Whether what runs may be shown: to everyone on loopback, elsewhere to the operator alone."""
    return st.get_option("server.address") in LOOPBACK or operator() is not None


def pipelines() -> list[Pipeline]:
    """The runs that may be shown here."""
    return reading.pipelines().value if may_view() else []


def choose_pipeline() -> Pipeline | None:
    """The run to look at: that of the address, else the one that told something last. None where there is none."""
    known = {str(pipeline): pipeline for pipeline in pipelines()}
    if not known:
        return None
    wanted = st.query_params.get("pipeline") or st.session_state.get("last pipeline", "")
    found = next((text for text, pipeline in known.items() if wanted in (text, pipeline.name)), "")
    if wanted and not found:
        st.info("The address names a pipeline that the monitor does not know; the latest is shown.")
    with st.sidebar:
        # Sorted, for which told something last changes by the second.
        chosen = choose_one("Pipeline", sorted(known), "pipeline", found or next(iter(known)))
    st.session_state["last pipeline"] = chosen
    return known[chosen]


def choose_one(label: str, options: list[str], name: str, begin: str) -> str:
    """One of several, which stands in the address under that name also while it is the one that the page began with."""
    place = options.index(begin) if begin in options else 0
    chosen = st.selectbox(label, options, index=place, key=f"chosen {name}")
    st.query_params[name] = chosen
    return chosen


def require_pipeline() -> Pipeline:
    """The run to look at; where there is none, say why and draw no more."""
    chosen = choose_pipeline()
    if chosen is None:
        no_pipeline(reading.pipelines().trouble)
    return chosen


def no_pipeline(trouble: str) -> Never:
    if not may_view():
        st.info("This server is open to other machines: log in at the left to see what runs.", icon=":material/info:")
    elif trouble:
        st.error("There is no monitor to read from.", icon=":material/error:")
        st.text(trouble)
    else:
        st.info("The monitor knows no pipeline yet: none was started.", icon=":material/info:")
    st.markdown("**What-if** and **Planners** work without one, on topology files.")
    st.stop()


def tell(snapshot: Snapshot | None, trouble: str) -> None:
    """Say what is to be known of the data."""
    for notice in condition.notices(snapshot, trouble, reading.now()):
        {"error": st.error, "warning": st.warning, "info": st.info}[notice.level](
            notice.sentence, icon=f":material/{notice.level}:"
        )
        if notice.detail:
            st.text(notice.detail)


@st.fragment(run_every=2)
def tell_on(pipeline: Pipeline) -> None:
    """The same on a page that does not refresh otherwise: it says so when its data grows old."""
    answer = reading.state(pipeline)
    tell(answer.value, answer.trouble)


# ----------------------------------------------------------------------------------------------------------------- access


def operator() -> str | None:
    """Who is logged in on this session; None for a viewer. A login ends when the password is changed."""
    granted = st.session_state.get("granted")
    if not granted:
        return None
    try:
        known = find_hash()
    except BadInput:
        return None
    return str(granted[0]) if known is not None and hmac.compare_digest(known, str(granted[1])) else None


@st.cache_resource(show_spinner=False)
def _attempts() -> Attempts:
    """One for all sessions of this server."""
    return Attempts()


def _access() -> None:
    who = operator()
    if who is not None:
        st.text(f"Operator: {who}")
        if st.button("Log out", key="log out"):
            st.session_state.pop("granted", None)
            st.rerun()
        return
    try:
        known = find_hash()
    except BadInput as error:
        st.caption("Viewing only: the operator's password cannot be checked.")
        st.text(str(error))
        return
    if known is None:
        st.caption("Viewing only: no operator's password is set.")
        return
    with st.expander("Viewing only. Log in to act"), st.form("log in", border=False):
        name = st.text_input("Your name, for the audit log", value="operator", max_chars=60)
        password = st.text_input("Operator's password", type="password", max_chars=1_000)
        if st.form_submit_button("Log in"):
            _log_in(name, password, known)


def _log_in(name: str, password: str, known: str) -> None:
    if not name.strip() or not name.isprintable():
        st.error("A name is needed: it stands in the audit log.")
        return
    try:
        right = _attempts().verify(password, known)
    except TooMany as error:
        st.error(f"Too many wrong passwords. The next is looked at in {error.seconds:.0f} s.")
        return
    if not right:
        st.error("That is not the password.")
        return
    st.session_state["granted"] = (name.strip(), known)
    st.rerun()
