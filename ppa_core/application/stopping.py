"""Stopping a run by signals."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ppa_core.terminal.output import note


@contextmanager
def stopping(run: Any) -> Iterator[None]:
    """The first signal stops the run after the current batch, the second one at once. The handler itself must not block:
    standard error may be blocked."""
    if threading.current_thread() is not threading.main_thread():  # only the main thread can handle signals
        yield
        return
    asked: list[int] = []

    def begin() -> None:
        run.stop()
        note("stopping after the current batch; a second signal (Ctrl-C) stops it at once")

    def stop(number: int, frame: object) -> None:
        asked.append(number)
        if len(asked) > 1:
            run.kill()
        else:
            threading.Thread(target=begin, daemon=True).start()

    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
