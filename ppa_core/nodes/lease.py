"""A lease: only one driver of a name can run on the same nodes. Every node stores the owner, for a few seconds at a time.

The process that supervises a run chooses an owner id and passes it to every driver that it starts, so a restarted driver
continues at once. A driver with another owner waits until the lease expires, and is refused if it is renewed. All drivers ask
the nodes in the same order, so only one can be first. In a network partition, where each driver reaches other nodes, both may
run.
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
"""How long a lease is valid without renewal."""

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
"""Acquire or renew the lease for this many milliseconds; with 0, only check. If it has another owner, returns the milliseconds
until it expires, or -1 if it never does."""
_RELEASE = "if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('UNLINK', KEYS[1]) end return 0"


def new_owner() -> str:
    """A unique owner id."""
    return secrets.token_hex(16)


class LeaseLost(BadInput):
    """Another driver with this name is running."""

    def __init__(self, run: str) -> None:
        super().__init__(
            f"run {run!r}", "another driver runs it on these nodes; stop that driver first, or choose another --name"
        )
        self.run = run

    def __reduce__(self) -> tuple[type[LeaseLost], tuple[str]]:  # type: ignore[override]
        return LeaseLost, (self.run,)


class _Node(Store):
    """The lease in one node."""

    def take(self, owner: str) -> int:
        """0 if the owner has the lease now; else the milliseconds until another owner's lease expires, -1 for never."""
        return self._run(_TAKE, owner, int(SECONDS * 1000))

    def look(self, owner: str) -> int:
        """The same, but only check: 0 if the lease could be acquired."""
        return self._run(_TAKE, owner, 0)

    def release(self, owner: str) -> None:
        self._run(_RELEASE, owner)

    def _run(self, script: str, *arguments: str | int) -> int:
        key = f"ppa:lease:{self.run}"  # not one of the run's own keys, which are deleted when it starts
        with self._guard():
            return int(self._client.register_script(script)([key], arguments))


Question = Callable[[_Node, str], int]


class Lease:
    """The lease of `owner` on a run. With an empty owner it does nothing: for embedded nodes, which nobody else knows.

    As a context manager it acquires the lease or raises LeaseLost, renews it in a separate thread, and releases it at the end;
    `lost` is called once if the lease is lost meanwhile.
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
        """Acquire the lease; LeaseLost if another driver renews it. If that driver has ended, its lease expires: `waiting` is
        called once before the wait."""
        seen: dict[str, int] = {}
        end = time.monotonic() + 2 * SECONDS
        while (held := self._first_held(_Node.look) or self._first_held(_Node.take)) is not None:
            name, left = held
            if left < 0 or left > seen.get(name, left) or time.monotonic() > end:  # never expires, or was renewed
                self.release()
                raise LeaseLost(self.run)
            if not seen:
                waiting()
            seen[name] = left
            time.sleep(_LOOK_AGAIN)

    def ensure_held(self) -> None:
        """Called before each output is published: LeaseLost if this process was suspended and another driver has taken over."""
        if time.monotonic() - self._renewed > SECONDS / 2:
            self._renew()

    def release(self) -> None:
        for node in self._nodes:
            try:
                node.release(self.owner)
            except PpaError:  # it expires
                _log.info("the lease could not be released", exc_info=True)

    def _renew(self) -> None:
        """LeaseLost if another owner has it in any node. Nodes that do not answer are ignored: no other driver reaches them
        either."""
        if not self._nodes:
            return
        asked = time.monotonic()
        with ThreadPoolExecutor(len(self._nodes)) as threads:  # one that hangs must not delay the others
            if any(self._held_by_another(_Node.take, threads.map)):
                raise LeaseLost(self.run)
        self._renewed = asked

    def _first_held(self, question: Question) -> tuple[str, int] | None:
        """Ask one node after the other, up to the first with another owner. A driver that is refused has only checked:
        acquiring the lease in a node that was restarted empty would stop the driver that holds it in the others."""
        return next(self._held_by_another(question, map), None)

    def _held_by_another(self, question: Question, each: Callable[..., Iterable[int]]) -> Iterator[tuple[str, int]]:
        """The nodes with another owner, and the milliseconds until its lease expires; without nodes that do not answer."""

        def ask(node: _Node) -> int:
            try:
                return question(node, self.owner)
            except (NodeDown, NodeFull):
                _log.debug("node %s does not answer: lease not checked there", node.node.name, exc_info=True)
                return 0

        return ((node.node.name, left) for node, left in zip(self._nodes, each(ask, self._nodes), strict=True) if left)

    def _keep(self) -> None:
        while not self._over.wait(_RENEW):
            try:
                self._renew()
            except LeaseLost as error:
                _log.warning("the lease was lost to another driver", exc_info=True)
                self._lost(error)
                return
            except PpaError:  # for example a changed password: the run itself fails too
                _log.warning("the lease could not be renewed", exc_info=True)
