"""What all pages share: title, choice of the pipeline, login, and notices about the data."""

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
"""One for all sessions of this server; not a Streamlit cache, as those can be cleared."""
P = ParamSpec("P")


def begin(title: str) -> None:
    """Start a page. Without permission to view, show only the login."""
    # A local picture, not a named icon: the browser would load that from another server.
    st.set_page_config(page_title=f"{title} · PPA", page_icon=ICON, layout="wide")
    st.title(title)
    with st.sidebar:
        _access()
    if not may_view():
        st.info("This server can be reached from other machines: log in to see the pages.", icon=":material/info:")
        st.stop()


def panel(every: float | None = None) -> Callable[[Callable[P, None]], Callable[P, None]]:
    """A part of a page that is redrawn separately: every `every` seconds, or when a widget in it changes.

    Each time, permission to view is checked first: a login ends when the password changes, also on an open page.
    """

    def decorated(draw: Callable[P, None]) -> Callable[P, None]:
        @wraps(draw)
        def checked(*arguments: P.args, **named: P.kwargs) -> None:
            if not may_view():
                st.rerun()
            draw(*arguments, **named)

        return st.fragment(checked, run_every=every)

    return decorated


def ink() -> str:
    """The text colour of the page."""
    return INK["dark" if st.context.theme.type == "dark" else "light"]


def draw(chart: Chart, alt: str, key: str) -> None:
    """Draw a chart; it is updated in place as long as its key stays the same."""
    st.vega_lite_chart(chart.data, chart.spec, width="stretch", key=key, alt=alt)


def draw_figure(figure: Any, alt: str, key: str) -> None:
    st.plotly_chart(figure, width="stretch", key=key, alt=alt, config={"displayModeBar": False})


# -------------------------------------------------------------------------------------------------------------- pipelines


def may_view() -> bool:
    """Whether pages may be shown: to everyone on loopback, otherwise only to the operator."""
    return not hosts.open_to_others() or operator() is not None


def choose_pipeline() -> RunKey | None:
    """The selected run: the one in the URL, else the one with the newest data. None if there is none."""
    known = {str(pipeline): pipeline for pipeline in reading.pipelines().value}
    if not known:
        return None
    wanted = st.query_params.get("pipeline") or st.session_state.get("last pipeline", "")
    found = next((text for text, pipeline in known.items() if wanted in (text, pipeline.name)), "")
    if wanted and not found:
        st.info("The monitor does not know the pipeline in the URL; the latest one is shown.")
    with st.sidebar:
        # Sorted by name: the order by newest data changes every second.
        chosen = choose_one("Pipeline", sorted(known), "pipeline", found or next(iter(known)))
    st.session_state["last pipeline"] = chosen
    return known[chosen]


def choose_one(label: str, options: list[str], name: str, begin: str) -> str:
    """Select one of several; the URL always contains it under that name, also the default."""
    place = options.index(begin) if begin in options else 0
    chosen = st.selectbox(label, options, index=place, key=f"chosen {name}")
    st.query_params[name] = chosen
    return chosen


def require_pipeline() -> RunKey:
    """The selected run; if there is none, say why and stop."""
    chosen = choose_pipeline()
    if chosen is None:
        no_pipeline(reading.pipelines().trouble)
    return chosen


def no_pipeline(trouble: str) -> Never:
    if trouble:
        st.error("No monitor is available.", icon=":material/error:")
        st.text(trouble)
    else:
        st.info("The monitor has no pipelines yet: none has been started.", icon=":material/info:")
    st.markdown("**What-if** and **Planners** also work without one, on topology files.")
    st.stop()


def show_notices(snapshot: Snapshot | None, trouble: str) -> None:
    """Show notices about the data."""
    for notice in condition.notices(snapshot, trouble, reading.now()):
        {"error": st.error, "warning": st.warning, "info": st.info}[notice.level](
            notice.sentence, icon=f":material/{notice.level}:"
        )
        if notice.detail:
            st.text(notice.detail)


@panel(every=2)
def show_notices_live(pipeline: RunKey) -> None:
    """The same on a page that is not refreshed otherwise."""
    answer = reading.state(pipeline)
    show_notices(answer.value, answer.trouble)


# ----------------------------------------------------------------------------------------------------------------- access


def operator() -> str | None:
    """The name that this session is logged in with; None for a viewer. A login ends when the password is changed."""
    name, known = st.session_state.get("granted", ("", None))
    return str(name) if holds(known) else None


def _login() -> str | None:
    """The hash that this session logged in with and that must stay valid; None if everyone may view."""
    return str(st.session_state["granted"][1]) if hosts.open_to_others() else None


def while_shown(make: Callable[[], str]) -> Callable[[], str]:
    """Create a download when it is requested, if the session may still view the page then."""
    known = _login()

    def made() -> str:
        if known is not None and not holds(known):
            raise RequestError("download", "log in again")
        return make()

    return made


def session() -> str:
    """Streamlit's id of this session."""
    context = get_script_run_ctx()
    return context.session_id if context else ""


def allow_upload() -> None:
    """Allow this session to upload, as long as it may view the page."""
    UPLOADS.allow(session(), _login())


def watched() -> Callable[[], bool]:
    """A function, for any thread, that says whether this session is still connected."""
    id_ = session()
    return lambda: not runtime.exists() or runtime.get_instance().is_active_session(id_)


def _address() -> str | None:
    """The viewer's address: None for this machine, "" if it comes from a header that is not trusted.

    The server trusts such a header from the proxies in FORWARDED_ALLOW_IPS, otherwise from this machine.
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
        st.caption("View only: the operator's password cannot be checked.")
        st.text(str(error))
        return
    if known is None:
        st.caption(f"{'View only' if may_view() else 'Nobody can log in'}: no operator's password is set.")
        return
    label = "View only. Log in to send commands" if may_view() else "Log in"
    with st.expander(label, expanded=not may_view()), st.form("log in", border=False):
        name = st.text_input("Your name, for the audit log", value="operator", max_chars=60)
        password = st.text_input("Operator's password", type="password", max_chars=1_000)
        if st.form_submit_button("Log in"):
            _log_in(name, password, known)


def _log_in(name: str, password: str, known: str) -> None:
    if not name.strip() or not name.isprintable():
        st.error("Enter a name: it is recorded in the audit log.")
        return
    try:
        right = ATTEMPTS.verify(password, known, session(), _address())
    except TooManyAttempts as error:
        st.error(f"Too many attempts. Try again in {math.ceil(error.seconds)} s.")
        return
    if not right:
        st.error("Wrong password.")
        return
    st.session_state["granted"] = (name.strip(), known)
    st.rerun()
