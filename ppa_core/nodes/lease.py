"""A lease: only one driver of a name can run on the same nodes. Every node stores the holder, for a few seconds at a time, and
the epoch: a number that grows with every driver of the run.

The process that supervises a run chooses an owner id and passes it to every driver that it starts, so a restarted driver
continues at once. A driver with another owner waits until the lease expires, and is refused if it is renewed.

With a standby driver the lease is *strict*: it is held by a majority of votes (`votes.py`), so that of two drivers that cannot
reach each other only one runs. Otherwise it is held as long as no node that answers says that another driver holds it: in a
network partition, where each driver reaches other nodes, both may run.

The nodes refuse requests of a driver with an older epoch that delete data or write the ledger (`format.py`).
"""

from __future__ import annotations

import logging
import random
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from ppa_core.errors import PpaError, Unavailable
from ppa_core.nodes.errors import LeaseLost, NodeDown, NodeFull, NodeSlow
from ppa_core.nodes.format import GRAB, RELEASE, RENEW, epoch_key, lease_key, ledger_key
from ppa_core.nodes.store import Store
from ppa_core.nodes.votes import Answer, majority, unopposed, voters
from ppa_core.placement.nodes import Node
from ppa_core.terminal.logs import Threads

_log = logging.getLogger(__name__)

SECONDS = 10.0
"""How long a lease is valid without renewal."""
STRICT_SECONDS = 2.5
"""The same with a standby driver, which takes over then."""
_RENEWALS = 6
"""Renewals within these seconds."""
_LOOK_AGAIN = 0.2
_TIMEOUT = 2.0


def new_owner() -> str:
    """A unique owner id."""
    return secrets.token_hex(16)


@dataclass(frozen=True)
class Found:
    """What a node says."""

    answer: Answer
    epoch: int = 0
    left: int = 0
    """Milliseconds until another driver's lease expires; -1 for never."""


class _Place(Store):
    """The lease in one node."""

    def ask(self, holder: str, owner: str, epoch: int, milliseconds: int) -> Found:
        """Renew the lease if it is the holder's; what the node says. With 0 milliseconds, only ask. Another holder of the same
        owner does not count as another driver, unless the owner is empty."""
        arguments = (holder, epoch, milliseconds)
        with self._guard():
            by, left, newest = self._client.register_script(RENEW)([*self._keys()], arguments)
        if by is not None and by.decode() == holder:
            return Found(Answer.MINE, int(newest))
        if by is not None and not (owner and by.decode().startswith(owner)):
            return Found(Answer.HELD, int(newest), int(left))
        return Found(Answer.LAPSED if by is not None or int(newest) else Answer.EMPTY, int(newest))

    def grab(self, holder: str, owner: str, epoch: int, milliseconds: int) -> bool:
        """Take the lease in a new epoch, if no other driver has it; whether it was taken."""
        with self._guard():
            return bool(self._client.register_script(GRAB)([*self._keys()], (holder, owner, epoch, milliseconds)))

    def release(self, holder: str) -> None:
        """Give back the lease of every holder that begins with this."""
        with self._guard():
            self._client.register_script(RELEASE)([*self._keys(), ledger_key(self.run)], [holder])

    def _keys(self) -> tuple[str, str]:
        return lease_key(self.run), epoch_key(self.run)


