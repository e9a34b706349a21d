"""Checkpoints: which tasks write one in a batch.

They are staggered: with an interval of k batches, task i writes its checkpoint in the batches b with (b + 1 + i) mod k = 0,
so that every batch writes about the same amount. A task is overdue if its checkpoint node holds no checkpoint yet: at the
start, and after a loss or a move. At most a quarter of all tasks write an overdue checkpoint in the same batch.
"""

from __future__ import annotations

from ppa_core.engine.recovery import NEVER, Copy
from ppa_core.engine.state import State

CATCH_UP = 4
"""At most one task in this many writes an overdue checkpoint in a batch."""


def due(state: State, batch: int) -> frozenset[str]:
    """The tasks that write a checkpoint in this batch: accurate tasks, when it is their turn or when they are overdue."""
    if not state.checkpoint_every:
        return frozenset()
    tasks, affected = state.graph.tasks, state.affected
    overdue = [task for task in tasks if _overdue(state, task)][: -(-len(tasks) // CATCH_UP)]
    in_turn = [task for i, task in enumerate(tasks) if (batch + 1 + i) % state.checkpoint_every == 0]
    return frozenset(task for task in (*overdue, *in_turn) if task not in affected and checkpoint_node(state, task))


def checkpoint_node(state: State, task: str) -> str | None:
    """The node that holds a task's checkpoint; None without checkpoints."""
    return state.placement.checkpoints.get(task) if state.checkpoint_every else None


def _overdue(state: State, task: str) -> bool:
    kept = checkpoint_node(state, task)
    return kept is not None and state.copies[task].get(kept, Copy()).batch == NEVER
