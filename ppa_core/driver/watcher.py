"""The node watcher: what happens when a node falls silent, fails, loses data, or returns.

Heartbeats decide which nodes are suspect (`ppa_core.nodes.heartbeats`). The run continues without a suspect at once. A suspect
that answers again is used with what it holds. One that is dead, or silent for long, is lost; when it returns, it is cleared.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import wait

from ppa_core.driver.decisions import Decisions
from ppa_core.driver.executor_hosts import ExecutorHosts
from ppa_core.engine import run_events
from ppa_core.engine.events import NodeReturned, SuspectAnswered, Sweep
from ppa_core.nodes.errors import NodeDown, NodeSlow
from ppa_core.nodes.health import NodeHealth
from ppa_core.nodes.heartbeats import TICK, Heartbeats
from ppa_core.nodes.store import Store
from ppa_core.terminal import logs

_log = logging.getLogger(__name__)

TOGETHER = 0.1
"""Seconds between the first sign of a failure and the check of all other nodes, which may fail with it."""
DEAD_SECONDS = 60.0
"""A suspect that is silent for so long is lost."""
_SWEEP_SECONDS = 0.3
"""How long a batch waits for nodes to delete what is not needed any more; they finish by themselves."""
_SWEPT_AT_ONCE = 16


class NodeWatcher:
    """Watches the nodes and reports changes to the machine. Any thread may report nodes that do not answer."""

    def __init__(
        self, stores: Mapping[str, Store], decisions: Decisions, heartbeats: Heartbeats, stopping: threading.Event
    ) -> None:
        self.stores, self.decisions, self.heartbeats, self.stopping = stores, decisions, heartbeats, stopping
        self.executors: ExecutorHosts | None = None
        """On a cluster: a host fails with its nodes and its executors."""
        self.health = NodeHealth(stores)
        self._dropped: set[tuple[str, str]] = set()
        """Damaged copies (node, task) removed since the last batch without missing tasks."""
        self._threads = logs.Threads(_SWEPT_AT_ONCE, thread_name_prefix="sweep")

    # ---------------------------------------------------------------------------------------------------------- heartbeats

    def run(self, every: float, failed: Callable[[BaseException], None]) -> None:
        """Watch the nodes until the run stops, also lost ones, which may be back. Every `every` seconds it reports them."""
        rounds = threading.Thread(target=self._repeat, args=(every, self.check, failed), name="ppa-check", daemon=True)
        self.heartbeats.start()
        rounds.start()
        self._repeat(TICK, self.poll, failed)
        rounds.join()
        self.heartbeats.stop()

    def poll(self) -> None:
        """Report what the heartbeats have shown since the last time. It never waits for a node, but for others that fail with
        one that is dead."""
        changes, machine = self.heartbeats.poll(), self.decisions.machine
        if set(changes.dead) - machine.lost:
            self.heartbeats.ask_now()
            self.stopping.wait(TOGETHER)
            changes.dead.update(self.heartbeats.dead())
        late = {node for node in list(machine.suspended) if self.heartbeats.silent_for(node) > DEAD_SECONDS}
        if self.executors is not None:  # before the batch in flight is run again, which must not go there
            self.executors.follow(machine.lost.union(changes.dead, changes.suspect).difference(changes.back))
        self.decisions.nodes_lost(changes.dead | dict.fromkeys(late, f"silent for {DEAD_SECONDS:.0f} s"))
        self.decisions.nodes_suspected(changes.suspect)
        for node in changes.back:
            if node in machine.suspended and node not in machine.intent.banned:
                self.decisions.handle(SuspectAnswered(node))
                self._event(run_events.NodeBack(time.time(), machine.head, node, kept=True, cause=machine.cause))

    def check(self) -> None:
        """One round of checks, also of lost nodes: those that answer are cleared and used again."""
        machine = self.decisions.machine
        errors = self.health.check(set(self.stores) - machine.lost)
        self.nodes_down({name: error.reason for name, error in errors.items() if not isinstance(error, NodeSlow)})
        for name in self.health.reset(machine.lost - set(machine.suspended) - machine.intent.banned):
            self.heartbeats.reset(name)
            self.decisions.handle(NodeReturned(name))
            self._event(run_events.NodeBack(time.time(), machine.head, name, cause=machine.cause))
        alive = set(self.stores) - machine.lost
        drained, banned = (tuple(sorted(nodes)) for nodes in (machine.drained, machine.intent.banned))
        memory = self.health.memory(alive)
        self._event(run_events.Heartbeat(time.time(), machine.head, tuple(sorted(alive)), memory, drained, banned))

    def prepare_nodes(self) -> None:
        """Clear and mark all nodes for a new run; those that do not answer are lost."""
        silent = set(self.stores) - set(self.health.reset(self.stores))
        self.decisions.nodes_lost(dict.fromkeys(silent, "it does not answer"))

    def resume(self) -> None:
        """Check the nodes of a run that is resumed."""
        errors = self.health.check(set(self.stores) - self.decisions.machine.lost | set(self.decisions.machine.suspended))
        self._report(errors)

    # ------------------------------------------------------------------------------------------------------------- failures

    def nodes_down(self, down: Mapping[str, str]) -> None:
        """Somebody's requests to nodes had no answer; `down` has the reasons. All other nodes are checked first, because nodes
        can fail together. A node that refuses connections, or has lost its data, is lost; any other is suspect."""
        machine = self.decisions.machine
        if self.stopping.is_set() or not set(down) - machine.lost:
            return
        time.sleep(TOGETHER)
        errors = self.health.check(set(self.stores) - machine.lost)
        reported = {node: NodeSlow(node, reason) for node, reason in down.items()}
        self._report(reported | {node: error for node, error in errors.items() if node in down or not _is_slow(error)})

    def _report(self, errors: Mapping[str, NodeDown]) -> None:
        self.decisions.nodes_lost({node: error.reason for node, error in errors.items() if not _is_slow(error)})
        silent = {node: error.reason for node, error in errors.items() if _is_slow(error)}
        for node in silent:
            self.heartbeats.suspect(node)
        self.decisions.nodes_suspected(silent)

    def copies_damaged(self, lost: Collection[tuple[str, str]]) -> None:
        """Copies are damaged: they are removed, so that the next version there is written completely.

        A node is lost if it has lost all its data, or the same copy twice without a complete batch in between.
        """
        if self.stopping.is_set() or not lost:
            return
        unreliable = {node: f"its copy of {task} was damaged twice" for node, task in self._dropped & set(lost)}
        self.decisions.nodes_lost(unreliable)
        self._report(self.health.check({node for node, _ in lost} - self.decisions.machine.lost))
        for node, task in lost:
            self._drop(node, task)
        self._dropped |= set(lost)
        self.decisions.copies_damaged(lost)

    def batch_complete(self) -> None:
        """A batch ran without missing tasks: damaged copies have been written again."""
        self._dropped = set()

    # ------------------------------------------------------------------------------------------------------------- cleaning

    def sweep(self) -> None:
        """Delete what is not needed any more from the nodes, all at once. Called between batches, when nothing is written."""
        by_node: dict[str, list[Sweep]] = {}
        for sweep in self.decisions.take_sweeps():
            for node in sweep.nodes - self.decisions.machine.lost:
                by_node.setdefault(node, []).append(sweep)
        wait([self._threads.submit(self._sweep, *one) for one in by_node.items()], _SWEEP_SECONDS)

    def _sweep(self, node: str, sweeps: list[Sweep]) -> None:
        for sweep in sweeps:
            try:
                if node in self.decisions.machine.lost:
                    return
                self.stores[node].sweep(sweep.task, sweep.keep, sweep.outputs_from)
            except NodeSlow:
                _log.info("node %s is slow: old versions of %s are deleted later", node, sweep.task, exc_info=True)
                return
            except NodeDown as error:
                _log.info("node %s does not answer: nothing deleted", node, exc_info=True)
                self.nodes_down({node: error.reason})
                return

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

    def _repeat(self, every: float, work: Callable[[], None], failed: Callable[[BaseException], None]) -> None:
        while not self.stopping.wait(every):
            with logs.about(batch=self.decisions.machine.head, cause=self.decisions.machine.cause):
                try:
                    work()
                except Exception as error:  # noqa: BLE001 - it ends this thread; the run raises it
                    _log.exception("the run failed while it watched the nodes")
                    failed(error)

    def _event(self, event: run_events.RunEvent) -> None:
        self.decisions.publisher.event(event)


def _is_slow(error: NodeDown) -> bool:
    return isinstance(error, NodeSlow)
