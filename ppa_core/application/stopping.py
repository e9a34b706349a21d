"""What signals do to a run."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ppa_core.terminal.output import note


@contextmanager
def stopping(run: Any) -> Iterator[None]:
    """The first signal stops the run after the batch under way, the second one at once. The handler itself waits for nothing:
    standard error may be blocked."""
    if threading.current_thread() is not threading.main_thread():  # only that one gets signals
        yield
        return
    asked: list[int] = []

    def begin() -> None:
        run.stop()
        note("stopping after the batch under way; once more to stop at once")

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
