"""The outbox: everything that waits for a disk, a pipe or a node, in one thread, in the order in which it was decided.

The machine decides under the run's lock, where nothing may wait. What follows from a decision (an output to the sinks, a line
to the pipe, the ledger to the nodes) is put here. So an output is in its sinks before the ledger says that it was published,
and a slow sink holds up neither heartbeats nor the next decision. A batch ends with `flush`.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

_log = logging.getLogger(__name__)

Effect = Callable[[], None]


@dataclass
class _Item:
    effect: Effect
    replaces: str
    publishes: bool


class Outbox:
    """`put` from any thread; effects run one after the other. The first that raises is the `failure`.

    After a failure nothing is published any more, and no ledger is written that says it was; events still go out.
    """

    def __init__(self) -> None:
        self.failure: BaseException | None = None
        self.on_failure: Callable[[BaseException], None] = lambda error: None
        self._items: deque[_Item] = deque()
        self._put = self._done = 0
        self._changed = threading.Condition()
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="ppa-outbox", daemon=True)
        self._thread.start()

    def put(self, effect: Effect, replaces: str = "", publishes: bool = True) -> None:
        """Have an effect carried out. It takes the place of one that waits last and `replaces` the same."""
        with self._changed:
            if replaces and self._items and self._items[-1].replaces == replaces:
                self._items[-1].effect = effect
                return
            self._items.append(_Item(effect, replaces, publishes))
            self._put += 1
            self._changed.notify_all()

    def flush(self, seconds: float | None = None) -> bool:
        """Wait until what was put before is carried out, for at most so long; whether it was. Not from within an effect."""
        end = None if seconds is None else time.monotonic() + seconds
        with self._changed:
            wanted = self._put
            while self._done < wanted:
                left = None if end is None else end - time.monotonic()
                if left is not None and left <= 0:
                    return False
                self._changed.wait(left)
        return True

    def close(self, seconds: float = 10.0) -> None:
        """Carry out what is left, for at most so long, and end."""
        self.flush(seconds)
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self._thread.join(1.0)

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._items and not self._closing:
                    self._changed.wait()
                if not self._items:
                    return
                item = self._items.popleft()
            if self.failure is None or not item.publishes:
                self._carry_out(item)
            with self._changed:
                self._done += 1
                self._changed.notify_all()

    def _carry_out(self, item: _Item) -> None:
        try:
            item.effect()
        except Exception as error:  # noqa: BLE001 - it ends the run, which raises it
            _log.info("an output, an event or the ledger could not be written", exc_info=True)
            if self.failure is None:
                self.failure = error
                self.on_failure(error)
