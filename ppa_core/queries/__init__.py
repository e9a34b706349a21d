"""The pipelines that ship, by name."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from ppa_core.errors import BadInput, PpaError
from ppa_core.pipeline.definition import Pipeline
from ppa_core.queries import q1, q2, tree
from ppa_core.queries.own import load_own
from ppa_core.safety.masking import shown_options, without_secrets

Accuracy = Callable[[pa.Table, pa.Table], float | None]
"""How much of an accurate output a tentative one has, from 0 to 1; None if there is nothing to compare."""


@dataclass(frozen=True)
class Query:
    """A pipeline that ships, and how its tentative output is measured against the accurate one."""

    name: str
    pipeline: Pipeline
    accuracy: Accuracy
    also: Mapping[str, Accuracy] = field(default_factory=dict)
    """Other measures by name, told beside the accuracy."""


QUERIES: dict[str, tuple[Callable[..., Pipeline], Accuracy]] = {
    "q1": (q1.q1, q1.accuracy),
    "q2": (q2.q2, q2.accuracy),
    "tree": (tree.tree, tree.accuracy),
}
"""What makes the pipeline of each query, and its accuracy."""

ALSO: dict[str, dict[str, Accuracy]] = {"q1": {"pages_named": q1.named}}
"""By query: its other measures."""


def load_query(name: str, **options: Any) -> Query:
    """The query of that name with the options that its maker takes; an unknown name or option is refused.

    `FILE.py:FUNCTION` or `MODULE:FUNCTION` is a user's own: a function that returns a pipeline. A function `accuracy` beside it
    measures tentative outputs; without one it is the share of the accurate rows that the tentative output has.
    """
    make, accuracy = load_own(name) if ":" in name else _shipped(name)
    known = inspect.signature(make).parameters
    takes_all = any(parameter.kind is parameter.VAR_KEYWORD for parameter in known.values())
    for option in options:
        if option not in known and not takes_all:
            has = f"there are: {', '.join(known)}" if known else "it takes none"
            raise BadInput(f"query {name!r}, option {option!r}", f"there is no such option; {has}")
    try:
        pipeline = make(**options)
    except PpaError:
        raise
    except Exception as error:
        reason = f"{type(error).__name__}: {without_secrets(str(error), options)}"
        raise BadInput(f"query {name!r}", f"cannot be made with {shown_options(options)}: {reason}") from error
    if not isinstance(pipeline, Pipeline):
        raise BadInput(f"query {name!r}", f"the function returned {type(pipeline).__name__}, not a Pipeline")
    return Query(pipeline.name if ":" in name else name, pipeline, accuracy, ALSO.get(name, {}))


def _shipped(name: str) -> tuple[Callable[..., Pipeline], Accuracy]:
    if name not in QUERIES:
        own = "or FILE.py:FUNCTION for your own"
        raise BadInput(f"query {name!r}", f"there is none of that name; there are: {', '.join(QUERIES)}, {own}")
    return QUERIES[name]
