"""Cost of the dashboard: time until a browser shows a page with a thousand tasks, and CPU time of a refresh with five viewers.

The server, the monitor and the browser are real; the run is recorded and read every second.
"""

from __future__ import annotations

import argparse
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any
from urllib.parse import urlencode
from urllib.request import urlopen

import psutil

from benchmarks.engine import Row, row
from monitoring.connection import URL_VARIABLE
from monitoring.server import start
from ppa_core.safety.owned import temporary
from tests.pages.recording import OPEN, OwnPlay, large, script, write

ROOT = Path(__file__).parents[1]
PAGES = {"live": "[data-testid=stPlotlyChart] .main-svg", "failover": "[data-testid=stDataFrame]"}
"""The two pages that are open all day, and an element that is there once they are drawn."""
VIEWERS, SECONDS, VISITS = 5, 20, 5


def rows() -> list[Row]:
    """First visit, later visits, and the processor time of a refresh, for each page."""
    from playwright.sync_api import sync_playwright

    browsers = map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))
    browser = next(filter(None, browsers), None)
    if browser is None:
        return [row("dashboard", float("nan"), "a browser", False, "no Chromium was found: `apt-get install chromium`")]
    found: list[Row] = []
    with _server() as (url, process, pipeline), sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=browser, args=["--no-sandbox"])
        for name, drawn in PAGES.items():
            place = f"{url}/{'' if name == 'live' else name}?{urlencode({'pipeline': pipeline})}"
            cold, warm = _visits(chromium, place, drawn)
            title = f"{name}, 1,000 tasks: "
            found.append(row(title + "drawn in a browser, s", warm, "<= 2", warm <= 2, f"{cold:.2f} s with an empty cache"))
            cost = _refresh(chromium, place, drawn, process)
            more = f"processor time of the server over {SECONDS} s"
            found.append(row(title + f"a refresh for each of {VIEWERS} viewers, s", cost, "<= 0.2", cost <= 0.2, more))
        chromium.close()
    return found


@contextmanager
def _server() -> Iterator[tuple[str, psutil.Process, str]]:
    """A dashboard that reads a recorded run of a thousand tasks."""
    with temporary("ppa-bench-") as folder, start(folder / "monitor") as server, socket.socket() as probe:
        pipeline = write(server.address, OwnPlay(large(), script("bench", OPEN, "large", budget=200)))
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
        probe.close()
        command = [sys.executable, "-m", "streamlit", "run", "app.py", "--server.port", str(port)]
        environment = {**os.environ, URL_VARIABLE: server.address.current("reader")}
        child = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            url = f"http://127.0.0.1:{port}"
            _await(f"{url}/_stcore/health")
            yield url, psutil.Process(child.pid), str(pipeline)
        finally:
            child.terminate()
            child.wait(20)


def _await(url: str) -> None:
    end = time.monotonic() + 60
    while True:
        try:
            with urlopen(url):
                return
        except OSError:
            if time.monotonic() > end:
                raise
        time.sleep(0.1)


def _visits(chromium: Any, place: str, drawn: str) -> tuple[float, float]:
    """Seconds until the page is drawn: at the first visit, and the median of later visits."""
    context = chromium.new_context(viewport={"width": 1280, "height": 1200})
    tab = context.new_page()
    times = []
    for _ in range(VISITS + 1):
        began = time.perf_counter()
        tab.goto(place)
        tab.locator(drawn).first.wait_for()
        times.append(time.perf_counter() - began)
        tab.wait_for_timeout(1500)
    context.close()
    return times[0], median(times[1:])


def _refresh(chromium: Any, place: str, drawn: str, process: psutil.Process) -> float:
    """Seconds of the server's CPU time for a refresh of one viewer, with five viewers."""
    contexts = [chromium.new_context(viewport={"width": 1280, "height": 1200}) for _ in range(VIEWERS)]
    for context in contexts:
        tab = context.new_page()
        tab.goto(place)
        tab.locator(drawn).first.wait_for()
    time.sleep(3)
    before, began = process.cpu_times(), time.monotonic()
    time.sleep(SECONDS)
    after, spent = process.cpu_times(), time.monotonic() - began
    for context in contexts:
        context.close()
    return float(after.user + after.system - before.user - before.system) / (spent * VIEWERS)


def main() -> None:
    argparse.ArgumentParser(description="Measure the dashboard; it takes a while.").parse_args()
    for one in rows():
        print(one, flush=True)


if __name__ == "__main__":
    main()
