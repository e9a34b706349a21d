"""The node watcher: heartbeats, and what happens when a node fails, loses data or returns."""

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
from ppa_core.terminal import logs

_log = logging.getLogger(__name__)

_TOGETHER = 0.1
"""Seconds between the first sign of a failure and the check of all other nodes, which may fail with it."""


class NodeWatcher:
    """Checks the nodes and reports failed ones to the machine. Any thread may report nodes that do not answer."""

    def __init__(self, stores: Mapping[str, Store], decisions: Decisions, stopping: threading.Event) -> None:
        self.stores, self.decisions, self.stopping = stores, decisions, stopping
        self.health = NodeHealth(stores)
        self._dropped: set[tuple[str, str]] = set()
        """Damaged copies (node, task) removed since the last batch without missing tasks."""

    def run(self, every: float, failed: Callable[[BaseException], None]) -> None:
        """Send heartbeats until the run stops, also to lost nodes, which may be back."""
        while not self.stopping.wait(every):
            with logs.about(batch=self.decisions.machine.head, cause=self.decisions.machine.cause):
                try:
                    self.heartbeat()
                except Exception as error:  # noqa: BLE001 - it ends this thread; the run raises it
                    _log.exception("the run failed in a heartbeat")
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
        """Clear and mark all nodes for a new run; those that do not answer are lost."""
        silent = set(self.stores) - set(self.health.reset(self.stores))
        self.nodes_down(dict.fromkeys(silent, "it does not answer"))

    def nodes_down(self, down: Mapping[str, str]) -> None:
        """Nodes do not answer; `down` has the reasons. All other nodes are checked first, because nodes can fail together."""
        machine = self.decisions.machine
        if self.stopping.is_set() or not set(down) - machine.lost:
            return
        time.sleep(_TOGETHER)
        others = self.health.failed(set(self.stores) - machine.lost - set(down))
        self.decisions.nodes_lost({**others, **down})

    def copies_damaged(self, lost: Collection[tuple[str, str]]) -> None:
        """Copies are damaged: they are removed, so that the next version there is written completely.

        A node is lost if it has lost all its data, or the same copy twice without a complete batch in between.
        """
        if self.stopping.is_set() or not lost:
            return
        unreliable = {node: f"its copy of {task} was damaged twice" for node, task in self._dropped & set(lost)}
        self.nodes_down({**unreliable, **self.health.failed({node for node, _ in lost} - self.decisions.machine.lost)})
        for node, task in lost:
            self._drop(node, task)
        self._dropped |= set(lost)
        self.decisions.copies_damaged(lost)

    def batch_complete(self) -> None:
        """A batch ran without missing tasks: damaged copies have been written again."""
        self._dropped = set()

    def sweep(self) -> None:
        """Delete what is not needed any more from the nodes. Called between batches, when nothing is being written."""
        for sweep in self.decisions.take_sweeps():
            for node in sweep.nodes - self.decisions.machine.lost:
                try:
                    self.stores[node].sweep(sweep.task, sweep.keep, sweep.outputs_from)
                except NodeSlow:
                    _log.info("node %s is slow: old versions of %s are deleted later", node, sweep.task, exc_info=True)
                except NodeDown as error:
                    _log.info("node %s does not answer: nothing deleted", node, exc_info=True)
                    self.nodes_down({node: error.reason})

    def remove_run(self) -> None:
        """Delete all data of the run from the nodes: they may be the user's own servers."""
        for name in set(self.stores) - self.decisions.machine.lost:
            try:
                self.stores[name].forget()
            except NodeDown:
                _log.info("node %s does not answer: the run's data stays there", name, exc_info=True)

    def _drop(self, node: str, task: str) -> None:
        try:
            if node not in self.decisions.machine.lost:
                self.stores[node].drop(task)
        except NodeDown as error:
            _log.info("node %s does not answer", node, exc_info=True)
            self.nodes_down({node: error.reason})

    def _event(self, event: run_events.RunEvent) -> None:
        self.decisions.publisher.event(event)
