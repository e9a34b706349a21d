"""The outbox: everything that waits for a disk, a pipe or a node, in one thread, in the order of the decisions.

The machine decides under the run's lock, where nothing may block. The effects of a decision (an output to the sinks, a line
to the pipe, the ledger to the nodes) are queued here. So an output is in its sinks before the ledger says that it was
published, and a slow sink delays neither heartbeats nor the next decision. A batch ends with `flush`. An effect runs in the
context in which it was put, so that its log records name the batch, attempt and cause.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from contextvars import Context, copy_context
from dataclasses import dataclass

_log = logging.getLogger(__name__)

Effect = Callable[[], None]


@dataclass
class _Item:
    effect: Effect
    replaces: str
    publishes: bool
    context: Context


class Outbox:
    """`put` from any thread; effects run one after the other. The first exception is the `failure`.

    After a failure, no output is published and no ledger written; events are still reported.
    """

    def __init__(self) -> None:
        self.failure: BaseException | None = None
        self.on_failure: Callable[[BaseException], None] = lambda error: None
        self._items: deque[_Item] = deque()
        self._put = self._done = 0
        self._changed = threading.Condition()
        threading.Thread(target=self._run, name="ppa-outbox", daemon=True).start()

    def put(self, effect: Effect, replaces: str = "", publishes: bool = True) -> None:
        """Queue an effect. It replaces the last one in the queue if both have the same `replaces`."""
        with self._changed:
            if replaces and self._items and self._items[-1].replaces == replaces:
                self._items[-1].effect, self._items[-1].context = effect, copy_context()
                return
            self._items.append(_Item(effect, replaces, publishes, copy_context()))
            self._put += 1
            self._changed.notify_all()

    def flush(self, seconds: float | None = None) -> bool:
        """Wait until all effects queued so far are done, for at most `seconds`; whether they are. Not from within an effect."""
        end = None if seconds is None else time.monotonic() + seconds
        with self._changed:
            wanted = self._put
            while self._done < wanted:
                left = None if end is None else end - time.monotonic()
                if left is not None and left <= 0:
                    return False
                self._changed.wait(left)
        return True

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._items:
                    self._changed.wait()
                item = self._items.popleft()
            if self.failure is None or not item.publishes:
                item.context.run(self._carry_out, item)
            with self._changed:
                self._done += 1
                self._changed.notify_all()

    def _carry_out(self, item: _Item) -> None:
        try:
            item.effect()
        except Exception as error:  # noqa: BLE001 - it ends the run and is raised there
            _log.info("an output, an event or the ledger could not be written", exc_info=True)
            if self.failure is None:
                self.failure = error
                self.on_failure(error)
