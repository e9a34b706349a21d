"""Sources made up by a function: the same seed, task and batch give the same tuples."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from ppa_core.errors import BadInput

Make = Callable[[np.random.Generator, int, int], "pa.Table | Mapping[str, Any]"]
"""(random, task, batch) to the tuples: a table, or columns by name. All chance comes from `random`."""


@dataclass(frozen=True)
class Generated:
    """A deterministic source from a function.

    >>> def throw(random, task, batch):
    ...     return {"die": random.integers(1, 7, 100)}
    >>> dice = Generated(pa.schema({"die": pa.int64()}), 100.0, throw, seed=7)
    >>> dice.read(0, 3) == dice.read(0, 3), dice.read(0, 3) == dice.read(1, 3)
    (True, False)
    """

    schema: pa.Schema
    tuples_per_second: float | tuple[float, ...]
    """Of each task: one number for all, or one for each."""
    make: Make
    seed: int = 0

    def __post_init__(self) -> None:
        if isinstance(self.tuples_per_second, Sequence):
            object.__setattr__(self, "tuples_per_second", tuple(self.tuples_per_second))
        if not callable(self.make):
            raise BadInput("generator", f"its make is {type(self.make).__name__}; it is a function of (random, task, batch)")
        if self.seed < 0:
            raise BadInput("generator", f"seed {self.seed} is negative")

    def rate(self, task: int) -> float:
        rates = self.tuples_per_second
        return rates[task] if isinstance(rates, tuple) else rates

    def read(self, task: int, batch: int) -> pa.Table:
        made = self.make(np.random.default_rng((self.seed, task, batch)), task, batch)
        place = f"generator, task {task}, batch {batch}"
        names = made.column_names if isinstance(made, pa.Table) else list(made) if isinstance(made, Mapping) else None
        if names is None:
            raise BadInput(place, f"its function returned {type(made).__name__}; a table or columns by name are wanted")
        if sorted(names) != sorted(self.schema.names):
            raise BadInput(
                place, f"its function made the columns {', '.join(names)}, the schema has {', '.join(self.schema.names)}"
            )
        try:
            if isinstance(made, pa.Table):
                return made.select(self.schema.names).cast(self.schema)
            return pa.table({name: made[name] for name in self.schema.names}, schema=self.schema)
        except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as error:
            raise BadInput(place, f"what its function made does not fit the schema: {error}") from error
