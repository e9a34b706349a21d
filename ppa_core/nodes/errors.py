"""What can be wrong with a node.

PpaError
├── NodeDown      the node does not answer
│   ├── NodeSlow      not in time
│   └── NodeDataLost    it answers, but lacks what it was given, or has it damaged
└── NodeFull      the node's memory is at its bound
"""

from __future__ import annotations

from typing import Any

from ppa_core.errors import PpaError


class NodeDown(PpaError):
    """A node that does not answer as it should; `node` is its name."""

    def __init__(self, node: str, reason: str) -> None:
        super().__init__(f"node {node} is down: {reason}")
        self.node = node
        self.reason = reason

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.node, self.reason)


class NodeSlow(NodeDown):
    """A node that did not answer in time; it may be alive."""


class NodeDataLost(NodeDown):
    """A node that lacks what it had before, as segments that a writer left out, or has it damaged."""


class NodeFull(PpaError):
    """A write of `size` bytes that a node's memory bound refused. Nothing of it was written."""

    def __init__(self, node: str, size: int) -> None:
        super().__init__(
            f"node {node} is full: a write of {size:,} bytes did not fit; "
            "give the node more memory, add nodes, or checkpoint more often so that less is kept"
        )
        self.node = node
        self.size = size

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.node, self.size)
