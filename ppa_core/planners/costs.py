"""Tables by cost, the arithmetic of `completion`: a row a task, a column for each number of new tasks that may be paid for."""

from __future__ import annotations

import numpy as np

from ppa_core.fidelity import Mask
from ppa_core.fidelity.compiled import Stream
from ppa_core.topology import Partitioning
from ppa_core.topology.rates import Floats


def column(stream: Stream) -> Floats:
    """The weights of a stream's upstream tasks, ready to multiply a table."""
    return stream.weight[:, None]  # type: ignore[index]


def row_of(table: Floats, row: int) -> Floats:
    """The row of one task in a table that may have one row for all."""
    return table[row if len(table) > 1 else 0]  # type: ignore[no-any-return]


def shifted(table: Floats, alive: Mask) -> Floats:
    """A table of what a task does when alive, with the task itself paid for where it is not."""
    shifted = np.zeros((len(alive), table.shape[1]))
    shifted[:, 1:] = table[:, :-1]
    np.copyto(shifted, table, where=alive[:, None])
    return shifted


def convolved(a: Floats, b: Floats) -> Floats:
    """Row by row, the best product of one entry of a and one of b whose costs add up to c."""
    columns = a.shape[1]
    result = a[:, :1] * b
    for c in range(1, columns):
        np.maximum(result[:, c:], a[:, c : c + 1] * b[:, : columns - c], out=result[:, c:])
    return result


def spread_cost(rows: list[Floats], cost: int) -> list[int]:
    """The costs, `cost` in all, that make the product of one entry of each row largest."""
    prefix = [rows[0][None, :]]
    for row in rows[1:]:
        prefix.append(convolved(prefix[-1], row[None, :]))
    spread = []
    for k in range(len(rows) - 1, 0, -1):
        worth = rows[k][: cost + 1] * prefix[k - 1][0, cost::-1]
        c = int(worth.argmax())
        spread.append(c)
        cost -= c
    return [cost, *reversed(spread)]


def best_child(stream: Stream, more: Floats) -> Floats:
    """For each upstream task, the best improvement of the metric's slope through one downstream task."""
    match stream.kind:
        case Partitioning.ONE_TO_ONE:
            return more
        case Partitioning.SPLIT:
            return np.maximum.reduceat(more, stream.starts, axis=0)  # type: ignore[arg-type]
        case Partitioning.MERGE:
            return more[stream.child] * column(stream)
    if stream.weight.ndim == 1:  # type: ignore[union-attr]
        return column(stream) * more.max(axis=0)  # type: ignore[no-any-return]
    return np.stack([(more * column[:, None]).max(axis=0) for column in stream.weight.T])  # type: ignore[union-attr]


def child_gains(stream: Stream, more: Floats, up: int) -> Floats:
    """The improvement through each downstream task of one upstream task."""
    match stream.kind:
        case Partitioning.ONE_TO_ONE:
            linked = np.arange(len(more)) == up
        case Partitioning.SPLIT:
            linked = stream.parent == up
        case Partitioning.MERGE:
            linked = np.arange(len(more)) == stream.child[up]  # type: ignore[index]
            more = more * stream.weight[up]  # type: ignore[index]
        case _:
            return more * (stream.weight[up] if stream.weight.ndim == 1 else stream.weight[:, up])  # type: ignore[union-attr,index]
    return np.where(linked, more, -1.0)
