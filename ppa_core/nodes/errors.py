"""Errors of nodes.

PpaError
├── BadInput
│   └── LeaseLost       another driver with this name is running, or has taken over
├── NodeDown            the node does not answer
│   ├── NodeSlow        it does not answer in time
│   └── NodeDataLost    it answers, but its data is missing or damaged
└── NodeFull            its memory limit is reached
"""

from __future__ import annotations

from typing import Any

from ppa_core.errors import BadInput, PpaError


class NodeDown(PpaError):
    """A node does not answer, or not correctly; `node` is its name. `refused`: nobody listens there."""

    def __init__(self, node: str, reason: str, refused: bool = False) -> None:
        super().__init__(f"node {node} is down: {reason}")
        self.node = node
        self.reason = reason
        self.refused = refused

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.node, self.reason, self.refused)


class NodeSlow(NodeDown):
    """A node did not answer in time; it may be alive."""


class NodeDataLost(NodeDown):
    """Data that a node held before is missing or damaged."""


class NodeFull(PpaError):
    """A write of `size` bytes exceeds a node's memory limit. Nothing was written."""

    def __init__(self, node: str, size: int) -> None:
        super().__init__(
            f"node {node} is full: a write of {size:,} bytes did not fit; "
            "give the node more memory, add nodes, or checkpoint more often so that less is stored"
        )
        self.node = node
        self.size = size

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.node, self.size)


class LeaseLost(BadInput):
    """Another driver with this name is running, or has taken over."""

    def __init__(self, run: str) -> None:
        super().__init__(
            f"run {run!r}", "another driver runs it on these nodes; stop that driver first, or choose another --name"
        )
        self.run = run

    def __reduce__(self) -> tuple[type[LeaseLost], tuple[str]]:  # type: ignore[override]
        return LeaseLost, (self.run,)
