"""Heartbeats: every node is asked for the run's mark a few times a second, on a connection of its own, in a thread of its own.

`poll` never waits for a node. It says what has changed: nodes that are suspect (`suspicion.py`), suspects that can be used
again with what they hold, and nodes that are dead: nobody listens any more, or the mark is gone and with it the data.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from ppa_core.errors import PpaError
from ppa_core.nodes.errors import NodeDown, NodeSlow
from ppa_core.nodes.health import CLEARED
from ppa_core.nodes.store import Store
from ppa_core.nodes.suspicion import Suspicion
from ppa_core.placement.nodes import Node

_log = logging.getLogger(__name__)

EVERY = 0.2
TICK = 0.05
_GIVE_UP = 5.0
"""Seconds after which a connection is opened anew; a silent node is suspect long before."""


@dataclass(frozen=True)
class Changes:
    """What has changed since the last time."""

    suspect: dict[str, str] = field(default_factory=dict)
    """With the reasons."""
    dead: dict[str, str] = field(default_factory=dict)
    back: list[str] = field(default_factory=list)
    """Suspects that can be used again: they answer, and their mark shows that they have kept their data."""


class Heartbeats:
    """Asks from `start` to `stop`. Can be used from any thread."""

    def __init__(self, nodes: Mapping[str, Node], run: str, slow: float, most: float) -> None:
        self.suspicion = Suspicion(nodes, slow, most)
        self._stores = {name: Store(node, run, timeout=_GIVE_UP) for name, node in nodes.items()}
        self._now = {name: threading.Event() for name in nodes}
        self._dead: dict[str, str] = {}
        self._reset: dict[str, float] = {}
        self._lock = threading.Lock()
        self._over = threading.Event()

    def start(self) -> None:
        for name in self._stores:
            threading.Thread(target=self._ask, args=(name,), name=f"heartbeat-{name}", daemon=True).start()

    def stop(self) -> None:
        self._over.set()
        self.ask_now()

    def ask_now(self) -> None:
        """Send the next heartbeats at once: after one failure, others may have failed too."""
        for event in self._now.values():
            event.set()

    def poll(self) -> Changes:
        """What has changed since the last call, which was about `TICK` seconds ago."""
        with self._lock:
            now = time.monotonic()
            self.suspicion.tick(now, TICK)
            suspect = self.suspicion.suspects(now)
            back = [name for name in self.suspicion.trust(now) if name not in self._dead]
            return Changes(suspect, dict(self._dead), back)

    def suspect(self, name: str) -> None:
        """A request of somebody else had no answer in time: the node is suspect from now on."""
        with self._lock:
            self.suspicion.suspect(name, time.monotonic())

    def dead(self) -> dict[str, str]:
        """Nodes that are known to be dead now, with the reasons."""
        with self._lock:
            return dict(self._dead)

    def silent_for(self, name: str) -> float:
        """Seconds since the oldest heartbeat without an answer."""
        with self._lock:
            return self.suspicion.silent_for(name, time.monotonic())

    def reset(self, name: str) -> None:
        """The node was cleared and marked for the run: it starts anew."""
        with self._lock:
            self._dead.pop(name, None)
            self._reset[name] = time.monotonic()
            self.suspicion.forget(name)

    def _ask(self, name: str) -> None:
        store, wake = self._stores[name], self._now[name]
        while not self._over.is_set():
            sent = time.monotonic()
            with self._lock:
                self.suspicion.sent(name, sent)
            try:
                marked = store.marked()
            except NodeSlow:
                _log.debug("node %s: no heartbeat for %.0f s", name, _GIVE_UP)
            except NodeDown as error:
                self._died(name, error.reason)
            except PpaError as error:  # for example another password
                self._died(name, str(error))
            else:
                self._answered(name, marked, sent)
            wake.wait(EVERY)
            wake.clear()
        store.close()

    def _answered(self, name: str, marked: bool, sent: float) -> None:
        with self._lock:
            self.suspicion.answer(name, time.monotonic())
            if marked:
                self._dead.pop(name, None)
            elif sent > self._reset.get(name, 0.0):  # else it was asked before it was marked
                self._dead[name] = CLEARED

    def _died(self, name: str, reason: str) -> None:
        with self._lock:
            self.suspicion.answer(name, time.monotonic())
            self._dead[name] = reason
