"""The whole thing as an operator meets it: start it, look, change the budget, kill a rack, see it go on and be corrected."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: `make setup` installs it")
ROOT = Path(__file__).parents[1]
BROWSER = next((found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), None)
PATIENCE = 240_000
"""Milliseconds that anything may take: Spark starts slowly where the machine is busy."""

pytestmark = [
    pytest.mark.browser,
    pytest.mark.drill,
    pytest.mark.skipif(BROWSER is None, reason="no Chromium was found: `apt-get install chromium` installs it"),
]

# Enough tuples and old enough checkpoints that recovery takes longer than a batch: then there is tentative output to see.
LOAD = ["serve", "tree", "--rate", "6000", "--window", "60", "--checkpoint-every", "200", "--budget", "8"]


class System:
    """Everything that `make run` starts."""

    def __init__(self, folder: Path) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.told: list[str] = []
        self.process = subprocess.Popen(
            [sys.executable, "-m", "ppa_core", *LOAD, "--port", str(self.port)],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.ready = threading.Event()
        self.reading = threading.Thread(target=self._read, daemon=True)
        self.reading.start()
        if not self.ready.wait(PATIENCE / 1000) or self.process.poll() is not None:
            self.stop()
            raise AssertionError("\n".join(self.told))

    @property
    def password(self) -> str:
        return next(found[1] for line in self.told if (found := re.search(r"operator password +(\S+)", line)))

    def _read(self) -> None:
        assert self.process.stdout
        for line in self.process.stdout:
            self.told.append(line.rstrip())
            if "Ctrl-C to stop everything" in line:
                self.ready.set()
        self.ready.set()  # it has ended

    def stop(self) -> list[psutil.Process]:
        """Ctrl-C; the processes that are left over."""
        running = self.process.poll() is None
        children = psutil.Process(self.process.pid).children(recursive=True) if running else []
        self.process.send_signal(signal.SIGINT)
        try:
            self.process.wait(60)
        finally:
            self.process.kill()
            self.process.wait()
            self.reading.join(10)
            assert self.process.stdout
            self.process.stdout.close()
        _, left = psutil.wait_procs(children, timeout=15)
        return list(left)


@pytest.fixture
def system(tmp_path: Path) -> Iterator[System]:
    started = System(tmp_path)
    yield started
    if started.process.poll() is None:
        started.stop()


@pytest.fixture
def tab() -> Iterator[Any]:
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        page = browser.new_context(viewport={"width": 1280, "height": 1200}).new_page()
        page.set_default_timeout(PATIENCE)
        yield page
        browser.close()


def shot(tab: Any, name: str) -> None:
    if folder := os.environ.get("PPA_SCREENSHOTS"):
        tab.screenshot(path=Path(folder) / f"{name}.png", full_page=True)


def test_an_operator_sees_the_run_changes_the_budget_kills_a_rack_and_reads_the_report(
    system: System, tab: Any, tmp_path: Path
) -> None:
    home = f"http://127.0.0.1:{system.port}"
    tab.goto(home)
    tab.get_by_text(re.compile(r"batch \d+, accurate, \d")).wait_for()
    shot(tab, "1-accurate")

    tab.get_by_role("link", name="What-if").click()
    tab.get_by_text("Log in to send commands").click()
    tab.get_by_label("Operator's password").fill(system.password)
    tab.get_by_role("button", name="Log in").click()
    tab.get_by_role("button", name="Log out").wait_for()
    thumb = tab.get_by_role("slider").first
    thumb.focus()
    thumb.press("ArrowLeft")
    tab.wait_for_function("() => location.search.includes('budget=7')")
    tab.get_by_role("button", name=re.compile("Apply")).click()
    tab.get_by_role("button", name="Confirm").click()
    tab.get_by_text("Command completed.").first.wait_for()
    shot(tab, "2-applied")

    tab.get_by_role("link", name="Failover").click()
    tab.get_by_text("kill", exact=True).click()
    tab.get_by_role("combobox", name="Node or rack").click()
    tab.get_by_role("option", name="rack:r1").click()
    tab.get_by_role("button", name="Kill …").click()
    live = tab.context.new_page()  # open all day
    live.set_default_timeout(PATIENCE)
    live.goto(home)
    live.wait_for_function("() => /batch (4[5-9]|[5-9][0-9]|[0-9]{3,}), accurate/.test(document.body.innerText)")
    tab.get_by_role("button", name="Confirm").click()
    live.get_by_text(re.compile(r"tentative, OF 0\.")).first.wait_for()
    shot(live, "3-tentative")
    live.get_by_text(re.compile(r"batch \d+, accurate, \d")).wait_for()
    shot(live, "4-corrected")

    tab.bring_to_front()
    tab.get_by_role("link", name="Incidents").click()
    tab.get_by_text("Predicted and measured").wait_for()
    shot(tab, "5-incident")
    with tab.expect_download() as download:
        tab.get_by_text("Download the report").click()
    download.value.save_as(tmp_path / "report.html")
    report = (tmp_path / "report.html").read_text()
    assert "n1" in report
    assert "n3" in report
    assert "Traceback" not in tab.inner_text("body")
    assert system.stop() == [], "\n".join(system.told[-5:])


def test_make_run_is_this_command() -> None:
    told = subprocess.run(["make", "-n", "run", "QUERY=q2", "PORT=8600"], cwd=ROOT, capture_output=True, text=True, check=True)
    assert "-m ppa_core serve q2 --port 8600" in told.stdout
