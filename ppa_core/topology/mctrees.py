"""MC-trees: the minimal sets of tasks that still produce output.

An MC-tree is an unfolding: a task of a sink, and for every task in it one substream of one input stream (independent
input) or one substream of every input stream (correlated input), down to the sources. Where an operator feeds two others,
a task may be reached along two paths and chooses along each of them; two trees may then have the same tasks. Counting and
enumeration always agree: `len(list(trees(t))) == count(t)`. Every topology has at least one tree.

The number of trees is exponential, so counting never enumerates them. With n_t the number of trees below task t,

    n_t = 1 for a source        n_t = Σ_j Σ_s n_s for independent input        n_t = Π_j Σ_s n_s for correlated input

over the substreams s of the input streams j. A tree is identified by a number from 0 to Σ n_sink - 1 in a mixed radix, and is
constructed from its number.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator
from itertools import accumulate, chain
from math import prod

from ppa_core.errors import RequestError
from ppa_core.topology.model import Topology
from ppa_core.topology.operators import Edge, Input, Partitioning

MAX_BITS = 1 << 22
"""A count with more bits is refused: joins of streams that share operators square the number of trees each time."""


def count(topology: Topology, alive: Collection[int] | None = None) -> int:
    """The exact number of MC-trees; with `alive`, of those whose tasks are all alive (external tasks always are).

    Cost: one addition or multiplication a task and narrow link, N1 + N2 for a `full` edge.
    """
    ways = _ways(topology, _standing(topology, alive))
    return sum(ways[t] for t in _sink_tasks(topology))


def trees(topology: Topology) -> Iterator[frozenset[int]]:
    """All MC-trees as sets of task numbers (external tasks included), lazily and in a fixed order."""
    return covered(topology, None)


def covered(topology: Topology, alive: Collection[int] | None) -> Iterator[frozenset[int]]:
    """The MC-trees whose tasks are all alive (external tasks always are), lazily, without enumerating the others."""
    ways = _ways(topology, _standing(topology, alive))
    operator_of = [name for name, span in topology.span.items() for _ in span]
    reach = {name: list(accumulate(ways[span.start : span.stop], initial=0)) for name, span in topology.span.items()}
    sinks = list(_sink_tasks(topology))
    first = list(accumulate((ways[t] for t in sinks), initial=0))

    def spell(number: int) -> frozenset[int]:
        root = bisect_right(first, number) - 1
        tree: set[int] = set()
        todo = [(sinks[root], number - first[root])]
        while todo:
            task, rest = todo.pop()
            if ways[task] == 1 and task in tree:
                continue  # only one tree is below it, and that is in the set already
            tree.add(task)
            todo += _choices(topology, operator_of[task], task, rest, reach)
        return frozenset(tree)

    yield from map(spell, range(first[-1]))


def containing(topology: Topology) -> list[int]:
    """For each task, the number of MC-trees that contain it, so fail with it. External tasks are counted like others.

    Cost: a forward and a backward pass, plus a pass over the downstream operators for each task of an operator that feeds
    one join through two of its streams, because a tree may contain such a task more than once.
    """
    ways = _ways(topology, [True] * len(topology.tasks))
    above = _above(topology, ways)
    dying = [n * m for n, m in zip(ways, above, strict=True)]
    total = sum(ways[t] for t in _sink_tasks(topology))
    for name in shared_by_joins(topology):
        for task, left in _left_without(topology, ways, name):
            dying[task] = total - left
    return dying


def effort(topology: Topology, total: int) -> int:
    """An upper bound of the steps of `containing` for `total` trees; a million steps take about a second."""
    shared = sum(len(topology.span[name]) for name in shared_by_joins(topology))
    return len(topology.tasks) * (1 + shared) * (1 + total.bit_length() // 1024)


def death_share(topology: Topology) -> list[float]:
    """For each task, the fraction of all MC-trees that fail with it."""
    total = count(topology)
    return [dying / total for dying in containing(topology)]


def shared_by_joins(topology: Topology) -> tuple[str, ...]:
    """The operators from which two input streams of one join descend."""
    above: dict[str, int] = {}  # the operators upstream of each, itself included, as bits in topological order
    shared = 0
    for place, name in enumerate(topology.order):
        seen = 0
        for edge in topology.inputs[name]:
            if topology.by_name[name].input is Input.CORRELATED:
                shared |= seen & above[edge.source]
            seen |= above[edge.source]
        above[name] = seen | 1 << place
    return tuple(name for place, name in enumerate(topology.order) if shared >> place & 1)


def _sink_tasks(topology: Topology) -> Iterable[int]:
    return chain.from_iterable(topology.span[name] for name in topology.sinks)


def _standing(topology: Topology, alive: Collection[int] | None) -> list[bool]:
    standing = [alive is None] * len(topology.tasks)
    for task in chain(alive or (), topology.external_tasks):
        standing[task] = True
    return standing


def _ways(topology: Topology, standing: list[bool]) -> list[int]:
    """The number of trees below each task, with only the standing tasks."""
    ways = [0] * len(topology.tasks)
    for name in topology.order:
        _count_below(topology, name, standing, ways)
    return ways


def _count_below(topology: Topology, name: str, standing: list[bool], ways: list[int]) -> None:
    """Fill in `ways` for the tasks of an operator, from those of the operators before it."""
    span = topology.span[name]
    streams = [_stream_ways(topology, edge, ways) for edge in topology.inputs[name]]
    if len(streams) > 1 and topology.by_name[name].input is Input.CORRELATED:
        if max(sum(n.bit_length() for n in parts) for parts in zip(*streams, strict=True)) > MAX_BITS:
            raise RequestError(f"topology {topology.name!r}", "the number of its MC-trees has over a million digits")
        below = [prod(parts) for parts in zip(*streams, strict=True)]
    elif len(streams) > 1:
        below = [sum(parts) for parts in zip(*streams, strict=True)]
    else:
        below = streams[0] if streams else [1] * len(span)
    for task, n in zip(span, below, strict=True):
        ways[task] = n if standing[task] else 0


def _stream_ways(topology: Topology, edge: Edge, ways: list[int]) -> list[int]:
    """For each task of the edge's target, the sum of `ways` over its substreams on this edge."""
    up, down = topology.span[edge.source], topology.span[edge.target]
    if edge.partitioning is Partitioning.FULL:
        return [sum(ways[up.start : up.stop])] * len(down)
    ranges = (_feeders(edge, len(up), len(down), j) for j in range(len(down)))
    return [sum(ways[up.start + lo : up.start + hi]) for lo, hi in ranges]


