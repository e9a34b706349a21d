"""The dashboard in a real browser: how every page looks, and that it keeps what an operator chose while it refreshes."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode
from urllib.request import urlopen

import pytest

from monitoring.access import HASH_VARIABLE, hash_password
from monitoring.commands import Fail
from monitoring.connection import READ_URL_VARIABLE, URL_VARIABLE, Address
from monitoring.recorded import record
from monitoring.records import RunKey
from monitoring.server import start
from monitoring.signing import KEY_VARIABLE
from ppa_core.queries import load_query
from tests.pages.driving import KEY, PASSWORD, ROOT, answering
from tests.pages.recording import CLOSED, OPEN, OwnPlay, hostile, large, script, write

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: `make setup` installs it")
BROWSER = next((found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), None)
PAGES = ("", "what-if", "planners", "failover", "incidents", "spark")
TITLES = {
    "": "Live", "live": "Live", "what-if": "What-if", "planners": "Planners", "failover": "Failover",
    "incidents": "Incidents", "spark": "Spark",
}  # fmt: skip
"""The title of each address."""
pytestmark = [
    pytest.mark.browser,
    pytest.mark.slow,
    pytest.mark.skipif(BROWSER is None, reason="no Chromium was found: `apt-get install chromium` installs it"),
]

# Boxes of a page that lie on top of each other, and whatever is wider than the window.
OVERLAPS = """() => {
  const main = document.querySelector('[data-testid=stMain]');
  const boxes = [...main.querySelectorAll('[data-testid=stElementContainer]')]
    .filter(e => e.offsetWidth > 0 && e.offsetHeight > 0 && !e.querySelector('[data-testid=stElementContainer]'))
    .filter(e => !e.closest('details:not([open])'))
    .map(e => [e, e.getBoundingClientRect()]);
  const found = [];
  boxes.forEach(([a, r], i) => boxes.slice(i + 1).forEach(([b, s]) => {
    const wide = Math.min(r.right, s.right) - Math.max(r.left, s.left);
    const high = Math.min(r.bottom, s.bottom) - Math.max(r.top, s.top);
    if (wide > 2 && high > 2) found.push([a.innerText.slice(0, 60), b.innerText.slice(0, 60)]);
  }));
  if (main.scrollWidth > main.clientWidth + 1) found.push(['wider than the window', String(main.scrollWidth)]);
  return found;
}"""

# Labels of the tasks in the picture of the topology that lie on each other or on a mark, or are cut off at its sides.
LABELS = """() => {
  const texts = [...document.querySelectorAll('.scatterlayer .textpoint text')]
    .map(e => [e.textContent, (e.querySelector('tspan') ?? e).getBoundingClientRect()]);
  const marks = [...document.querySelectorAll('.scatterlayer .points path')].map(e => e.getBoundingClientRect());
  const found = [], picture = document.querySelector('.main-svg')?.getBoundingClientRect();
  texts.forEach(([a, r]) => { if (r.left < picture.left - 1 || r.right > picture.right + 1) found.push([a, 'is cut off']); });
  texts.forEach(([a, r], i) => texts.slice(i + 1).forEach(([b, s]) => {
    const wide = Math.min(r.right, s.right) - Math.max(r.left, s.left);
    const high = Math.min(r.bottom, s.bottom) - Math.max(r.top, s.top);
    if (a.trim() && b.trim() && wide > 3 && high > 3) found.push([a, b]);
  }));
  texts.forEach(([a, r]) => marks.forEach(s => {
    const wide = Math.min(r.right, s.right) - Math.max(r.left, s.left);
    const high = Math.min(r.bottom, s.bottom) - Math.max(r.top, s.top);
    if (a.trim() && wide > 4 && high > 4) found.push([a, 'lies on a mark']);
  }));
  return found;
}"""


class Dashboard:
    """A running dashboard, and the runs that its monitor knows."""

    def __init__(self, url: str, address: Address, runs: dict[str, RunKey]) -> None:
        self.url, self.address, self.runs = url, address, runs

    def path(self, page: str, run: str, **query: str) -> str:
        return f"{self.url}/{page}?{urlencode({'pipeline': str(self.runs[run]), **query})}"


@pytest.fixture(scope="module")
def dashboard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dashboard]:
    with start(tmp_path_factory.mktemp("monitor") / "m") as server:
        address = server.address
        runs = {
            "open": record(address, script("open", OPEN)),
            "closed": record(address, script("closed", CLOSED)),
            "large": write(address, OwnPlay(large(), script("large", OPEN, "large", budget=200))),
            "q1": write(address, OwnPlay(load_query("q1").pipeline.topology(), script("q1", OPEN, "q1", budget=6))),
            "q2": write(address, OwnPlay(load_query("q2").pipeline.topology(), script("q2", OPEN, "q2", budget=10))),
            "hostile": write(address, OwnPlay(hostile(), script("bad", OPEN, "<b>x</b>", budget=3), ("r1", "**r2**"))),
        }
        with served(address) as url:
            yield Dashboard(url, address, runs)


@contextmanager
def served(address: Address) -> Iterator[str]:
    """A new dashboard process that shows this monitor; its URL."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    environment = {
        **os.environ,
        URL_VARIABLE: address.current("sender"),
        READ_URL_VARIABLE: address.current("reader"),
        KEY_VARIABLE: KEY,
        HASH_VARIABLE: hash_password(PASSWORD),
    }
    command = [sys.executable, "-m", "streamlit", "run", "app.py", "--server.port", str(port)]
    process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_for(f"http://127.0.0.1:{port}/_stcore/health")
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(20)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as started:
        opened = started.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.fixture
