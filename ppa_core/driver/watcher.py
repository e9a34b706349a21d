"""The node watcher: heartbeats, and what follows when a node fails, forgets or returns."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping

from ppa_core.driver.decisions import Decisions
from ppa_core.engine import run_events
from ppa_core.engine.events import NodeReturned
from ppa_core.nodes.health import NodeHealth
from ppa_core.nodes.store import NodeDown, NodeSlow, Store

_log = logging.getLogger(__name__)

_TOGETHER = 0.1
"""Seconds after the first sign of a failure in which nodes that fail with it are gone too."""


class NodeWatcher:
    """Asks nodes for signs of life, and tells the machine of those that fail. Any thread may report a loss."""

    def __init__(self, stores: Mapping[str, Store], decisions: Decisions, stopping: threading.Event) -> None:
        self.stores, self.decisions, self.stopping = stores, decisions, stopping
        self.health = NodeHealth(stores)
        self._dropped: set[tuple[str, str]] = set()
        """Damaged copies (node, task) that were removed since a batch last ran whole."""

    def run(self, every: float, failed: Callable[[BaseException], None]) -> None:
        """Ask every node, again and again until the run is over; lost ones too, for they may be back."""
        while not self.stopping.wait(every):
            try:
                self.heartbeat()
            except Exception as error:  # noqa: BLE001 - it ends a thread; the run raises it
                _log.exception("the run ends in a heartbeat", extra={"batch": self.decisions.machine.head})
                failed(error)

    def heartbeat(self) -> None:
        """One round of heartbeats."""
        machine = self.decisions.machine
        lost = machine.lost
        self.nodes_down(self.health.failed(set(self.stores) - lost))
        for name in self.health.reset(lost & machine.lost - machine.intent.banned):
            self.decisions.handle(NodeReturned(name))
            self._event(run_events.NodeBack(time.time(), machine.head, name, cause=machine.cause))
        alive = set(self.stores) - machine.lost
        drained, banned = (tuple(sorted(nodes)) for nodes in (machine.drained, machine.intent.banned))
        memory = self.health.memory(alive)
        self._event(run_events.Heartbeat(time.time(), machine.head, tuple(sorted(alive)), memory, drained, banned))

    def prepare_nodes(self) -> None:
        """Empty and mark all nodes for a new run; those that do not answer are lost."""
        silent = set(self.stores) - set(self.health.reset(self.stores))
        self.nodes_down(dict.fromkeys(silent, "it does not answer"))

    def nodes_down(self, down: Mapping[str, str]) -> None:
        """Nodes do not answer, and why. Nodes fail together: all others are asked before anything is decided."""
        machine = self.decisions.machine
        if self.stopping.is_set() or not set(down) - machine.lost:
            return
        time.sleep(_TOGETHER)
        others = self.health.failed(set(self.stores) - machine.lost - set(down))
        self.decisions.nodes_lost({**others, **down})

    def copies_damaged(self, lost: Collection[tuple[str, str]]) -> None:
        """Copies were damaged: they are removed, so that the next version there is written whole.

        A node that has lost all that it held, or the same copy twice before a batch ran whole, is lost itself.
        """
        if self.stopping.is_set() or not lost:
            return
        unreliable = {node: f"it does not keep {task}" for node, task in self._dropped & set(lost)}
        self.nodes_down({**unreliable, **self.health.failed({node for node, _ in lost} - self.decisions.machine.lost)})
        for node, task in lost:
            self._drop(node, task)
        self._dropped |= set(lost)
        self.decisions.copies_damaged(lost)

    def batch_complete(self) -> None:
        """A batch ran with no task missing: copies that were damaged before are written anew."""
        self._dropped = set()

    def sweep(self) -> None:
        """Let nodes forget what is not needed. Between batches: nothing that is being written now can be swept away."""
        for sweep in self.decisions.take_sweeps():
            for node in sweep.nodes - self.decisions.machine.lost:
                try:
                    self.stores[node].sweep(sweep.task, sweep.keep, sweep.outputs_from)
                except NodeSlow:
                    _log.info("node %s is slow: %s is not swept this time", node, sweep.task, exc_info=True)
                except NodeDown as error:
                    _log.info("node %s does not answer a sweep", node, exc_info=True)
                    self.nodes_down({node: error.reason})

    def remove_run(self) -> None:
        """Leave nothing in the nodes: they may be the user's, and the run is over."""
        for name in set(self.stores) - self.decisions.machine.lost:
            try:
                self.stores[name].forget()
            except NodeDown:
                _log.info("node %s does not answer: what it holds of the run stays there", name, exc_info=True)

    def _drop(self, node: str, task: str) -> None:
        try:
            if node not in self.decisions.machine.lost:
                self.stores[node].drop(task)
        except NodeDown as error:
            _log.info("node %s does not answer", node, exc_info=True)
            self.nodes_down({node: error.reason})

    def _event(self, event: run_events.RunEvent) -> None:
        self.decisions.publisher.event(event)
