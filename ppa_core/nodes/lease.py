"""A lease: of several drivers with one name, one runs. Nodes keep who that is, for a few seconds at a time.

Whoever supervises a run chooses an owner, and hands it to every driver that it starts: so a driver that is started again goes
on at once. Another owner waits until a lease lapses, and is refused if somebody renews it. Nodes are asked in one order, so of
two that come together one is first. A lease is no fence: where nodes answer one driver and not the other, both may run.
"""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Self

from ppa_core.errors import BadInput, PpaError
from ppa_core.nodes.errors import NodeDown, NodeFull
from ppa_core.nodes.store import Store
from ppa_core.placement.nodes import Node

_log = logging.getLogger(__name__)

SECONDS = 10.0
"""How long a lease holds that nobody renews."""

_RENEW = 1.0
_LOOK_AGAIN = 0.25
_TIMEOUT = 2.0
_TAKE = """
local owner = redis.call('GET', KEYS[1])
if ARGV[2] == '0' and (not owner or owner == ARGV[1]) then return 0 end
if not owner then redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2]) return 0 end
if owner == ARGV[1] then redis.call('PEXPIRE', KEYS[1], ARGV[2]) return 0 end
local left = redis.call('PTTL', KEYS[1])
return left == 0 and 1 or left
"""
"""Take the lease for so many milliseconds or renew it, with 0 only look; if it is another's, answer how many it still holds,
-1 for ever."""
_RELEASE = "if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('UNLINK', KEYS[1]) end return 0"


def new_owner() -> str:
    """An owner that nobody else is."""
    return secrets.token_hex(16)


class LeaseLost(BadInput):
    """Another driver runs under this name."""

    def __init__(self, run: str) -> None:
        super().__init__(f"run {run!r}", "another driver runs it on these nodes; stop that one first, or take another --name")
        self.run = run

    def __reduce__(self) -> tuple[type[LeaseLost], tuple[str]]:  # type: ignore[override]
        return LeaseLost, (self.run,)


class _Node(Store):
    """The lease in one node."""

    def take(self, owner: str) -> int:
        """0 if it is the owner's now; else the milliseconds that another still has it, -1 for ever."""
        return self._run(_TAKE, owner, int(SECONDS * 1000))

    def look(self, owner: str) -> int:
        """The same, without taking it: 0 if it could be taken."""
        return self._run(_TAKE, owner, 0)

    def release(self, owner: str) -> None:
        self._run(_RELEASE, owner)

    def _run(self, script: str, *arguments: str | int) -> int:
        key = f"ppa:lease:{self.run}"  # not among the run's own keys: these are removed when it begins
        with self._guard():
            return int(self._client.register_script(script)([key], arguments))


Question = Callable[[_Node, str], int]


class Lease:
    """The lease of `owner` on a run. Without an owner there is nothing to hold: nobody else knows the nodes.

    As a context manager it is taken, or LeaseLost raised, renewed by a thread of its own, and given back at the end; `lost` is
    called once if it is lost meanwhile.
    """

    def __init__(
        self, nodes: Iterable[Node], run: str, owner: str, lost: Callable[[LeaseLost], None] = lambda error: None
    ) -> None:
        self.run, self.owner, self._lost = run, owner, lost
        self._nodes = [_Node(node, run, timeout=_TIMEOUT) for node in nodes] if owner else []
        self._renewed = time.monotonic()
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        self.take()
        if self._nodes:
            self._thread = threading.Thread(target=self._keep, name="ppa-lease", daemon=True)
            self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._over.set()
        if self._thread is not None:
            self._thread.join()
        self.release()

    def take(self, waiting: Callable[[], None] = lambda: None) -> None:
        """Take the lease; LeaseLost if another driver renews it. That of one that is gone lapses: `waiting` says so."""
        seen: dict[str, int] = {}
        end = time.monotonic() + 2 * SECONDS
        while (held := self._first_held(_Node.look) or self._first_held(_Node.take)) is not None:
            name, left = held
            if left < 0 or left > seen.get(name, left) or time.monotonic() > end:  # for ever, or renewed
                self.release()
                raise LeaseLost(self.run)
            if not seen:
                waiting()
            seen[name] = left
            time.sleep(_LOOK_AGAIN)

    def ensure_held(self) -> None:
        """Before something is published: LeaseLost if the lease is another's, because this process stood still for a while."""
        if time.monotonic() - self._renewed > SECONDS / 2:
            self._renew()

    def release(self) -> None:
        for node in self._nodes:
            try:
                node.release(self.owner)
            except PpaError:  # it lapses by itself
                _log.info("the lease could not be given back", exc_info=True)

    def _renew(self) -> None:
        """LeaseLost if another has it in any node. Nodes that do not answer are no reason to stop: they answer nobody else."""
        if not self._nodes:
            return
        asked = time.monotonic()
        with ThreadPoolExecutor(len(self._nodes)) as threads:  # one that hangs must not keep the others waiting
            if any(self._held_by_another(_Node.take, threads.map)):
                raise LeaseLost(self.run)
        self._renewed = asked

    def _first_held(self, question: Question) -> tuple[str, int] | None:
        """One node after the other, up to the first in which another has it. Whoever is refused has only looked: to take it
        in a node that was restarted empty would end the driver that holds it in the others."""
        return next(self._held_by_another(question, map), None)

    def _held_by_another(self, question: Question, each: Callable[..., Iterable[int]]) -> Iterator[tuple[str, int]]:
        """The nodes, of those that answer, in which another has the lease, and for how many milliseconds."""

        def ask(node: _Node) -> int:
            try:
                return question(node, self.owner)
            except (NodeDown, NodeFull):
                _log.debug("node %s was not asked for the lease", node.node.name, exc_info=True)
                return 0

        return ((node.node.name, left) for node, left in zip(self._nodes, each(ask, self._nodes), strict=True) if left)

    def _keep(self) -> None:
        while not self._over.wait(_RENEW):
            try:
                self._renew()
            except LeaseLost as error:
                _log.warning("the lease is another driver's", exc_info=True)
                self._lost(error)
                return
            except PpaError:  # a password that is refused all at once: the run itself meets it too
                _log.warning("the lease could not be renewed", exc_info=True)
