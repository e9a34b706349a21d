"""Errors of nodes.

PpaError
├── NodeDown            the node does not answer
│   ├── NodeSlow        it does not answer in time
│   └── NodeDataLost    it answers, but its data is missing or damaged
└── NodeFull            its memory limit is reached
"""

from __future__ import annotations

from typing import Any

from ppa_core.errors import PpaError


class NodeDown(PpaError):
    """A node does not answer, or not correctly; `node` is its name."""

    def __init__(self, node: str, reason: str) -> None:
        super().__init__(f"node {node} is down: {reason}")
        self.node = node
        self.reason = reason

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.node, self.reason)


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