def tab(browser: Any) -> Iterator[Any]:
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    context.set_default_timeout(60_000)
    yield context.new_page()
    context.close()


def wait_for(url: str) -> None:
    end = time.monotonic() + 60
    while True:
        try:
            with urlopen(url) as answer:
                if answer.status == 200:
                    return
        except OSError:
            if time.monotonic() > end:
                raise
        time.sleep(0.1)


def settled(tab: Any, address: str) -> None:
    """Open a page and wait until it is drawn."""
    tab.goto(address)
    tab.wait_for_selector("[data-testid=stMain] h1")
    tab.wait_for_selector("[data-testid=stPlotlyChart] .main-svg, [data-testid=stDataFrame], [data-testid=stVegaLiteChart] svg")
    tab.wait_for_function("() => !document.querySelector('[data-testid=stSpinner], [data-testid=stStatusWidgetRunningIcon]')")
    tab.wait_for_timeout(1500)


@pytest.mark.parametrize("width", [1280, 1920])
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("page", PAGES)
def test_page_is_drawn_whole(browser: Any, dashboard: Dashboard, page: str, scheme: str, width: int) -> None:
    context = browser.new_context(viewport={"width": width, "height": 2600}, color_scheme=scheme)
    context.set_default_timeout(60_000)
    tab, told = context.new_page(), list[str]()
    tab.on("console", lambda message: told.append(message.text))
    settled(tab, dashboard.path(page, "open"))
    assert not [each for each in told if "Content Security Policy" in each]
    text = tab.inner_text("body")
    assert "Traceback" not in text
    assert "encountered an error" not in text
    assert tab.evaluate(OVERLAPS) == []
    assert tab.evaluate(LABELS) == []
    if folder := os.environ.get("PPA_SCREENSHOTS"):
        tab.screenshot(path=Path(folder) / f"{page or 'live'}-{width}-{scheme}.png", full_page=True)
    context.close()


@pytest.mark.parametrize("run", ["large", "q1", "q2", "hostile"])
def test_many_tasks_and_bad_names_are_readable(tab: Any, dashboard: Dashboard, run: str) -> None:
    alerts: list[Any] = []
    tab.on("dialog", lambda dialog: alerts.append(dialog))  # a function of its own: playwright marks it
    settled(tab, dashboard.path("", run))
    assert tab.evaluate(OVERLAPS) == []
    assert tab.evaluate(LABELS) == []
    assert not alerts
    assert tab.locator("[data-testid=stMain] img").count() == 0


