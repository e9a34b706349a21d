"""Generated requests like those of day 66 of the World Cup log (30 June 1998), for users who do not have the log.

The rate per half hour and the load of each server are those of the log; objects and clients have the same skew.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ppa_core.errors import BadInput
from ppa_core.pipeline.sources.worldcup98 import RECORD, SCHEMA, SERVERS, UNKNOWN_SIZE, slots, to_table
from ppa_core.pipeline.streams import mix

DAY_SECONDS = 86_400
DAY_START = 899_157_600
"""1998-06-29 22:00 UTC, midnight in Paris: when the log of day 66 begins."""

REQUESTS = (
    702744, 627162, 596258, 569297, 582459, 569515, 537724, 484392, 458988, 432189, 431204, 425639,
    390317, 370059, 370435, 407759, 454726, 485313, 483267, 485393, 469917, 475031, 483306, 476704,
    481153, 506602, 533055, 562320, 617981, 673817, 755911, 808684, 996031, 2358603, 3602636, 4124350,
    4602187, 3497302, 2706045, 2380844, 2259445, 2233680, 3270355, 4035821, 4313921, 5098595, 5428680, 5674052,
)  # fmt: skip
"""Requests in each half hour from DAY_START: the log's requests per minute, summed by thirty; the 129 requests of the minute
after the day count to the last half hour. They add up to 73,291,868."""

LOADS = (
    289, 305, 265, 269, 302, 309, 212, 312, 379, 361, 393, 488, 413, 378, 242, 470, 258, 343, 250, 269,
    351, 198, 264, 256, 281, 252, 599, 592, 700,
)  # fmt: skip
"""Of 10,000 requests, how many each of SERVERS had: counted in the first 10,000 of the log wc_day50_4."""

# The tables below are counted in the same 10,000 requests.
_STATUSES = {66: 6009, 130: 2819, 77: 710, 141: 392, 83: 40, 147: 19, 72: 7, 75: 2, 211: 2}
_NOT_MODIFIED = (77, 141)
"""Answers without content: their size is unknown (66 %) or 0."""
_METHODS = {0: 9986, 1: 10, 2: 4}
_TYPES = {1: 8683, 0: 991, 12: 108, 10: 98, 4: 91, 8: 13, 6: 9, 2: 7}
_SIZES = (
    41, 85, 104, 169, 201, 243, 298, 352, 388, 428, 494, 686, 781, 852, 889, 929, 945, 1005, 1125, 1272,
    1340, 1500, 1644, 1991, 2240, 2838, 4079, 4930, 6613, 10103, 13106, 23047,
)  # fmt: skip
"""The sizes that are known and not 0, in 32 equal shares."""

OBJECTS, CLIENTS = 20_000, 50_000
_OBJECT_SKEW, _CLIENT_SKEW = (90.0, 2), (500.0, 4)
"""(q, s) of the share 1/(rank + q)^s: chosen to have the sample's numbers of distinct objects and clients, and its top ones.
The shares become thresholds in whole numbers, so that every machine draws the same."""


@dataclass(frozen=True)
class Day66:
    """Deterministic requests with the log's schema; task i has the servers whose slot modulo `tasks` is i.

    Batch b has the requests of `batch_seconds · speedup` seconds of the day; after its last half hour the day starts again,
    with later times. `share` scales the number of requests. With the default speed-up all tasks together have about 41,000
    requests/s.
    """

    tasks: int = len(SERVERS)
    batch_seconds: float = 1.0
    speedup: float = 48.0
    share: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        if self.tasks < 1 or not (self.batch_seconds > 0 and self.speedup > 0 and self.share >= 0 and self.seed >= 0):
            reason = f"{self.tasks} tasks, batches of {self.batch_seconds} s, speed-up {self.speedup}, share {self.share}"
            raise BadInput(
                "source 'day66'", f"{reason}, seed {self.seed}; none may be negative, and the first three must be positive"
            )

    @property
    def schema(self) -> pa.Schema:
        return SCHEMA

    def rate(self, task: int) -> float:
        """The average over the day."""
        load = sum(LOADS[slot] for slot in self._slots(task))
        return load / sum(LOADS) * sum(REQUESTS) / DAY_SECONDS * self.speedup * self.share

    def read(self, task: int, batch: int) -> pa.Table:
        window = self.batch_seconds * self.speedup
        slots_here = self._slots(task)
        counts = [self._until(slot, (batch + 1) * window) - self._until(slot, batch * window) for slot in slots_here]
        total = sum(counts)
        random = np.random.default_rng((self.seed, task, batch))
        drawn = random.integers(0, 1 << 32, (4, total), np.uint32)
        made = np.zeros(total, RECORD)
        made["timestamp"] = DAY_START + ((batch + (np.arange(total) + 0.5) / max(total, 1)) * window).astype(np.int64)
        made["server"] = np.repeat(np.array(SERVERS, np.uint8)[slots_here], counts)
        if len(slots_here) > 1:
            made["server"] = random.permutation(made["server"])
        made["client"] = _ranks(*_CLIENT_SKEW, CLIENTS, drawn[0])
        made["object"] = _ranks(*_OBJECT_SKEW, OBJECTS, drawn[1])
        made["method"] = _pick(tuple(_METHODS.items()))[drawn[2] % 10_000]
        made["status"] = _pick(tuple(_STATUSES.items()))[drawn[3] % 10_000]
        traits = _objects()
        made["type"], made["size"] = traits[0][made["object"]], traits[1][made["object"]]
        empty = np.isin(made["status"], _NOT_MODIFIED)
        made["size"][empty] = np.where(drawn[2][empty] % 3, UNKNOWN_SIZE, 0)
        return to_table(made)

    def _slots(self, task: int) -> list[int]:
        return [slot for slot, server in enumerate(SERVERS) if slots(self.tasks)[server] == task]

    def _until(self, slot: int, seconds: float) -> int:
        """The requests of a server from the start until then."""
        days, rest = divmod(seconds, DAY_SECONDS)
        half_hours = rest / 1800
        done = sum(REQUESTS[: int(half_hours)]) + (half_hours % 1) * REQUESTS[int(half_hours)]
        return int((days * sum(REQUESTS) + done) * LOADS[slot] / sum(LOADS) * self.share)


def _ranks(q: float, s: int, count: int, drawn: NDArray[np.uint32]) -> NDArray[np.int64]:
    """Ranks from 0, each with the share 1/(rank + 1 + q)^s, for numbers drawn evenly."""
    return np.searchsorted(_thresholds(q, s, count), drawn, side="right")


@lru_cache(maxsize=4)
def _thresholds(q: float, s: int, count: int) -> NDArray[np.uint32]:
    shares = 1 / (np.arange(1, count + 1) + q) ** s
    return np.minimum(np.round(np.cumsum(shares / shares.sum()) * 2**32), 2**32 - 1).astype(np.uint32)[:-1]


@lru_cache(maxsize=8)
def _pick(parts: tuple[tuple[int, int], ...]) -> NDArray[np.uint8]:
    """A table to look a value up by a number below 10,000; `parts` are values and how many of the 10,000 they have."""
    values, counts = zip(*parts, strict=True)
    return np.repeat(np.array(values, np.uint8), counts)


@lru_cache(maxsize=1)
def _objects() -> tuple[NDArray[np.uint8], NDArray[np.uint32]]:
    """The type and the size of each object: a request does not change them."""
    hashes = mix(np.arange(OBJECTS, dtype=np.uint64))
    types = _pick(tuple(_TYPES.items()))[hashes % np.uint64(10_000)]
    return types, np.array(_SIZES, np.uint32)[(hashes >> np.uint64(59)).astype(np.int64)]
