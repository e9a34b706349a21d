"""The dashboard: `streamlit run app.py`. Every page is a file in `pages` and also runs by itself."""

from pathlib import Path

import streamlit as st
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import RedirectResponse
from starlette.routing import Route

from pages.server.guard import Guard
from ppa_core.terminal import logs

logs.to_stderr()


def first_page(request: Request) -> RedirectResponse:
    """The first page is served at `/`; `/live` redirects there."""
    return RedirectResponse(f"./?{request.url.query}")


app = st.App(
    Path(__file__).parent / "pages" / "navigation.py",
    middleware=[Middleware(Guard)],
    routes=[Route("/live", first_page)],
)
