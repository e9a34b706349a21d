"""The topology with the rates that its tasks have now, in place of those that the run was started with. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from monitoring.records import TaskColumns
from monitoring.views import TaskRecord
from ppa_core.topology import Partitioning, Topology, derive

NOISE = 0.05
"""Of the mean rate: smaller changes are none."""
MOST_LINKS = 20_000
"""Of a topology with more substreams the rates stay as they were: an operator waits for it."""


def means(columns: Sequence[TaskColumns], tasks: Sequence[TaskRecord]) -> tuple[dict[str, float], dict[str, float]]:
    """What each task took in and put out, on average over some batches: windows that slide put out only now and then."""
    fitting = [column for column in columns if len(column.rate_in) == len(tasks)]
    if not fitting:
        return {}, {}
    taken, put = (np.mean([getattr(column, name) for column in fitting], axis=0) for name in ("rate_in", "rate_out"))
    names = [task.task for task in tasks]
    return dict(zip(names, taken.tolist(), strict=True)), dict(zip(names, put.tolist(), strict=True))


def alike(one: Topology, other: Topology) -> bool:
    """Whether two sets of rates are the same but for noise and a common factor: then plans need not be made anew."""
    if one.measured.keys() != other.measured.keys():
        return False
    first, second = (np.fromiter(each.measured.values(), float) for each in (one, other))
    if not first.sum() or not second.sum():
        return bool(first.sum() == second.sum())
    first, second = first / first.mean(), second / second.mean()
    return bool(np.abs(first - second).max() <= NOISE)


def loaded(topology: Topology, taken: Mapping[str, float], put: Mapping[str, float]) -> Topology:
    """The topology with the rates of its substreams in proportion to what their upstream task puts out now.

    Of a source only is known what those take in that it feeds.
    """
    links = sum(
        len(topology.span[e.source]) * len(topology.span[e.target])
        if e.partitioning is Partitioning.FULL
        else max(len(topology.span[e.source]), len(topology.span[e.target]))
        for e in topology.edges
    )
    if not put or links > MOST_LINKS:
        return topology
    rates, measured = derive(topology), {}
    for up, down, rate in rates.substreams():
        sender, taker = topology.tasks[up], topology.tasks[down]
        if sender in put:
            usual, now = float(rates.output[up]), put[sender]
        else:
            usual, now = float(rates.input[down]), taken.get(taker, float(rates.input[down]))
        measured[f"{sender}>{taker}"] = rate * now / usual if usual > 0 else rate
    return replace(topology, measured=measured)
