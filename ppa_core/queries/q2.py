"""The paper's query Q2: the traffic incidents of the last minutes that cause jams.

O1 computes the mean speed on each segment over the window, O2 combines all reports of an incident in the window. O3 joins the
two by segment and keeps the incidents on slow segments; O4 collects them. Only O1 and O2 have windows, and they send their
complete results with every slide: so the results of a lost task are missing downstream at once, and are back when the task has
recovered.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ppa_core.errors import BadInput
from ppa_core.pipeline import operators as op
from ppa_core.pipeline.definition import Context, Pipeline, Result
from ppa_core.queries.traffic import Locations, Reports, Roads

JAM_BELOW = 40.0
"""km/h: a segment whose mean speed over the window is less has a jam."""
_FOUND = 0.35
"""Approximate share of the incidents in a window on a segment with a jam: half cause one, and the mean speed falls slowly."""


def q2(
    rate: float = 5000,
    window: float = 300.0,
    batch_seconds: float = 1.0,
    slide: float = 10.0,
    tasks: Sequence[int] = (4, 2, 8, 4, 8, 1),
    users: int = 100_000,
    segments: int = 1000,
    incident_seconds: float = 2.0,
    seed: int = 0,
) -> Pipeline:
    """The incidents of the last `window` seconds on segments with a jam, every `slide` seconds.

    `rate` is tuples/s of each task of the locations; an incident every `incident_seconds` is reported by all on its segment.
    A jam lasts as long as the window. `tasks` are those of locations, incidents, O1, O2, O3 and O4.
    """
    _check(rate, window, slide, tasks)
    roads = Roads(users, segments, incident_seconds, window, batch_seconds, seed)
    locations, reports = Locations(roads, tasks[0], rate), Reports(roads, tasks[1])
    sliding, each_slide = op.sliding(window, every=slide), op.tumbling(slide)
    speeds, incidents = segments / slide, window / incident_seconds / slide
    return (
        Pipeline("q2", batch_seconds)
        .source("locations", tasks[0], locations)
        .source("incidents", tasks[1], reports)
        .operator(
            "O1",
            tasks[2],
            {"locations": ("full", "segment")},
            op.mean("speed", by="segment", window=sliding, name="speed"),
            selectivity=speeds / (rate * tasks[0]),
        )
        .operator(
            "O2",
            tasks[3],
            {"incidents": ("full", "segment")},
            op.aggregate(by=("incident", "segment"), window=sliding, reports=op.Count()),
            selectivity=incidents / (roads.mean_reports / incident_seconds),
        )
        .operator(
            "O3",
            tasks[4],
            {"O1": "one-to-one", "O2": ("split", "segment")},
            Jams(op.join("segment", each_slide)),
            selectivity=_FOUND * incidents / (speeds + incidents),
        )
        .operator(
            "O4",
            tasks[5],
            {"O3": "merge"},
            op.aggregate(by=("incident", "segment"), window=each_slide, speed=op.Min("speed"), reports=op.Sum("reports")),
        )
    )


def accuracy(tentative: pa.Table, accurate: pa.Table) -> float | None:
    """The share of the accurate output's incidents that the tentative one has: |I_T ∩ I_A| ÷ |I_A|; 1 of no incidents.

    None if neither has any, as in all batches that end no slide: there is nothing to compare.
    """
    if not accurate.num_rows:
        return 1.0 if tentative.num_rows else None
    return float(np.isin(accurate["incident"].to_numpy(), tentative["incident"].to_numpy()).sum() / accurate.num_rows)


@dataclass(frozen=True)
class Jams:
    """What `joined` finds on segments whose `speed` is below that of a jam."""

    joined: op.Join

    correlated: ClassVar[bool] = True

    @property
    def keyed_by(self) -> tuple[str, ...]:
        return self.joined.keyed_by

    def output_schema(self, inputs: Sequence[pa.Schema]) -> pa.Schema:
        return self.joined.output_schema(inputs)

    def lookback_batches(self, batch_seconds: float) -> int:
        return self.joined.lookback_batches(batch_seconds)

    def __call__(self, context: Context, state: Mapping[str, pa.Table], inputs: Sequence[pa.Table], /) -> Result:
        result = self.joined(context, state, inputs)
        return replace(result, output=result.output.filter(pc.less(result.output["speed"], JAM_BELOW)))


def _check(rate: float, window: float, slide: float, tasks: Sequence[int]) -> None:
    place = "query 'q2'"
    if not (rate > 0 and window > 0 and slide > 0):
        raise BadInput(place, f"rate {rate}, window {window} s, slide {slide} s; all must be positive")
    if len(tasks) != 6 or min(tasks) < 1:
        raise BadInput(place, f"tasks {tuple(tasks)}; give six positive numbers, for locations, incidents and O1 to O4")
    if tasks[4] % tasks[3]:  # only then do the segments of a task of O2 meet their speeds
        raise BadInput(
            place, f"{tasks[3]} tasks of O2 and {tasks[4]} of O3; the number for O3 must be a multiple of that for O2"
        )
