"""When a node is suspect: decided from the times at which heartbeats were sent and answered. Pure: time is passed in.

A node is suspect if it has not answered for longer than its *limit*. The limit follows its own answers: at least `LEAST`, and
`FACTOR` times its slowest recent answer, so that a busy machine or a garbage collection is not a failure. A node is also
suspect if it answers much later than most others do: it would delay every batch.

If this process itself was stalled (its clock ticks late), nobody is blamed for the time that it missed.

A suspect that answers again is trusted again at once, the first time. A node that is suspect again soon after is *flapping*: it
must answer for a while without interruption, twice as long every time.
"""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

LEAST = 0.5
FACTOR = 4.0
_DECAY = 0.97
"""Per answer, of the slowest recent answer: it counts for about half a minute."""
_RECENT = 5
"""Answers from which a node's usual response time is taken."""
_OUTLIER = 5.0
"""A slow node answers this many times later than the median of all nodes."""
FORGET_SECONDS = 120.0
"""A node that was not suspect for so long is not flapping any more."""
FIRST_PENALTY, MOST_PENALTY = 2.0, 60.0


@dataclass
class _Node:
    asked: float | None = None
    """When the oldest heartbeat without an answer was sent."""
    answered: float | None = None
    slowest: float = 0.0
    recent: deque[float] = field(default_factory=lambda: deque(maxlen=_RECENT))
    suspected: float | None = None
    steady: float = 0.0
    """Since when it has been answering in time, if it is suspect."""
    times: int = 0
    """How often it was suspect without a long time of trust in between."""
    trusted: float = 0.0
    """When it was last trusted again."""

    @property
    def usual(self) -> float:
        return statistics.median(self.recent) if self.recent else 0.0

    @property
    def penalty(self) -> float:
        return min(MOST_PENALTY, FIRST_PENALTY * 2.0 ** (self.times - 2)) if self.times > 1 else 0.0


class Suspicion:
    """The nodes of a run. `slow` is the response time from which a node delays batches too much, `most` the longest limit."""

    def __init__(self, nodes: Iterable[str], slow: float, most: float) -> None:
        self.slow, self.most = slow, max(LEAST, most)
        self._nodes = {name: _Node() for name in nodes}
        self._ticked: float | None = None

    # ---------------------------------------------------------------------------------------------------------------- seen

    def sent(self, name: str, now: float) -> None:
        """A heartbeat is sent. Only the oldest one without an answer counts."""
        node = self._nodes[name]
        node.asked = now if node.asked is None else node.asked

    def answer(self, name: str, now: float) -> None:
        """The node has answered its heartbeat."""
        node = self._nodes[name]
        if node.asked is not None:
            took = now - node.asked
            node.recent.append(took)
            node.slowest = max(min(took, self.most), node.slowest * _DECAY)
            if took > self._limit(node):
                node.steady = now
        node.asked, node.answered = None, now

    def tick(self, now: float, every: float) -> None:
        """Called every `every` seconds: if it comes late, this process was stalled, and answers may be waiting unread."""
        if self._ticked is not None and (late := now - self._ticked - every) > every:
            for node in self._nodes.values():
                if node.asked is not None:
                    node.asked = min(now, node.asked + late)
        self._ticked = now

    # ------------------------------------------------------------------------------------------------------------- verdicts

    def suspects(self, now: float) -> dict[str, str]:
        """Nodes that are suspect from now on, with the reasons. Nodes that have been silent for half as long as one of them are
        suspect with it: nodes fail together."""
        found = {name: reason for name in self._nodes if (reason := self._reason(name, now))}
        if any(self._silent(self._nodes[name], now) > LEAST for name in found):
            for name, node in self._nodes.items():
                if node.suspected is None and name not in found and self._silent(node, now) > self._limit(node) / 2:
                    found[name] = f"no answer for {self._silent(node, now):.1f} s, together with others"
        for name in found:
            self.suspect(name, now)
        return found

    def suspect(self, name: str, now: float) -> None:
        """The node is suspect from now on, for whatever reason: a worker's request may have had no answer."""
        node = self._nodes[name]
        if node.suspected is None:
            node.times = node.times + 1 if now - node.trusted < FORGET_SECONDS and node.times else 1
            node.suspected = node.steady = now

    def trust(self, now: float) -> list[str]:
        """Suspects that can be used again from now on."""
        found = []
        for name, node in self._nodes.items():
            if node.suspected is None or node.answered is None or node.answered <= node.suspected:
                continue
            if self._silent(node, now) > LEAST or self._slow(node):
                node.steady = now
            elif now - node.steady >= node.penalty:
                node.suspected, node.trusted = None, now
                found.append(name)
        return found

    def silent_for(self, name: str, now: float) -> float:
        """Seconds since the oldest heartbeat without an answer."""
        return self._silent(self._nodes[name], now)

    def forget(self, name: str) -> None:
        """The node is known to be dead or new: what was known of it does not count."""
        times, trusted = self._nodes[name].times, self._nodes[name].trusted
        self._nodes[name] = _Node(times=times, trusted=trusted)

    def _reason(self, name: str, now: float) -> str:
        node = self._nodes[name]
        if node.suspected is not None:
            return ""
        silent = self._silent(node, now)
        if silent > self._limit(node):
            return f"no answer for {silent:.1f} s"
        return f"slow: it takes {1000 * node.usual:.0f} ms to answer" if self._slow(node) else ""

    def _silent(self, node: _Node, now: float) -> float:
        return 0.0 if node.asked is None else now - node.asked

    def _limit(self, node: _Node) -> float:
        return min(self.most, max(LEAST, FACTOR * node.slowest))

    def _slow(self, node: _Node) -> bool:
        """Whether a node takes so long to answer that it delays batches, while most others do not."""
        if len(node.recent) < _RECENT or node.usual < self.slow:
            return False
        return node.usual > _OUTLIER * statistics.median(other.usual for other in self._nodes.values())
