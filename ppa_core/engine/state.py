"""The machine's state: which versions are where, what is missing, which jobs run, what operators want. No decisions."""

from __future__ import annotations

from dataclasses import dataclass, field

from ppa_core.engine.events import RunBatch, StartReplay
from ppa_core.engine.intent import Intent
from ppa_core.engine.orders import TaskRun, Version
from ppa_core.engine.recovery import NEVER, Copy, Graph
from ppa_core.engine.standing import FORGETS_NOTHING, Standing
from ppa_core.placement.place import Placement

Fork = tuple[int, int, frozenset[str]]
"""A tentative version: batch, attempt, the nodes that hold it."""


@dataclass
class State:
    """The machine's state; `Machine` changes it."""

    graph: Graph
    placement: Placement
    checkpoint_every: int = 15
    """In batches; 0: no checkpoints and no output buffers, lost tasks are rebuilt from the source."""
    sync_every: int = 1
    short_replay: int = 2
    """The next batch waits for a replay of at most this many batches, so that recovery ends."""

    head: int = NEVER
    good: int = NEVER
    attempt: int = 0
    missing: frozenset[str] = frozenset()
    lost: frozenset[str] = frozenset()
    """Nodes that the run continues without: failed ones and suspects."""
    suspended: dict[str, dict[str, Copy]] = field(default_factory=dict)
    """Suspects, and the accurate copies that each still holds if it answers again."""
    newest: dict[str, tuple[int, int]] = field(default_factory=dict)
    """The newest accurate version of each task (batch, attempt)."""
    copies: dict[str, dict[str, Copy]] = field(default_factory=dict)
    """Accurate copies by task and node."""
    fork: dict[str, Fork] = field(default_factory=dict)
    """Tentative versions of affected tasks."""
    outputs: dict[str, dict[int, int]] = field(default_factory=dict)
    """The attempt that wrote the accurate output of each task and batch, as long as it is kept."""
    running: RunBatch | None = None
    replaying: StartReplay | None = None
    tentative: frozenset[int] = frozenset()
    lost_since: dict[int, frozenset[str]] = field(default_factory=dict)
    """Nodes lost since a running attempt began: its writes there are lost, even if the node is back."""
    intent: Intent = field(default_factory=Intent)
    cause: str = ""
    """The id of the open incident: from a loss to the first accurate batch after the last correction."""
    failed_at: int | None = None
    """The last batch before tasks were lost: they are recovered when they reach it again, as the paper measures recovery."""
    untidy: frozenset[str] = frozenset()
    """Tasks of which interrupted jobs may have left data on any node: they are swept everywhere, once."""
    log: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        for task in self.graph.tasks:
            self.newest.setdefault(task, (NEVER, 0))
            self.copies.setdefault(task, {})
            self.outputs.setdefault(task, {})

    # ----------------------------------------------------------------------------------------------------------- reading

    @property
    def affected(self) -> frozenset[str]:
        """The tasks whose output is incomplete now: the missing ones and all downstream of them."""
        return self.graph.downstream(self.missing) if self.missing else frozenset()

    @property
    def drained(self) -> frozenset[str]:
        """Nodes that answer but must not be used."""
        return self.intent.drained

    @property
    def unusable(self) -> frozenset[str]:
        """Lost nodes, and drained ones unless no other node is left."""
        without = self.lost | self.drained
        return without if len(without) < len(self.placement.nodes) else self.lost

    def before(self, task: str) -> Version:
        """The version that the next batch starts from, and the nodes that hold it, the task's home first."""
        if task in self.fork:
            batch, attempt, nodes = self.fork[task]
        else:
            batch, attempt = self.newest[task]
            nodes = self._holders(task, batch, attempt)
            if attempt and not nodes:  # the same content may be in a former suspect, as another attempt wrote it
                attempts = (copy.attempt for copy in self.copies[task].values() if copy.batch == batch)
                attempt = max(attempts, default=attempt)
                nodes = self._holders(task, batch, attempt)
        home = self.placement.primaries[task]
        return Version(batch, attempt, tuple(sorted(nodes, key=lambda node: (node != home, node))))

    def _holders(self, task: str, batch: int, attempt: int | None = None) -> frozenset[str]:
        """The nodes with an accurate version of this batch, written by this attempt or by any."""
        return frozenset(
            node for node, copy in self.copies[task].items() if copy.batch == batch and attempt in (None, copy.attempt)
        )

    def _can_continue(self, task: str, version: Version) -> frozenset[str]:
        """The nodes of which any one is enough for the task to continue without a replay."""
        return frozenset(version.nodes) | (frozenset() if task in self.fork else self._holders(task, version.batch))

    def standing(self) -> Standing:
        """The state of tasks and nodes now, for predictions."""
        nodes = tuple(node.name for node in self.placement.nodes)
        number = {name: i for i, name in enumerate(nodes)}
        tasks, homes = self.graph.tasks, self.placement.primaries
        before = [self.before(task) for task in tasks]
        copies = (sorted((number[node], copy.batch) for node, copy in self.copies[task].items()) for task in tasks)
        lookback = tuple(self.graph.lookback_batches.get(task, FORGETS_NOTHING) for task in tasks)
        return Standing(
            self.head,
            nodes,
            tasks,
            tuple(number[homes[task]] for task in tasks),
            tuple(
                tuple(sorted(number[node] for node in self._can_continue(task, version)))
                for task, version in zip(tasks, before, strict=True)
            ),
            tuple(tuple(item for copy in each for item in copy) for each in copies),
            lookback,
            tuple(i for i, version in enumerate(before) if not lookback[i] or not version.attempt),
            tuple(i for i, task in enumerate(tasks) if task in self.missing),
            tuple(sorted(number[node] for node in self.lost)),
            tuple(sorted(number[node] for node in self.drained)),
        )

    # ----------------------------------------------------------------------------------------------------------- writing

    def next_attempt(self) -> int:
        """The number of the next job that runs tasks."""
        self.attempt += 1
        under_way = [self.running.order.attempt if self.running else 0, self.replaying.attempt if self.replaying else 0]
        self.lost_since = {a: nodes for a, nodes in self.lost_since.items() if a in under_way} | {self.attempt: frozenset()}
        return self.attempt

    def wrote(self, task: str, run: TaskRun, batch: int, attempt: int) -> None:
        """An accurate version was written, and its output with it."""
        self.newest[task] = (batch, attempt)
        self.outputs[task][batch] = attempt
        copies = self.copies[task]
        for node, copy in copies.items():
            if copy.last >= batch:  # written by an earlier attempt, which is superseded
                copies[node] = copy._replace(last=batch - 1)
        for held in self.suspended.values():
            if task in held and held[task].last >= batch:
                held[task] = held[task]._replace(last=batch - 1)
        for target in {run.home, run.replica, run.checkpoint, run.buffer} - {None, *self.lost_since[attempt]}:
            copy = copies.get(str(target), Copy())
            first = copy.first if copy.first < batch == copy.last + 1 else batch
            whole = target in (run.home, run.replica, run.checkpoint)
            version = (batch, attempt) if whole else (copy.batch, copy.attempt)
            copies[str(target)] = Copy(*version, first, batch)

    def filled(self, task: str, run: TaskRun, batch: int, attempt: int) -> None:
        """A version was written from which the next batch can start, but whose own output is not exact."""
        self.newest[task] = (batch, attempt)
        for node in {run.home, run.replica} - {None, *self.lost_since[attempt]}:
            self.copies[task][str(node)] = Copy(batch, attempt, batch + 1, batch)
