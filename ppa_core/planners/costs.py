"""Tables by cost, the arithmetic of `completion`: a row a task, a column for each number of new tasks that may be paid for."""

from __future__ import annotations

import numpy as np

from ppa_core.fidelity import Mask
from ppa_core.fidelity.compiled import InputStream
from ppa_core.topology import Partitioning
from ppa_core.topology.rates import Floats, Ints


def column(stream: InputStream) -> Floats:
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


def best_child(stream: InputStream, more: Floats) -> Floats:
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


def upstream(stream: InputStream, row: int) -> tuple[slice, Floats]:
    """The tasks that feed one downstream task, and their weights."""
    start = stream.up.start
    match stream.kind:
        case Partitioning.ONE_TO_ONE:
            return slice(start + row, start + row + 1), np.ones(1)
        case Partitioning.SPLIT:
            up = start + int(stream.parent[row])  # type: ignore[index]
            return slice(up, up + 1), np.ones(1)
        case Partitioning.MERGE:
            own = _group(stream.starts, row, len(stream.weight))  # type: ignore[arg-type]
            return slice(start + own.start, start + own.stop), stream.weight[own]  # type: ignore[index]
    return stream.up, stream.weight if stream.weight.ndim == 1 else stream.weight[row]  # type: ignore[union-attr,index,return-value]


def downstream(stream: InputStream, up: int) -> tuple[slice, Floats]:
    """The rows that one upstream task feeds, and its weight in each."""
    match stream.kind:
        case Partitioning.ONE_TO_ONE:
            return slice(up, up + 1), np.ones(1)
        case Partitioning.SPLIT:
            own = _group(stream.starts, up, len(stream.parent))  # type: ignore[arg-type]
            return own, np.ones(own.stop - own.start)
        case Partitioning.MERGE:
            row = int(stream.child[up])  # type: ignore[index]
            return slice(row, row + 1), stream.weight[up : up + 1]  # type: ignore[index]
    if stream.weight.ndim == 1:  # type: ignore[union-attr]
        return slice(0, None), stream.weight[up : up + 1]  # type: ignore[index]
    return slice(0, None), stream.weight[:, up]  # type: ignore[index]


def _group(starts: Ints, k: int, size: int) -> slice:
    return slice(int(starts[k]), int(starts[k + 1]) if k + 1 < len(starts) else size)


def cheapest_feeder(stream: InputStream, cost: Floats) -> Floats:
    """For each downstream task the least cost of an upstream one with a weight (one entry where it is the same for all)."""
    match stream.kind:
        case Partitioning.ONE_TO_ONE:
            return cost
        case Partitioning.SPLIT:
            return cost[stream.parent]
        case Partitioning.MERGE:
            return np.minimum.reduceat(np.where(stream.weight > 0, cost, np.inf), stream.starts)  # type: ignore[operator,arg-type]
    if stream.weight.ndim == 1:  # type: ignore[union-attr]
        return np.min(cost, where=stream.weight > 0, initial=np.inf, keepdims=True)  # type: ignore[operator,no-any-return]
    return np.where(stream.weight > 0, cost, np.inf).min(axis=1)  # type: ignore[operator,no-any-return]


def cheapest_child(stream: InputStream, cost: Floats) -> Floats:
    """For each upstream task the least cost of a downstream one in which it has a weight."""
    match stream.kind:
        case Partitioning.ONE_TO_ONE:
            return cost
        case Partitioning.SPLIT:
            return np.minimum.reduceat(cost, stream.starts)  # type: ignore[arg-type]
        case Partitioning.MERGE:
            return np.where(stream.weight > 0, cost[stream.child], np.inf)  # type: ignore[operator]
    if stream.weight.ndim == 1:  # type: ignore[union-attr]
        return np.where(stream.weight > 0, cost.min(), np.inf)  # type: ignore[operator]
    return np.where(stream.weight > 0, cost[:, None], np.inf).min(axis=0)  # type: ignore[operator,no-any-return]
