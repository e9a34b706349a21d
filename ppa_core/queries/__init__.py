"""The pipelines that ship, by name."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from ppa_core.errors import BadInput
from ppa_core.queries import q1, q2, tree
from ppa_core.runtime.pipeline import Pipeline

Accuracy = Callable[[pa.Table, pa.Table], float | None]
"""How much of an accurate output a tentative one has, from 0 to 1; None if there is nothing to compare."""


@dataclass(frozen=True)
class Query:
    """A pipeline that ships, and how its tentative output is measured against the accurate one."""

    name: str
    pipeline: Pipeline
    accuracy: Accuracy


QUERIES: dict[str, tuple[Callable[..., Pipeline], Accuracy]] = {
    "q1": (q1.q1, q1.accuracy),
    "q2": (q2.q2, q2.accuracy),
    "tree": (tree.tree, tree.accuracy),
}
"""What makes the pipeline of each query, and its accuracy."""


def load_query(name: str, **options: Any) -> Query:
    """The query of that name with the options that its maker takes; an unknown name or option is refused."""
    if name not in QUERIES:
        raise BadInput(f"query {name!r}", f"there is none of that name; there are: {', '.join(QUERIES)}")
    make, accuracy = QUERIES[name]
    known = inspect.signature(make).parameters
    for option in options:
        if option not in known:
            raise BadInput(f"query {name!r}, option {option!r}", f"there is no such option; there are: {', '.join(known)}")
    return Query(name, make(**options), accuracy)