def _feeders(edge: Edge, n1: int, n2: int, j: int) -> tuple[int, int]:
    """The upstream tasks that send to downstream task j: from the first to before the second, counted from 0."""
    match edge.partitioning:
        case Partitioning.FULL:
            return 0, n1
        case Partitioning.SPLIT:
            return j * n1 // n2, j * n1 // n2 + 1
        case _:
            return -(-j * n1 // n2), -(-(j + 1) * n1 // n2)


def _choices(topology: Topology, name: str, task: int, rest: int, reach: dict[str, list[int]]) -> Iterator[tuple[int, int]]:
    """The upstream tasks that the tree number `rest` below `task` chooses, each with the number of the tree below it."""
    joins = topology.by_name[name].input is Input.CORRELATED
    down = topology.span[name]
    for edge in topology.inputs[name]:
        up, sums = topology.span[edge.source], reach[edge.source]
        lo, hi = _feeders(edge, len(up), len(down), task - down.start)
        here = sums[hi] - sums[lo]
        if joins:
            rest, digit = divmod(rest, here)
        elif rest >= here:
            rest -= here
            continue
        else:
            digit = rest
        chosen = bisect_right(sums, sums[lo] + digit, lo, hi + 1) - 1
        yield up[chosen], sums[lo] + digit - sums[chosen]
        if not joins:
            return


def _above(topology: Topology, ways: list[int]) -> list[int]:
    """For each task, in how many ways a tree below it is completed to a whole one, summed over its places in trees."""
    above = [0] * len(ways)
    for task in _sink_tasks(topology):
        above[task] = 1
    for name in reversed(topology.order):
        joins = topology.by_name[name].input is Input.CORRELATED
        span = topology.span[name]
        for edge in topology.inputs[name]:
            given = above[span.start : span.stop]
            if joins:  # the other streams choose freely
                here = _stream_ways(topology, edge, ways)
                given = [n * ways[task] // own for n, task, own in zip(given, span, here, strict=True)]
            if edge.partitioning is Partitioning.FULL:
                total = sum(given)
                for task in topology.span[edge.source]:
                    above[task] += total
            else:
                for up, down in topology.links(edge):
                    above[up] += given[down - span.start]
    return above


def _left_without(topology: Topology, ways: list[int], name: str) -> Iterator[tuple[int, int]]:
    """Each task of an operator with the number of trees that do not contain it."""
    standing = [True] * len(ways)
    downstream = _downstream(topology, name)
    for task in topology.span[name]:
        left = ways.copy()
        left[task] = 0
        for other in downstream:
            _count_below(topology, other, standing, left)
        yield task, sum(left[t] for t in _sink_tasks(topology))


def _downstream(topology: Topology, name: str) -> list[str]:
    """The operators that descend from this one, without itself, upstream before downstream."""
    found = {name}
    for other in topology.order:
        if any(edge.source in found for edge in topology.inputs[other]):
            found.add(other)
    return [other for other in topology.order if other in found and other != name]
