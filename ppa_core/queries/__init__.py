"""The built-in queries by name, and loading of users' own pipelines."""

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
"""Compares a tentative output with the accurate one: from 0 to 1, or None if there is nothing to compare."""


@dataclass(frozen=True)
class Query:
    """A pipeline, and how the accuracy of its tentative outputs is measured."""

    name: str
    pipeline: Pipeline
    accuracy: Accuracy
    also: Mapping[str, Accuracy] = field(default_factory=dict)
    """Other measures by name, reported in addition to the accuracy."""


QUERIES: dict[str, tuple[Callable[..., Pipeline], Accuracy]] = {
    "q1": (q1.q1, q1.accuracy),
    "q2": (q2.q2, q2.accuracy),
    "tree": (tree.tree, tree.accuracy),
}
"""For each query, the function that creates its pipeline, and its accuracy."""

ALSO: dict[str, dict[str, Accuracy]] = {"q1": {"pages_named": q1.named}}
"""By query: its other measures."""


def load_query(name: str, **options: Any) -> Query:
    """Load the query of that name with these options. Raises BadInput for an unknown name or option.

    `FILE.py:FUNCTION` or `MODULE:FUNCTION` is a user's own function that returns a pipeline. A function `accuracy` in the same
    module measures the accuracy of tentative outputs; by default it is the share of the accurate rows that are in the tentative
    output.
    """
    make, accuracy = load_own(name) if ":" in name else _shipped(name)
    known = inspect.signature(make).parameters
    takes_all = any(parameter.kind is parameter.VAR_KEYWORD for parameter in known.values())
    for option in options:
        if option not in known and not takes_all:
            has = f"the options are: {', '.join(known)}" if known else "the query has no options"
            raise BadInput(f"query {name!r}, option {option!r}", f"unknown option; {has}")
    try:
        pipeline = make(**options)
    except PpaError:
        raise
    except Exception as error:
        reason = f"{type(error).__name__}: {without_secrets(str(error), options)}"
        raise BadInput(f"query {name!r}", f"cannot be created with {shown_options(options)}: {reason}") from error
    if not isinstance(pipeline, Pipeline):
        raise BadInput(f"query {name!r}", f"the function returned {type(pipeline).__name__}, not a Pipeline")
    return Query(pipeline.name if ":" in name else name, pipeline, accuracy, ALSO.get(name, {}))


def _shipped(name: str) -> tuple[Callable[..., Pipeline], Accuracy]:
    if name not in QUERIES:
        own = "or FILE.py:FUNCTION for your own"
        raise BadInput(f"query {name!r}", f"unknown query; choose one of {', '.join(QUERIES)}, {own}")
    return QUERIES[name]
