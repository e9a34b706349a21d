"""Generated traffic for query Q2: users on road segments send their speed and report incidents; some incidents cause jams.

Everything is a function of the seed and of (task, batch) of a stream, or of the number of an incident.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ppa_core.errors import BadInput
from ppa_core.pipeline.streams import mix

Ints = NDArray[np.int64]

LOCATIONS = pa.schema({"user": pa.int64(), "segment": pa.int64(), "speed": pa.int64()})
REPORTS = pa.schema({"incident": pa.int64(), "segment": pa.int64(), "user": pa.int64()})
FREE_SPEEDS = range(50, 81)
"""km/h where there is no jam; each segment has its own."""
JAM_SPEED = 8
DEVIATION = 5
"""How far a user's speed is from that of the segment, at most."""


@dataclass(frozen=True)
class Roads:
    """`users` on `segments` by Zipf's law with s = 0.5, and an incident every `incident_seconds`, numbered from 0.

    An incident is on the segment of a user taken at random, so on each in proportion to its users. Half of the incidents cause
    a jam of `jam_seconds` there.
    """

    users: int
    segments: int
    incident_seconds: float
    jam_seconds: float
    batch_seconds: float
    seed: int = 0

    def __post_init__(self) -> None:
        times = f"an incident every {self.incident_seconds} s, jams of {self.jam_seconds} s, batches of {self.batch_seconds} s"
        if not 1 <= self.segments <= self.users:
            raise BadInput(
                "traffic",
                f"{self.users} users on {self.segments} segments; give at least one segment, and at least as many users",
            )
        if not (self.incident_seconds > 0 and self.jam_seconds > 0 and self.batch_seconds > 0 and self.seed >= 0):
            raise BadInput("traffic", f"{times}, seed {self.seed}; times must be positive, the seed must not be negative")

    @property
    def mean_reports(self) -> float:
        """The reports of an incident, on average."""
        users = np.bincount(self.segment_of_user)
        return float((users**2).sum() / users.sum())

    @property
    def segment_of_user(self) -> Ints:
        return _homes(self.users, self.segments)

    def incidents(self, first: int, end: int) -> Ints:
        """The incidents that happen from batch `first` to before batch `end`."""
        begin, stop = (int(max(batch, 0) * self.batch_seconds / self.incident_seconds) for batch in (first, end))
        return np.arange(begin, stop)

    def segment_of_incident(self, incidents: Ints) -> Ints:
        users = self._random(incidents, 1) % np.uint64(self.users)
        return np.asarray(self.segment_of_user[users.astype(np.int64)])

    def causes_jam(self, incidents: Ints) -> NDArray[np.bool_]:
        return np.asarray(self._random(incidents, 2) % np.uint64(2) == 0)

    def speeds(self, batch: int) -> Ints:
        """The speed on each segment in a batch. A jam begins with the batch of its incident."""
        recent = self.incidents(batch + 1 - round(self.jam_seconds / self.batch_seconds), batch + 1)
        speeds = FREE_SPEEDS.start + (mix(np.arange(self.segments, dtype=np.uint64)) % np.uint64(len(FREE_SPEEDS))).astype(
            np.int64
        )
        speeds[self.segment_of_incident(recent[self.causes_jam(recent)])] = JAM_SPEED
        return speeds

    def _random(self, numbers: Ints, purpose: int) -> NDArray[np.uint64]:
        return mix(numbers.astype(np.uint64) ^ mix(np.array([4 * self.seed + purpose], np.uint64)))


@dataclass(frozen=True)
class Locations:
    """Where users, taken at random, are and how fast: `tuples_per_second` a task; user u belongs to task u mod `tasks`."""

    roads: Roads
    tasks: int
    tuples_per_second: float

    def __post_init__(self) -> None:
        _check_tasks("locations", self.tasks, self.roads)
        if not self.tuples_per_second >= 0:
            raise BadInput("locations", f"{self.tuples_per_second} tuples/s; it must not be negative")

    @property
    def schema(self) -> pa.Schema:
        return LOCATIONS

    def rate(self, task: int) -> float:
        return self.tuples_per_second

    def read(self, task: int, batch: int) -> pa.Table:
        first, end = (int(self.tuples_per_second * self.roads.batch_seconds * b) for b in (batch, batch + 1))
        random = np.random.default_rng((self.roads.seed, task, batch))
        users = random.integers(0, -(-(self.roads.users - task) // self.tasks), end - first) * self.tasks + task
        segments = self.roads.segment_of_user[users]
        speeds = self.roads.speeds(batch)[segments] + random.integers(-DEVIATION, DEVIATION + 1, end - first)
        return pa.Table.from_arrays([pa.array(column) for column in (users, segments, speeds)], schema=LOCATIONS)


@dataclass(frozen=True)
class Reports:
    """All users of its segment report an incident in the batch in which it happens; user u belongs to task u mod `tasks`."""

    roads: Roads
    tasks: int

    def __post_init__(self) -> None:
        _check_tasks("incidents", self.tasks, self.roads)

    @property
    def schema(self) -> pa.Schema:
        return REPORTS

    def rate(self, task: int) -> float:
        return self.roads.mean_reports / self.roads.incident_seconds / self.tasks

    def read(self, task: int, batch: int) -> pa.Table:
        incidents = self.roads.incidents(batch, batch + 1)
        homes = self.roads.segment_of_user
        users = [np.flatnonzero(homes == segment) for segment in self.roads.segment_of_incident(incidents)]
        mine = [some[some % self.tasks == task] for some in users]
        number = np.repeat(incidents, [len(some) for some in mine])
        user = np.concatenate([np.zeros(0, np.int64), *mine])
        return pa.Table.from_arrays([pa.array(column) for column in (number, homes[user], user)], schema=REPORTS)


@lru_cache(maxsize=4)
def _homes(users: int, segments: int) -> Ints:
    """The segment of each user: the k-th, counted from 1, has a share in proportion to 1/√k of them."""
    shares = np.cumsum(1 / np.sqrt(np.arange(1, segments + 1)))
    homes = np.searchsorted(np.round(shares / shares[-1] * users), np.arange(users), side="right")
    homes.flags.writeable = False
    return homes


def _check_tasks(name: str, tasks: int, roads: Roads) -> None:
    if not 1 <= tasks <= roads.users:
        raise BadInput(name, f"{tasks} tasks for {roads.users} users; give at least one task, and at least one user for each")
