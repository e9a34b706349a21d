"""Placement: a home node for each task, a replica for the tasks of the plan, a checkpoint for all. Pure and deterministic.

A copy is placed by these rules, most important first: not on the task's home node; not on its host; not in its rack; if there
are at least two standbys, not on the node of the task's other copy; on a standby; on the node with the fewest copies of its
kind. Rules that cannot be met are dropped, the least important first, but never the first: if no node besides its home is left,
a task has no copy.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace

from ppa_core.errors import RequestError, Unavailable
from ppa_core.placement.nodes import Node


@dataclass(frozen=True)
class Placement:
    """Nodes by task. `nodes` are all nodes of the cluster, including lost ones; every change takes the set of lost nodes."""

    nodes: tuple[Node, ...]
    plan: frozenset[str]
    primaries: dict[str, str]
    replicas: dict[str, str]
    checkpoints: dict[str, str]

    def moved(self, task: str, node: str, lost: Collection[str] = ()) -> Placement:
        """The placement with `node` as the task's home. Copies that would break the rules are moved."""
        board = _Board(replace(self, primaries={**self.primaries, task: node}), lost)
        board.settle([task])
        return board.placement()


def place(tasks: Sequence[str], nodes: Sequence[Node], plan: Collection[str]) -> Placement:
    """The initial placement: homes round-robin on the primary nodes, so that neighbouring tasks are in different racks."""
    homes = _in_turn([node for node in nodes if node.role == "primary"])
    if not homes:
        raise Unavailable("no primary node for the tasks; make at least one node primary")
    if len(nodes) < 2:
        raise Unavailable("only one node: no second node for checkpoints; add a standby node")
    _check_plan(tasks, plan)
    primaries = {task: homes[i % len(homes)].name for i, task in enumerate(tasks)}
    board = _Board(Placement(tuple(nodes), frozenset(plan), primaries, {}, {}), ())
    board.settle(tasks)
    return board.placement()


def rehome(placement: Placement, lost: Collection[str]) -> Placement:
    """The placement without the lost nodes (all nodes lost so far, not only the latest).

    A task whose home is lost moves to the node of its replica, else of its checkpoint, else to the standby (or if there is
    none, the primary) with the fewest tasks. Copies that are lost, or that now break the rules, are placed again; the others
    stay. Raises Unavailable if no node is left.
    """
    unknown = set(lost) - {node.name for node in placement.nodes}
    if unknown:
        raise RequestError(f"node {min(unknown)!r}", "not in the cluster")
    board = _Board(placement, lost)
    board.rehome()
    board.settle(list(placement.primaries))
    return board.placement()


def change_plan(placement: Placement, plan: Collection[str], lost: Collection[str] = ()) -> Placement:
    """The placement with replicas for exactly the plan's tasks. Everything else stays where possible."""
    _check_plan(placement.primaries, plan)
    kept = {task: node for task, node in placement.replicas.items() if task in set(plan)}
    board = _Board(replace(placement, plan=frozenset(plan), replicas=kept), lost)
    board.settle([task for task in placement.primaries if task in board.plan and task not in kept])
    return board.placement()


def _check_plan(tasks: Iterable[str], plan: Collection[str]) -> None:
    unknown = set(plan) - set(tasks)
    if unknown:
        raise RequestError(f"task {min(unknown)!r}", "in the plan, but not a task of this placement")


def _in_turn(nodes: Sequence[Node]) -> list[Node]:
    """The nodes in an order that alternates between racks, as far as the racks' sizes allow."""
    size = Counter(node.rack for node in nodes)
    seen: Counter[str] = Counter()
    turns = []
    for i, node in enumerate(nodes):
        turns.append(((seen[node.rack] + 0.5) / size[node.rack], list(size).index(node.rack), i))
        seen[node.rack] += 1
    return [nodes[i] for _, _, i in sorted(turns)]


@dataclass
class _Copies:
    """Copies of one kind, and how many each node has: in total, and of tasks from each home."""

    at: dict[str, str]
    count: Counter[str] = field(default_factory=Counter)
    shared: Counter[tuple[str, str]] = field(default_factory=Counter)

    def put(self, task: str, home: str, node: str) -> None:
        self.at[task] = node
        self.count[node] += 1
        self.shared[home, node] += 1


class _Board:
    """A placement while it changes."""

    def __init__(self, before: Placement, lost: Collection[str]) -> None:
        self.nodes, self.plan = before.nodes, before.plan
        self.alive = [node for node in before.nodes if node.name not in set(lost)]
        self.rack = {node.name: node.rack for node in before.nodes}
        self.host = {node.name: node.host for node in before.nodes}
        self.apart = sum(node.role == "standby" for node in self.alive) > 1
        self.homes = dict(before.primaries)
        self.replicas, self.checkpoints = _Copies({}), _Copies({})
        names = {node.name for node in self.alive}
        for copies, places in ((self.replicas, before.replicas), (self.checkpoints, before.checkpoints)):
            for task, node in places.items():
                if node in names:
                    copies.put(task, self.homes[task], node)

    def placement(self) -> Placement:
        replicas, checkpoints = (
            {t: copies.at[t] for t in self.homes if t in copies.at} for copies in (self.replicas, self.checkpoints)
        )
        return Placement(self.nodes, self.plan, self.homes, replicas, checkpoints)

    def rehome(self) -> None:
        names = {node.name for node in self.alive}
        homeless = [task for task, home in self.homes.items() if home not in names]
        kept = {task: self.replicas.at.get(task) or self.checkpoints.at.get(task) for task in homeless}
        self.homes.update((task, copy) for task, copy in kept.items() if copy)
        load = Counter(self.homes.values())
        for task in homeless:
            if not kept[task]:
                self.homes[task] = self._emptiest(task, load)
                load[self.homes[task]] += 1

    def _emptiest(self, task: str, load: Counter[str]) -> str:
        if not self.alive:
            raise Unavailable(f"no node left to run task {task}: all {len(self.nodes)} nodes are lost; restart the nodes")
        return min(self.alive, key=lambda node: (node.role != "standby", load[node.name])).name

    def settle(self, tasks: Collection[str]) -> None:
        """Place the copies of these tasks. Tasks with two copies come first, because they are harder to spread evenly."""
        for task in tasks:
            if task in self.plan:
                self._settle(task, self.replicas, self.checkpoints)
                self._settle(task, self.checkpoints, self.replicas)
        for task in tasks:
            if task not in self.plan:
                self._settle(task, self.checkpoints, self.replicas)

    def _settle(self, task: str, copies: _Copies, others: _Copies) -> None:
        home, other, now = self.homes[task], others.at.get(task), copies.at.pop(task, None)

        def trouble(name: str) -> tuple[bool, bool, bool, bool]:
            same_host, same_rack = self.host[name] == self.host[home], self.rack[name] == self.rack[home]
            return name == home, same_host, same_rack, self.apart and name == other

        least = min(trouble(node.name) for node in self.alive)
        if now and trouble(now) == least and now != home:
            copies.at[task] = now
            return
        if now:
            copies.count[now] -= 1
        if least[0]:
            return
        best = min(
            (node for node in self.alive if trouble(node.name) == least),
            key=lambda node: (
                node.role != "standby",
                node.name == other,
                copies.count[node.name],
                copies.shared[home, node.name],
                others.count[node.name],
            ),
        )
        copies.put(task, home, best.name)
