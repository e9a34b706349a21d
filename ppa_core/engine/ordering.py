"""Making orders from the machine's state: what a batch or a replay runs, and what nodes can delete."""

from __future__ import annotations

from ppa_core.engine.checkpoints import checkpoint_node, due
from ppa_core.engine.events import RunBatch, Sweep
from ppa_core.engine.orders import Order, TaskRun, Version
from ppa_core.engine.recovery import NEVER, Start
from ppa_core.engine.state import State


def batch_order(state: State, batch: int) -> RunBatch:
    """The order for a batch: every task that is not missing, from its newest version in the current lineage."""
    state.running = None
    affected = state.affected
    due_now = due(state, batch)
    runs = {}
    for task in state.graph.tasks:
        if task in state.missing:
            continue
        kept = checkpoint_node(state, task)
        runs[task] = TaskRun(
            state.placement.primaries[task],
            state.before(task),
            replica=state.placement.replicas.get(task) if (batch + 1) % state.sync_every == 0 else None,
            checkpoint=kept if task in due_now else None,
            buffer=None if task in due_now or task in affected else kept,
        )
    state.running = RunBatch(Order(batch, state.next_attempt(), runs), state.missing)
    return state.running


def replay_order(state: State, batch: int, attempt: int, found: dict[str, Start]) -> Order:
    """The order for one batch of a replay; `found` says from which version each task starts."""
    runs, outputs = {}, {}
    for task in state.graph.tasks:
        if task in found and found[task].version.batch < batch:
            version, exact = found[task].version, found[task].exact
            runs[task] = TaskRun(
                state.placement.primaries[task],
                version if version.batch == batch - 1 else None,
                replica=state.placement.replicas.get(task) if batch == state.head else None,
                buffer=checkpoint_node(state, task) if batch >= exact else None,
            )
    needed = {feeder for task in runs for feeder in state.graph.feeders[task]}
    if batch in state.tentative:
        needed |= {task for task in state.graph.tasks if not state.graph.consumers[task]}
    for task in needed - set(runs):
        nodes = sorted(node for node, copy in state.copies[task].items() if copy.first <= batch <= copy.last)
        outputs[task] = Version(batch, state.outputs[task][batch], tuple(nodes))
    return Order(batch, attempt, runs, outputs)


def sweeps(state: State) -> list[Sweep]:
    """What nodes can delete, for every fifth task in turn."""
    found: list[Sweep] = []
    for i, task in enumerate(state.graph.tasks):
        if (state.head + i) % 5:
            continue
        first = min((_needs_from(state, consumer) for consumer in state.graph.consumers[task]), default=state.head + 1)
        keep = frozenset((copy.batch, copy.attempt) for copy in state.copies[task].values() if copy.batch > NEVER)
        everywhere = {node.name for node in state.placement.nodes} - state.lost if task in state.untidy else ()
        found.append(Sweep(task, frozenset(state.copies[task]).union(everywhere), keep, first))
        state.untidy -= {task}
        for node, copy in state.copies[task].items():
            state.copies[task][node] = copy._replace(first=max(copy.first, first))
        for held in state.suspended.values():
            if task in held:
                held[task] = held[task]._replace(first=max(held[task].first, first))
        for batch in [b for b in state.outputs[task] if b < first]:
            del state.outputs[task][batch]
    return found


def _needs_from(state: State, task: str) -> int:
    """The first batch whose input a task would need if its home were lost: after its newest other copy, or to fill its
    window from empty state."""
    home = state.placement.primaries[task]
    newest = max((copy.batch for node, copy in state.copies[task].items() if node != home), default=NEVER)
    return max(newest, state.graph.from_nothing(task, state.head + 1)) + 1
