"""Executors by host: a host fails with its nodes and its Spark executors together.

Spark gives an executor up that does not answer after half a minute. A host whose nodes are all silent is not waited for: its
executors are removed at once, so that the batch in flight is run again on the others. When the host is back, Spark may start as
many again.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection, Sequence
from typing import Any
from urllib.parse import urlsplit

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark import SparkContext

from ppa_core.placement.nodes import Node

_log = logging.getLogger(__name__)


class ExecutorHosts:
    """The executors of a session on a cluster. Executors are matched to the nodes' hosts by name or address."""

    def __init__(self, context: SparkContext, nodes: Sequence[Node]) -> None:
        self._context = context
        self._host_of = {node.host: node.host for node in nodes}
        self._host_of |= {address: node.host for node in nodes if (address := urlsplit(node.url).hostname)}
        self._nodes_of: dict[str, set[str]] = {}
        for node in nodes:
            self._nodes_of.setdefault(node.host, set()).add(node.name)
        self._removed: dict[str, int] = {}
        self._lock = threading.Lock()

    def follow(self, lost: Collection[str]) -> None:
        """Remove the executors of hosts whose nodes are all lost; let hosts that are back have executors again."""
        silent = {host for host, nodes in self._nodes_of.items() if nodes <= set(lost)}
        with self._lock:
            self._remove(silent - set(self._removed))
            self._allow(set(self._removed) - silent)

    def _remove(self, hosts: Collection[str]) -> None:
        if not hosts:
            return
        try:
            found = {host: [one for one, where in self.executors().items() if where == host] for host in hosts}
            names = [one for ids in found.values() for one in ids]
            if names and len(names) < len(self.executors()):
                self._scala.killExecutors(self._seq(names))
                _log.warning("executors %s of the silent hosts %s are removed", ", ".join(names), ", ".join(sorted(hosts)))
            self._removed |= {host: len(ids) for host, ids in found.items()}
        except Py4JError:
            _log.warning("the executors of the silent hosts %s could not be removed", ", ".join(sorted(hosts)), exc_info=True)

    def _allow(self, hosts: Collection[str]) -> None:
        count = sum(self._removed.pop(host) for host in hosts)
        if count:
            try:
                self._scala.requestExecutors(count)
            except Py4JError:
                _log.warning("executors of the hosts %s could not be requested", ", ".join(sorted(hosts)), exc_info=True)

    def remove_busy(self) -> bool:
        """Remove the executors with a task that is not done, if there are others; Spark starts as many again. Whether there
        were some."""
        with self._lock:
            try:
                busy = [name for name, tasks in self._tasks().items() if tasks]
                if not busy or len(busy) == len(self._tasks()):
                    return False
                self._scala.killExecutors(self._seq(busy))
                self._scala.requestExecutors(len(busy))
            except Py4JError:
                _log.warning("executors that do nothing could not be removed", exc_info=True)
                return False
            _log.warning("executors %s do not finish their tasks: they are removed", ", ".join(busy))
            return True

    def _tasks(self) -> dict[str, int]:
        """The number of running tasks of each executor."""
        found = self._scala.statusStore().executorList(True)
        listed = [found.apply(i) for i in range(found.size())]
        return {str(one.id()): int(one.activeTasks()) for one in listed if one.isActive() and str(one.id()) != "driver"}

    def executors(self) -> dict[str, str]:
        """The host of each executor, by the executor's id; executors on other machines than the nodes' are not in it."""
        found = self._scala.statusStore().executorList(True)
        listed = [found.apply(i) for i in range(found.size())]
        places = {str(one.id()): str(one.hostPort()).rpartition(":")[0] for one in listed if one.isActive()}
        return {name: self._host_of[place] for name, place in places.items() if place in self._host_of}

    @property
    def _scala(self) -> Any:
        return self._context._jsc.sc()

    def _seq(self, names: Sequence[str]) -> Any:
        jvm = self._context._jvm
        assert jvm is not None
        return jvm.PythonUtils.toSeq(list(names))
