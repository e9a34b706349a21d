"""Figures that the collector keeps and writes as records: samples of outputs, task figures, sums of a minute. Pure."""

from __future__ import annotations

from collections.abc import Collection

import pyarrow as pa

from monitoring.records import Correction, Minute, Output, Timing
from monitoring.task_records import NEVER, STATES, TaskColumns, TaskState, inner_tasks
from ppa_core.engine.event_codec import cut
from ppa_core.engine.event_fields import TaskFigures
from ppa_core.engine.run_events import Placed
from ppa_core.topology import Partitioning, Topology

_CODES = {state: code for code, state in enumerate(STATES)}
SAMPLE_ROWS, SAMPLE_COLUMNS, SAMPLE_CELL = 10, 8, 80


def sample(table: pa.Table) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Columns and cells of the first rows of a table, as text of limited length."""
    names = table.column_names[:SAMPLE_COLUMNS]
    rows = table.slice(0, SAMPLE_ROWS).select(names).to_pylist()
    return tuple(map(cut, names)), tuple(_short(row[name]) for row in rows for name in names)


def _short(value: object) -> str:
    text = f"{value:.6g}" if isinstance(value, float) else str(value)
    return text if len(text) <= SAMPLE_CELL else text[: SAMPLE_CELL - 1] + "…"


class TaskBoard:
    """All tasks of a run: their states and their latest figures."""

    def __init__(self, topology: Topology, batch_seconds: float) -> None:
        self.topology, self.batch_seconds = topology, batch_seconds
        self.tasks = inner_tasks(topology)
        self.index = {task: i for i, task in enumerate(self.tasks)}
        n = len(self.tasks)
        self.states: list[TaskState] = ["running"] * n
        self.replicated: frozenset[str] = frozenset()
        self.head = NEVER
        self._rate_in, self._rate_out, self._seconds = [0.0] * n, [0.0] * n, [0.0] * n
        self._state_bytes, self._checkpoint_bytes = [0] * n, [0] * n
        self._checkpoint, self._replica = [NEVER] * n, [NEVER] * n
        self._missing: frozenset[str] = frozenset()
        self._recovering: frozenset[str] = frozenset()
        self._replay_first, self._replayed = NEVER, NEVER

    def placed(self, where: Placed) -> None:
        self.replicated = frozenset(where.replicas)
        for i, task in enumerate(self.tasks):
            if task not in self.replicated:
                self._replica[i] = NEVER

    def ran(self, batch: int, stats: TaskFigures, checkpointed: Collection[str], synced: Collection[str]) -> None:
        """The figures of a batch. Tasks that did not run have rate 0."""
        n = len(self.tasks)
        self._rate_in, self._rate_out, self._seconds = [0.0] * n, [0.0] * n, [0.0] * n
        columns = (stats.task, stats.rows_in, stats.rows_out, stats.seconds, stats.state_bytes)
        for task, rows_in, rows_out, seconds, state_bytes in zip(*columns, strict=True):
            i = self.index.get(task)
            if i is None:
                continue
            self._rate_in[i] = round(rows_in / self.batch_seconds, 2)
            self._rate_out[i] = round(rows_out / self.batch_seconds, 2)
            self._seconds[i] = round(seconds, 5)
            self._state_bytes[i] = state_bytes
        written = dict(zip(stats.task, stats.checkpoint_bytes, strict=True)) if checkpointed else {}
        for task in checkpointed:
            i = self.index.get(task)
            if i is not None:
                self._checkpoint[i] = batch
                self._checkpoint_bytes[i] = written.get(task, 0)
        for task in synced:
            i = self.index.get(task)
            if i is not None and task in self.replicated:
                self._replica[i] = batch
        self.head = max(self.head, batch)

    def replaying(self, tasks: Collection[str], first: int) -> None:
        """A replay of these tasks began with batch `first`."""
        self._recovering = frozenset(tasks)
        self._replay_first = first if self._replay_first == NEVER else min(first, self._replay_first)

    def replayed(self, batch: int) -> None:
        """A replay has reached that batch."""
        self._replayed = max(self._replayed, batch)

    def changed(self, missing: frozenset[str], taken_over: Collection[str]) -> dict[str, TaskState]:
        """The tasks whose state changed, with their new state."""
        if not missing:
            self._recovering, self._replay_first, self._replayed = frozenset(), NEVER, NEVER
        self._missing = missing
        affected, moved = self._affected(missing), set(taken_over)
        found: dict[str, TaskState] = {}
        for i, task in enumerate(self.tasks):
            state: TaskState = "replicated" if task in self.replicated else "running"
            if task in missing:
                state = "recovering" if task in self._recovering else "failed"
            elif task in moved:
                state = "taken_over"
            elif task in affected:
                state = "tentative"
            if state != self.states[i]:
                self.states[i] = found[task] = state
        return found

    def columns(self, batch: int, at: float) -> TaskColumns:
        recovered = 1.0
        if self._missing and self._replay_first != NEVER:
            span = max(1, self.head - self._replay_first + 1)
            recovered = round(min(1.0, max(0.0, (self._replayed - self._replay_first + 1) / span)), 4)
        elif self._missing:
            recovered = 0.0
        progress = (
            [recovered if task in self._missing else 1 for task in self.tasks] if self._missing else [1] * len(self.tasks)
        )
        return TaskColumns(
            batch, at, tuple(_CODES[state] for state in self.states), tuple(self._rate_in), tuple(self._rate_out),
            tuple(self._seconds), tuple(self._state_bytes), tuple(self._checkpoint), tuple(self._checkpoint_bytes),
            tuple(self._replica), tuple(progress),
        )  # fmt: skip

    def _affected(self, missing: frozenset[str]) -> set[str]:
        """The tasks whose output depends on missing tasks, and these."""
        if not missing:
            return set()
        topology = self.topology
        gone = {topology.index[task] for task in missing if task in topology.index}
        for name in topology.order:
            for edge in topology.inputs[name]:
                if gone.isdisjoint(topology.span[edge.source]):
                    continue
                if edge.partitioning is Partitioning.FULL:  # there may be a million links
                    gone.update(topology.span[name])
                else:
                    gone.update(down for up, down in topology.links(edge) if up in gone)
        return {topology.tasks[i] for i in gone}


class MinuteSums:
    """Sums up the batches of each minute. The record of a minute is returned when the next minute begins."""

    def __init__(self) -> None:
        self._minute: int | None = None
        self._clear()

    def output(self, output: Output) -> list[Minute]:
        found = self._turn(output.at)
        self._of.append(output.of)
        self._tentative += output.status == "tentative"
        return found

    def timing(self, timing: Timing) -> list[Minute]:
        found = self._turn(timing.at)
        self._seconds.append(timing.seconds)
        self._rows += timing.source_rows
        return found

    def correction(self, correction: Correction) -> list[Minute]:
        found = self._turn(correction.at)
        self._corrected += 1
        return found

    def end(self) -> list[Minute]:
        """The record of the current minute, if it has any batches."""
        if self._minute is None or not (self._of or self._corrected):
            return []
        of, seconds = self._of or [1.0], self._seconds or [0.0]
        made = Minute(
            60.0 * self._minute, len(self._of), round(sum(of) / len(of), 6), min(of), round(sum(seconds) / len(seconds), 4),
            max(seconds), self._rows, self._tentative, self._corrected,
        )  # fmt: skip
        self._minute = None
        self._clear()
        return [made]

    def _turn(self, at: float) -> list[Minute]:
        minute = int(at // 60)
        found = self.end() if self._minute is not None and minute != self._minute else []
        self._minute = minute
        return found

    def _clear(self) -> None:
        self._of: list[float] = []
        self._seconds: list[float] = []
        self._rows = self._tentative = self._corrected = 0
