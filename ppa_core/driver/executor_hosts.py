"""Executors by host: a host fails with its nodes and its Spark executors together.

Spark gives an executor up that does not answer after half a minute. A host whose nodes are all silent is not waited for: its
executors are removed at once, so that the batch in flight is run again on the others. When the host is back, Spark starts
others there.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Collection, Sequence
from typing import Any
from urllib.parse import urlsplit

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark import SparkContext

from ppa_core.placement.nodes import Node

_log = logging.getLogger(__name__)

_ANY_NUMBER = 2**31 - 1
"""Of executors: one on every worker with room, as without a limit."""
_FIRST_WAIT, _LONGEST_WAIT = 5.0, 60.0
_NEW_SECONDS = 30.0
"""For so long an executor is new: its first task starts Python and loads code, which takes long on a busy machine."""


class Patience:
    """Something may happen at once, then again after 5, 10, 20, … 60 s; when it was not needed for long, at once again."""

    def __init__(self) -> None:
        self._last, self._wait = float("-inf"), 0.0

    def lets(self, now: float) -> bool:
        return now >= self._last + self._wait

    def used(self, now: float) -> None:
        """It happened."""
        again = now < self._last + 2 * _LONGEST_WAIT
        self._last, self._wait = now, min(2 * self._wait, _LONGEST_WAIT) if again else _FIRST_WAIT


class ExecutorHosts:
    """The executors of a session on a cluster. Executors are matched to the nodes' hosts by name or address."""

    def __init__(self, context: SparkContext, nodes: Sequence[Node]) -> None:
        self._context = context
        self._host_of = {node.host: node.host for node in nodes}
        self._host_of |= {address: node.host for node in nodes if (address := urlsplit(node.url).hostname)}
        self._nodes_of: dict[str, set[str]] = {}
        for node in nodes:
            self._nodes_of.setdefault(node.host, set()).add(node.name)
        self._silent: set[str] = set()
        self._killed: set[str] = set()
        """Spark knows an executor until its worker says that it has ended, but gives it no task any more."""
        self._patience = Patience()
        self._lock = threading.Lock()

    def follow(self, lost: Collection[str]) -> None:
        """Remove the executors of hosts whose nodes are all lost, if that is new."""
        silent = {host for host, nodes in self._nodes_of.items() if nodes <= set(lost)}
        with self._lock:
            self._remove(silent - self._silent)
            self._silent = silent

    def _remove(self, hosts: Collection[str]) -> None:
        if not hosts:
            return
        try:
            known = self.executors()
            names = [one for one, host in known.items() if host in hosts]
            if names and len(names) < len(known):
                self._kill(names)
                _log.warning("executors %s of the silent hosts %s are removed", ", ".join(names), ", ".join(sorted(hosts)))
        except Py4JError:
            _log.warning("the executors of the silent hosts %s could not be removed", ", ".join(sorted(hosts)), exc_info=True)

    def _kill(self, names: Sequence[str]) -> None:
        """Kill executors. Spark starts others where it can; on a host that is silent, when that is back."""
        jvm = self._context._jvm
        assert jvm is not None
        self._killed.update(names)
        self._scala.killExecutors(jvm.PythonUtils.toSeq(list(names)))
        # That has limited the application to fewer executors, at first to none: no lost one would be replaced any more.
        self._scala.requestTotalExecutors(_ANY_NUMBER, 0, jvm.PythonUtils.toScalaMap({}))

    def remove_busy(self) -> bool:
        """Remove the executors with a task that is not done, if there are others; Spark starts as many again. Whether there
        were some.

        Slow executors look the same. So new ones, which are slow at first, are left alone, and others have longer each time:
        a busy machine would only start executors.
        """
        with self._lock:
            if not self._patience.lets(time.monotonic()):
                return False
            try:
                known = self._active()
                old = time.time() - _NEW_SECONDS
                busy = [str(one.id()) for one in known if one.activeTasks() and one.addTime().getTime() / 1000 < old]
                if not busy or len(busy) == len(known):
                    return False
                self._kill(busy)
                self._patience.used(time.monotonic())
            except Py4JError:
                _log.warning("executors that do nothing could not be removed", exc_info=True)
                return False
            _log.warning("executors %s do not finish their tasks: they are removed", ", ".join(busy))
            return True

    def executors(self) -> dict[str, str]:
        """The host of each executor, by the executor's id; executors on other machines than the nodes' are not in it."""
        places = {str(one.id()): str(one.hostPort()).rpartition(":")[0] for one in self._active()}
        return {name: self._host_of[place] for name, place in places.items() if place in self._host_of}

    def _active(self) -> list[Any]:
        """Spark's summaries of the executors that it uses."""
        found = self._scala.statusStore().executorList(True)
        listed = [found.apply(i) for i in range(found.size())]
        return [one for one in listed if one.isActive() and str(one.id()) not in self._killed | {"driver"}]

    @property
    def _scala(self) -> Any:
        return self._context._jsc.sc()
