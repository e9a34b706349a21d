"""What a node holds, as tests look at it; and rules for servers that are not nodes."""

from __future__ import annotations

import re

from ppa_core.nodes.format import manifests_key
from ppa_core.nodes.store import Store

EVERYTHING = "~* &* +@all"
"""The rules of a user who may do everything: for servers that a test uses as source, sink or monitor."""


def versions(store: Store, task: str) -> set[tuple[int, int]]:
    """All (batch, attempt) of the task that the node holds."""
    fields = store._client.hkeys(manifests_key(store.run, task))
    found = (re.fullmatch(rb"(-?\d{1,18}):(\d{1,18})", field) for field in fields)
    return {(int(one[1]), int(one[2])) for one in found if one}


def output(store: Store, task: str, batch: int, attempt: int) -> bytes | None:
    """The output of one task, batch and attempt; None if the node does not hold it."""
    return store.outputs([(task, batch, attempt)])[0]