class Lease:
    """The lease of one driver on a run; `epoch` is the driver's, from 1.

    As a context manager it acquires the lease or raises LeaseLost, renews it in a separate thread, and releases it at the end;
    `lost` is called once if the lease is lost meanwhile.
    """

    def __init__(
        self,
        nodes: Sequence[Node],
        run: str,
        owner: str,
        lost: Callable[[LeaseLost], None] = lambda error: None,
        *,
        strict: bool = False,
        witness: Node | None = None,
    ) -> None:
        self.run, self.owner, self.strict, self._lost = run, owner, strict, lost
        self.holder = f"{owner}:{secrets.token_hex(8)}"
        self.epoch = 0
        self.seconds = STRICT_SECONDS if strict else SECONDS
        known = [*nodes, *([witness] if witness else [])]
        timeout = self.seconds / 4 if strict else _TIMEOUT
        self._places = {node.name: _Place(node, run, timeout=timeout) for node in known}
        self._voters = [node.name for node in voters(nodes)]
        self._witness = [witness.name] if witness else []
        self._timeout = timeout
        self._threads = Threads(max(1, len(known)), thread_name_prefix="lease")
        self._busy: dict[str, Future[Found | bool | None]] = {}
        self._renewed, self._renewing = float("-inf"), threading.Lock()
        self._over, self.stopping = threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        if not self.epoch:
            self.take()
        self.keep()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._over.set()
        if self._thread is not None:
            self._thread.join()
        if self.epoch and not (self.strict and kind is not None):  # a standby driver must not run into the same error
            self.release()

    # -------------------------------------------------------------------------------------------------------------- taking

    def take(self, waiting: Callable[[], None] = lambda: None, reserve: bool = False) -> None:
        """Acquire the lease; LeaseLost if a driver of another owner renews it. If that driver has ended, its lease expires:
        `waiting` is called once before the wait. With `reserve` it is acquired for the first driver of the same owner."""
        seen: dict[str, int] = {}
        end = time.monotonic() + 2 * self.seconds
        while True:
            found = self._ask_all(self.owner, 0)
            held = {name: one.left for name, one in found.items() if one.answer is Answer.HELD}
            if not held and self._try(found, self.owner, reserve):
                return
            renewed = any(left < 0 or left > seen.get(name, left) for name, left in held.items())
            if renewed or time.monotonic() > end:  # never expires, was renewed, or too few nodes answer
                self.release()
                raise LeaseLost(self.run) if held else Unavailable(self._too_few(found))
            if not seen:
                waiting()
            seen |= held
            time.sleep(_LOOK_AGAIN * random.uniform(0.5, 1.5))

    def follow(self, over: threading.Event, now: threading.Event) -> bool:
        """Wait until the driver that holds the lease does not renew it, and acquire it: for a standby driver of the same owner.
        If `now` is set, that driver has ended. False if `over` is set first; LeaseLost if a driver of another owner runs."""
        since = time.monotonic()
        while not over.is_set():
            ours = self.owner if now.is_set() else ""
            found = self._ask_all(ours, 0)
            answers = [one.answer for one in found.values()]
            if Answer.HELD not in answers and (ours or Answer.LAPSED in answers) and self._try(found, ours):
                return True
            if not ours or Answer.HELD not in answers:
                since = time.monotonic()
            elif time.monotonic() - since > 2 * self.seconds:
                raise LeaseLost(self.run)
            (over if ours else now).wait(_LOOK_AGAIN * random.uniform(0.5, 1.5))
        return False

    def keep(self) -> None:
        """Renew the lease from now on, in a separate thread."""
        self._thread = threading.Thread(target=self._keep, name="ppa-lease", daemon=True)
        self._thread.start()

    def _try(self, found: Mapping[str, Found], owner: str, reserve: bool = False) -> bool:
        """Take the lease in a new epoch if enough nodes agree; whether it was taken."""
        if not self._enough(found, (Answer.LAPSED, Answer.MINE)):
            return False
        asked, epoch = time.monotonic(), 0 if reserve else 1 + max(one.epoch for one in found.values())
        milliseconds = int(1000 * (SECONDS if reserve else self.seconds))
        got = self._each(lambda place: place.grab(self.holder, owner, epoch, milliseconds))
        new = all(one.answer is not Answer.LAPSED for one in found.values())
        after = {name: _after(one, got[name], new) for name, one in found.items()}
        if not self._enough(after, (Answer.MINE,)):
            self.release()
            return False
        self.epoch, self._renewed = epoch, asked
        return True

    def _enough(self, found: Mapping[str, Found], wanted: tuple[Answer, ...]) -> bool:
        if not self.strict:
            return unopposed([one.answer for one in found.values() if one.epoch >= self.epoch])
        racks = [found[name].answer for name in self._voters]
        return majority(racks, wanted, [found[name].answer for name in self._witness])

    def _too_few(self, found: Mapping[str, Found]) -> str:
        silent = sorted(name for name in self._voters if name in found and found[name].answer in (Answer.SILENT, Answer.DEAD))
        missing = f" ({', '.join(silent)} do not)" if silent else ""
        return (
            f"a driver needs a majority of the votes of {', '.join([*self._voters, *self._witness])}, and too few of them "
            f"answer{missing}; start these nodes, or run without a standby driver"
        )

    # ------------------------------------------------------------------------------------------------------------- keeping

    @property
    def lapsed(self) -> bool:
        """Whether another driver may hold the lease by now; a little earlier than it can, because clocks differ."""
        return time.monotonic() - self._renewed > self.seconds * 0.8

    def ensure_held(self) -> None:
        """Called before each output is published: waits until the lease is surely held. LeaseLost if this process was suspended
        and another driver has taken over."""
        while self.lapsed and not self.renew():
            if self.stopping.wait(_LOOK_AGAIN):
                raise Unavailable(f"run {self.run!r} is stopped, and its last output not published: {self._too_few({})}")

    def renew(self) -> bool:
        """Renew the lease; whether enough nodes did. LeaseLost if another driver has taken over."""
        with self._renewing:
            asked, lapsed, milliseconds = time.monotonic(), self.lapsed, int(self.seconds * 1000)
            found = self._ask_all("", milliseconds)
            answers = [one.answer for one in found.values()]
            newer = any(one.epoch > self.epoch for one in found.values())
            if newer or (
                not self.strict and any(one.answer is Answer.HELD and one.epoch == self.epoch for one in found.values())
            ):
                raise LeaseLost(self.run)
            forgotten = Answer.MINE not in answers and Answer.SILENT not in answers
            if forgotten and lapsed:  # the run may have ended since
                raise LeaseLost(self.run)
            if not forgotten and not self._enough(found, (Answer.MINE,)):
                return False
            self._renewed = asked
            behind = [name for name, one in found.items() if one.answer in (Answer.EMPTY, Answer.LAPSED)]
            if behind:  # restarted, or silent when it was taken: they learn it now that the others have agreed
                self._each(lambda place: place.grab(self.holder, "", self.epoch, milliseconds), behind)
            return True

    def release(self, everybody: bool = False) -> None:
        """Give back the lease; with `everybody`, that of every driver of this owner."""
        self._each(lambda place: place.release(self.owner if everybody else self.holder))

    def _keep(self) -> None:
        while not self._over.wait(self.seconds / _RENEWALS):
            try:
                if not self.renew():
                    _log.warning("too few nodes have renewed the lease")
            except LeaseLost as error:
                _log.warning("the lease was lost to another driver", exc_info=True)
                self._lost(error)
                return
            except PpaError:  # for example a changed password: the run itself fails too
                _log.warning("the lease could not be renewed", exc_info=True)

    # -------------------------------------------------------------------------------------------------------------- asking

    def _ask_all(self, owner: str, milliseconds: int) -> dict[str, Found]:
        found = self._each(lambda place: place.ask(self.holder, owner, self.epoch, milliseconds))
        return {name: Found(Answer.SILENT) if one is None else one for name, one in found.items() if not isinstance(one, bool)}

    def _each(
        self, question: Callable[[_Place], Found | bool | None], names: Iterable[str] | None = None
    ) -> dict[str, Found | bool | None]:
        """Ask nodes in parallel, those that have answered before; None for each that does not answer in time."""

        def ask(place: _Place) -> Found | bool | None:
            try:
                return question(place)
            except (NodeSlow, NodeFull):
                _log.debug("node %s does not answer: lease not checked there", place.node.name, exc_info=True)
                return None
            except NodeDown as error:
                _log.debug("node %s is down: lease not checked there", place.node.name, exc_info=True)
                return Found(Answer.DEAD) if error.refused else None

        wanted = list(self._places if names is None else names)
        free = [name for name in wanted if name not in self._busy or self._busy[name].done()]
        asked = {name: self._threads.submit(ask, self._places[name]) for name in free}
        self._busy.update(asked)
        wait(asked.values(), self._timeout)
        return {name: asked[name].result() if name in asked and asked[name].done() else None for name in wanted}


def _after(before: Found, got: Found | bool | None, new: bool) -> Found:
    """What a node's answer counts as after the attempt to take the lease there."""
    if isinstance(got, Found):
        return got
    if before.answer is Answer.EMPTY and not new:
        return before
    return Found({True: Answer.MINE, False: Answer.HELD, None: Answer.SILENT}[got])
