"""What a page costs the server: the first draw with a thousand tasks, and a refresh with five viewers.

`python -m benchmarks.dashboard` prints it. Pages run as Streamlit runs them, against a real monitor, without a browser.
"""

from __future__ import annotations

import logging
import os
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median

from streamlit.testing.v1 import AppTest

from monitoring.connection import URL_VARIABLE
from monitoring.server import start
from tests.pages.driving import opened
from tests.pages.recording import OPEN, OwnPlay, large, script, write

PAGES = ("live", "failover", "incidents", "spark")
VIEWERS, ROUNDS = 5, 5


def main() -> None:
    logging.disable(logging.WARNING)
    with tempfile.TemporaryDirectory() as folder, start(Path(folder) / "monitor") as server:
        os.environ[URL_VARIABLE] = server.address.current()
        pipeline = write(server.address, OwnPlay(large(), script("bench", OPEN, "large", budget=200)))
        print(f"{'page, 1,000 tasks':<20} {'first draw (ms)':>16} {f'refresh, {VIEWERS} viewers (ms each)':>32}")
        for name in PAGES:
            first, page = took(partial(opened, name, pipeline=str(pipeline)))
            viewers = [page, *(opened(name, pipeline=str(pipeline)) for _ in range(VIEWERS - 1))]
            costs = []
            for _ in range(ROUNDS):
                time.sleep(1.1)  # what was read is forgotten
                costs.append(sum(took(viewer.run)[0] for viewer in viewers) / VIEWERS)
            print(f"{name:<20} {1000 * first:>16.0f} {1000 * median(costs):>32.0f}")


def took(work: Callable[[], AppTest]) -> tuple[float, AppTest]:
    began = time.perf_counter()
    made = work()
    return time.perf_counter() - began, made


if __name__ == "__main__":
    main()
