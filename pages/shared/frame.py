"""What is around every page: its title, which pipeline, who is there, and what has to be known of the data."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, Never, ParamSpec

import streamlit as st
from streamlit import runtime
from streamlit.runtime.scriptrunner import get_script_run_ctx

from monitoring.access import Attempts, TooManyAttempts, find_hash, holds
from monitoring.records import RunKey
from monitoring.views import Snapshot
from pages.server import hosts
from pages.server.uploads import UPLOADS
from pages.shared import condition, reading
from pages.shared.series import Chart
from ppa_core.errors import BadInput, RequestError

ICON = Path(__file__).with_name("icon.png")
INK = {"dark": "#FAFAFA", "light": "#31333F"}
ATTEMPTS = Attempts()
"""One for all sessions of this server; no cache, for those can be cleared."""
P = ParamSpec("P")


def begin(title: str) -> None:
    """Start a page; to whom it may not be shown, only where to log in."""
    # A picture from here and no named icon: the browser would fetch that from elsewhere to show it on its tab.
    st.set_page_config(page_title=f"{title} · PPA", page_icon=ICON, layout="wide")
    st.title(title)
    with st.sidebar:
        _access()
    if not may_view():
        st.info("This server is open to other machines: log in at the left to see anything.", icon=":material/info:")
        st.stop()


def panel(every: float | None = None) -> Callable[[Callable[P, None]], Callable[P, None]]:
    """A part of a page that is drawn again by itself, every so many seconds or when something in it changes.

    Each time it asks first whether it may still be shown: a login ends with the password, also on a page that is open.
    """

    def decorated(draw: Callable[P, None]) -> Callable[P, None]:
        @wraps(draw)
        def asked(*arguments: P.args, **named: P.kwargs) -> None:
            if not may_view():
                st.rerun()
            draw(*arguments, **named)

        return st.fragment(asked, run_every=every)

    return decorated


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
    """Whether pages may be shown: to everyone on loopback, elsewhere to the operator alone."""
    return not hosts.open_to_others() or operator() is not None


def choose_pipeline() -> RunKey | None:
    """The run to look at: that of the address, else the one that told something last. None where there is none."""
    known = {str(pipeline): pipeline for pipeline in reading.pipelines().value}
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


def require_pipeline() -> RunKey:
    """The run to look at; where there is none, say why and draw no more."""
    chosen = choose_pipeline()
    if chosen is None:
        no_pipeline(reading.pipelines().trouble)
    return chosen


def no_pipeline(trouble: str) -> Never:
    if trouble:
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


@panel(every=2)
def tell_on(pipeline: RunKey) -> None:
    """The same on a page that does not refresh otherwise: it says so when its data grows old."""
    answer = reading.state(pipeline)
    tell(answer.value, answer.trouble)


# ----------------------------------------------------------------------------------------------------------------- access


def operator() -> str | None:
    """Who is logged in on this session; None for a viewer. A login ends when the password is changed."""
    name, known = st.session_state.get("granted", ("", None))
    return str(name) if holds(known) else None


def _login() -> str | None:
    """What has to hold for this session to see anything: the hash that it logged in with; None where everyone may."""
    return str(st.session_state["granted"][1]) if hosts.open_to_others() else None


def while_shown(make: Callable[[], str]) -> Callable[[], str]:
    """Makes what is downloaded when it is asked for, if its page could still be shown then."""
    known = _login()

    def made() -> str:
        if known is not None and not holds(known):
            raise RequestError("download", "log in again")
        return make()

    return made


def session() -> str:
    """What Streamlit calls this session."""
    context = get_script_run_ctx()
    return context.session_id if context else ""


def allow_upload() -> None:
    """Let this session upload, for as long as it may see the page that asks for it."""
    UPLOADS.allow(session(), _login())


def watched() -> Callable[[], bool]:
    """Tells, from any thread, whether this session still has its viewer."""
    id_ = session()
    return lambda: not runtime.exists() or runtime.get_instance().is_active_session(id_)


def _address() -> str | None:
    """Where the viewer is; None if that is this machine, nothing if it is only what a header says.

    The server takes such a header for the truth from proxies that FORWARDED_ALLOW_IPS names, and else from this machine.
    """
    if "X-Forwarded-For" in st.context.headers and not os.environ.get("FORWARDED_ALLOW_IPS"):
        return ""
    return st.context.ip_address


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
        st.caption(f"{'Viewing only' if may_view() else 'Nobody can log in'}: no operator's password is set.")
        return
    label = "Viewing only. Log in to act" if may_view() else "Log in"
    with st.expander(label, expanded=not may_view()), st.form("log in", border=False):
        name = st.text_input("Your name, for the audit log", value="operator", max_chars=60)
        password = st.text_input("Operator's password", type="password", max_chars=1_000)
        if st.form_submit_button("Log in"):
            _log_in(name, password, known)


def _log_in(name: str, password: str, known: str) -> None:
    if not name.strip() or not name.isprintable():
        st.error("A name is needed: it stands in the audit log.")
        return
    try:
        right = ATTEMPTS.verify(password, known, session(), _address())
    except TooManyAttempts as error:
        st.error(f"Too many attempts. The next is looked at in {math.ceil(error.seconds)} s.")
        return
    if not right:
        st.error("That is not the password.")
        return
    st.session_state["granted"] = (name.strip(), known)
    st.rerun()