def test_clicked_task_stays_selected_and_is_in_the_address(tab: Any, dashboard: Dashboard) -> None:
    settled(tab, dashboard.path("", "open"))
    label = tab.locator(".scatterlayer .textpoint text", has_text="O2.1")
    label.scroll_into_view_if_needed()
    box = label.bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] + 10
    tab.mouse.move(x - 30, y - 5)
    tab.mouse.move(x, y, steps=5)  # plotly takes a click for the mark that the mouse is known to be on
    tab.wait_for_timeout(300)
    tab.mouse.down()
    tab.wait_for_timeout(100)
    tab.mouse.up()
    tab.wait_for_function("() => location.search.includes('task=O2.1')")
    details = tab.get_by_text("MC-trees lost if it fails")
    details.wait_for()
    tab.wait_for_timeout(3000)  # three refreshes
    assert "task=O2.1" in tab.url
    assert details.is_visible()


def test_refresh_keeps_the_place_and_what_is_typed(tab: Any, dashboard: Dashboard) -> None:
    settled(tab, dashboard.path("failover", "open"))
    tab.get_by_text("Log in to send commands").click()
    field = tab.get_by_label("Your name, for the audit log")
    field.fill("half a na")
    tab.wait_for_timeout(3000)
    assert field.input_value() == "half a na"


def test_budget_is_in_the_address(tab: Any, dashboard: Dashboard) -> None:
    settled(tab, dashboard.path("what-if", "closed"))
    thumb = tab.get_by_role("slider").first
    thumb.focus()
    thumb.press("ArrowRight")
    tab.wait_for_function("() => location.search.includes('budget=')")
    assert "pipeline=" in tab.url


def test_operator_logs_in_and_fails_a_rack(tab: Any, dashboard: Dashboard) -> None:
    pipeline = dashboard.runs["closed"]
    settled(tab, dashboard.path("failover", "closed", action="fail", target="rack:r2"))
    assert tab.get_by_role("button", name="Fail …").count() == 0
    tab.get_by_text("Log in to send commands").click()
    tab.get_by_label("Operator's password").fill(PASSWORD)
    tab.get_by_role("button", name="Log in").click()
    tab.get_by_role("button", name="Fail …").click()
    with answering(dashboard.address, pipeline, lambda token: ("done", "failed over")) as taken:
        tab.get_by_role("button", name="Confirm").click()
        tab.get_by_text("Command completed.").wait_for()
    assert [token.command for token in taken] == [Fail("rack:r2")]


def check_address(tab: Any, dashboard: Dashboard, path: str) -> None:
    """The page of an address is shown, with its title, all pages in the menu, and the chosen run."""
    tab.goto(dashboard.path(path, "open"))
    tab.wait_for_selector("[data-testid=stMain] h1")
    assert tab.inner_text("[data-testid=stMain] h1") == TITLES[path]
    assert tab.inner_text("[data-testid=stSidebarNav]").split() == [title for path, title in TITLES.items() if path]
    assert "pipeline=tree" in tab.url
    assert not tab.get_by_text("Page not found").count()


@pytest.mark.parametrize("path", TITLES)
def test_every_address_works(tab: Any, dashboard: Dashboard, path: str) -> None:
    check_address(tab, dashboard, path)


def test_every_address_works_on_a_server_on_which_no_other_was_opened(browser: Any, dashboard: Dashboard) -> None:
    """The first visitor of a new server comes by a link to a page, and `/` is never opened."""
    with served(dashboard.address) as url:
        cold = Dashboard(url, dashboard.address, dashboard.runs)
        for path in ("spark", "what-if", "planners", "failover", "incidents", "live"):
            with browser.new_context(viewport={"width": 1280, "height": 900}) as context:
                context.set_default_timeout(60_000)
                check_address(context.new_page(), cold, path)


def test_no_other_page_can_frame_one(tab: Any, dashboard: Dashboard) -> None:
    tab.goto("about:blank")
    tab.set_content(f"<iframe src='{dashboard.url}/'></iframe>")
    tab.wait_for_timeout(1000)
    assert not [frame.url for frame in tab.frames if frame.url.startswith(dashboard.url)]


def test_report_of_an_incident_is_downloaded(tab: Any, dashboard: Dashboard, tmp_path: Path) -> None:
    settled(tab, dashboard.path("incidents", "closed"))
    with tab.expect_download() as download:
        tab.get_by_text("Download the report").click()
    download.value.save_as(tmp_path / "report.html")
    assert "Predicted and measured" in (tmp_path / "report.html").read_text()
