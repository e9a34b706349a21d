"""The writer of a run's records: they are written to Redis outside the data path.

`write` encodes a record, appends it to a bounded queue and returns; it never waits for Redis and never raises. One thread sends
many records in each round trip. While Redis is unavailable the queue fills up; when it is full, the oldest records are dropped
and counted. When Redis is available again, everything still queued is written.

The ids of stream entries are made by the writer from the records' times. So a record can be sent again if the connection broke
during the first attempt: if it had arrived, Redis rejects its id, and no record is stored twice. A Redis server that is killed
can lose writes that it has acknowledged, up to the last two seconds if the disk is busy. So recent records are kept, and those
that are missing from their stream after a reconnect are sent again.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from redis.client import Pipeline

from monitoring import keys
from monitoring.buffers import BoundedQueue, Item, RecentWrites
from monitoring.codec import dumps
from monitoring.connection import Address, Connection, MonitorDown, UnknownSchema
from monitoring.keys import Series
from monitoring.records import PipelineInfo, RunKey, WriterHealth
from monitoring.routes import routes
from ppa_core.errors import PpaError

MAX_RECORDS = 50_000
MAX_BYTES = 32 << 20
BATCH = 500
"""Records in one round trip."""
BACKOFF = (0.05, 2.0)
"""Seconds before the first and between later attempts to reconnect: doubled each time, from the first value to the second."""
HEALTH_EVERY = 1.0
IDLE = 5.0
"""Seconds after which the health is written even if there is nothing else to write."""
RENEW_EVERY = 600.0

_ID_TAKEN = "equal or smaller than the target stream top item"
_log = logging.getLogger(__name__)


class Writer:
    """Writes the records of one run. Threads may share it. `close` writes what is queued, within a timeout."""

    def __init__(
        self, address: Address, info: PipelineInfo, max_records: int = MAX_RECORDS, max_bytes: int = MAX_BYTES
    ) -> None:
        self.pipeline: RunKey = info.pipeline
        self.received = self.written = self.dropped = self.refused = 0
        self.trouble = ""
        """Why nothing can be written now; empty if there is no problem."""
        self.complaint = ""
        """Why the last refused record was refused."""
        self._connection = Connection(address, timeout=2.0)
        self._queue = BoundedQueue(max_records, max_bytes)
        self._in_flight: deque[Item] = deque()
        self._recent = RecentWrites()
        self._current: dict[str, bytes] = {}
        """The newest value of each field of the current state; all are written again after a reconnect."""
        self._changed: set[str] = set()
        """The fields that are not written yet."""
        self._minute = 0
        self._info = dumps(info)
        self._last: dict[str, tuple[int, int]] = {}
        self._expiring: set[str] = set()
        """The keys whose expiry was set since the last reconnect."""
        self._connected = self._unavailable = False
        self._health_at = self._renewed_at = -RENEW_EVERY
        self._wake = threading.Condition()
        self._closing = False
        self._deadline = 0.0
        self._thread = threading.Thread(target=self._run, name="ppa-monitor-writer", daemon=True)
        self._thread.start()

    def write(self, record: Any) -> None:
        """Queue a record of `records.py`. Anything that is not a record is counted as refused."""
        try:
            wanted, content = routes(record), dumps(record)
        except (TypeError, ValueError, OverflowError, RecursionError):
            wanted, content = (), b""
        with self._wake:
            self.received += 1
            if not wanted or self._closing:
                self.refused += not wanted
                self.dropped += bool(wanted)
                return
            for route in wanted:
                if route.field is not None:
                    self._current[route.field] = content
                    self._changed.add(route.field)
                elif route.series is not keys.TASK_MINUTES or self._first_of_minute(route.at):
                    self.dropped += self._queue.append(Item(route, content))
            self._wake.notify()

    def _first_of_minute(self, at: float) -> bool:
        before, self._minute = self._minute, int(at // 60)
        return before != self._minute

    def close(self, timeout: float = 5.0) -> bool:
        """Write what is queued and stop the thread. Whether everything was written in time; the rest is counted as dropped."""
        with self._wake:
            self._closing, self._deadline = True, time.monotonic() + timeout
            self._wake.notify()
        self._thread.join(timeout + 5.0)
        with self._wake:
            left = len(self._queue) + len(self._in_flight)
            self.dropped += left
            self._queue.clear()
            self._in_flight.clear()
        self._connection.close()
        return left == 0

    @property
    def waiting(self) -> int:
        """The number of queued records."""
        with self._wake:
            return len(self._queue) + len(self._in_flight)

    def health(self) -> WriterHealth:
        return WriterHealth(round(time.time(), 3), self.received, self.written, self.dropped, self.refused)

    # ------------------------------------------------------------------------------------------------------------ thread

    def _run(self) -> None:
        pause = BACKOFF[0]
        while True:
            with self._wake:
                while not (self._busy or self._unavailable or self._closing or time.monotonic() - self._health_at > IDLE):
                    self._wake.wait(1.0)
                if self._closing and (time.monotonic() > self._deadline or not self._busy):
                    break
            try:
                if not self._connected:
                    self._connect()
                self._flush()
                self.trouble, pause = "", BACKOFF[0]
            except PpaError as error:
                _log.info("the monitor cannot be written to", exc_info=True)
                self._connected, self._unavailable, self.trouble = False, True, str(error)
                if isinstance(error, UnknownSchema):
                    pause = BACKOFF[1]
                self._rest(pause)
                pause = min(2 * pause, BACKOFF[1])
            except Exception as error:  # noqa: BLE001 - a defect costs these records, not the following ones
                _log.exception("records were lost")
                self._connected, self.complaint = False, type(error).__name__
                self.refused += len(self._in_flight)
                self._in_flight.clear()
                self._rest(pause)
        if self._connected:
            with suppress(PpaError), self._connection.pipeline() as pipe:  # the final counts
                pipe.hset(keys.now(self.pipeline), "health", dumps(self.health()))
                self._connection.execute(pipe)

    @property
    def _busy(self) -> bool:
        return bool(len(self._queue) or self._in_flight or self._changed)

    def _rest(self, seconds: float) -> None:
        """Wait, but not longer than the timeout of `close`."""
        end = time.monotonic() + seconds
        with self._wake:
            while (left := min(end, self._deadline if self._closing else end) - time.monotonic()) > 0:
                self._wake.wait(left)

    def _connect(self) -> None:
        """Check or set the schema version, register the run, and read the last id of each stream."""
        connection = self._connection
        with connection.pipeline() as pipe:
            pipe.set(keys.SCHEMA_KEY, keys.SCHEMA, nx=True)
            pipe.get(keys.SCHEMA_KEY)
            taken, schema = connection.execute(pipe)
        connection.check_schema(schema)
        if schema is None or isinstance(taken, Exception):
            raise MonitorDown(f"the monitor at {connection.place} does not accept writes")
        with connection.pipeline() as pipe:
            for series in keys.SERIES:
                pipe.xrevrange(keys.series(self.pipeline, series), count=1)
            tops = connection.execute(pipe)
        ends: dict[str, tuple[int, int]] = {}
        for series, top in zip(keys.SERIES, tops, strict=True):
            ends[series.name] = end = _parsed(top[0][0]) if isinstance(top, list) and top else (0, 0)
            self._last[series.name] = max(end, self._last.get(series.name, end))
        self._expiring.clear()
        lost = self._recent.take_lost(ends)
        self.written -= len(lost)
        with self._wake:  # before all newer records
            self._in_flight.extendleft(reversed(lost))
        self._register()
        with self._wake:
            self._changed = set(self._current)
        self._connected, self._unavailable, self._renewed_at = True, False, -RENEW_EVERY

    def _register(self) -> None:
        """Add this run to the list of runs; if there are too many, remove those that were written longest ago."""
        with self._connection.pipeline() as pipe:
            pipe.zadd(keys.PIPELINES_KEY, {keys.member(self.pipeline): round(time.time(), 3)})
            pipe.zrange(keys.PIPELINES_KEY, 0, -keys.RUNS - 1)
            _, old = self._connection.execute(pipe)
        with self._connection.pipeline() as pipe:
            for member in old[: keys.RUNS] if isinstance(old, list) else ():  # bounded, in case others filled the list
                if known := keys.pipeline_of(member):
                    pipe.unlink(*keys.renewed_keys(known))
                pipe.zrem(keys.PIPELINES_KEY, member)
            pipe.set(keys.info(self.pipeline), self._info, ex=keys.EXPIRE)
            self._connection.execute(pipe)

    def _flush(self) -> None:
        """Write changed fields of the current state and the oldest queued records in one round trip."""
        with self._wake:
            while len(self._queue) and len(self._in_flight) < BATCH:
                self._in_flight.append(self._queue.popleft())
            current = {field: self._current[field] for field in self._changed}
            self._changed.clear()
        in_flight = list(self._in_flight)
        ends = []
        try:
            with self._connection.pipeline() as pipe:
                pipe.exists(keys.info(self.pipeline))
                for item in in_flight:
                    self._add(pipe, item)
                    ends.append(len(pipe))
                self._write_current(pipe, current)
                answers = self._connection.execute(pipe)
        except PpaError:
            for item in in_flight[: len(ends)]:
                item.sent = True
            raise
        known = answers[0]
        self._connected = bool(known)
        self._unavailable = not known  # if the monitor was emptied, the current state is written again
        begin, again = 1, []
        for item, end in zip(in_flight, ends, strict=True):
            if not self._settled(item, answers[begin:end]):
                again.append(item)
            begin = end
        self._in_flight.clear()
        if again:
            self._requeue(again)

    def _add(self, pipe: Pipeline, item: Item) -> None:
        """Add the commands that write one record."""
        if item.route.incident is not None:
            id_, since = item.route.incident
            order = keys.incidents(self.pipeline)
            pipe.set(keys.incident(self.pipeline, id_), item.content, ex=keys.EXPIRE)
            pipe.zadd(order, {id_: since})
            pipe.zremrangebyrank(order, 0, -keys.INCIDENTS - 1)
            self._expire(pipe, order)
            return
        series = item.route.series
        assert series is not None
        name = keys.series(self.pipeline, series)
        if item.id is None:
            item.id = self._next_id(series, item.route.at)
        pipe.xadd(name, {"r": item.content}, f"{item.id[0]}-{item.id[1]}", maxlen=series.cap)
        self._expire(pipe, name)

    def _expire(self, pipe: Pipeline, name: str) -> None:
        """Set the expiry with the first write to a key: the run may end before expiries are renewed."""
        if name not in self._expiring:
            self._expiring.add(name)
            pipe.expire(name, keys.EXPIRE)

    def _next_id(self, series: Series, at: float) -> tuple[int, int]:
        """The record's time, or the stream's last id plus one if the clock was set back."""
        last = self._last.get(series.name, (0, 0))
        self._last[series.name] = found = max((int(at * 1000), 0), (last[0], last[1] + 1))
        return found

    def _settled(self, item: Item, answers: list[Any]) -> bool:
        """Count the outcome of a write; False if another writer of the run used the id, so that the item needs a new one."""
        error = next((answer for answer in answers if isinstance(answer, Exception)), None)
        taken = error is not None and _ID_TAKEN in str(error)
        if error is None or (taken and item.sent):
            self.written += 1
            self._recent.add(item)
        elif taken:
            return False
        else:
            self.refused += 1
            self.complaint = str(error)[:200]
        return True

    def _requeue(self, items: list[Item]) -> None:
        """Put items back at the front of the queue; the reconnect reads the streams' last ids."""
        with self._wake:
            for item in reversed(items):
                item.id = None
                self._queue.appendleft(item)
        self._connected = False

    def _write_current(self, pipe: Pipeline, current: Mapping[Any, bytes]) -> None:
        """Add the commands that write the current state and the health, and from time to time renew the expiries."""
        now = time.monotonic()
        if now - self._health_at > HEALTH_EVERY:
            self._health_at = now
            current = {**current, "health": dumps(self.health())}
        if current:
            pipe.hset(keys.now(self.pipeline), mapping=current)
        if now - self._renewed_at > RENEW_EVERY:
            self._renewed_at = now
            pipe.zadd(keys.PIPELINES_KEY, {keys.member(self.pipeline): round(time.time(), 3)})
            for name in keys.renewed_keys(self.pipeline):
                pipe.expire(name, keys.EXPIRE)


def _parsed(id_: bytes) -> tuple[int, int]:
    milliseconds, _, number = id_.partition(b"-")
    return int(milliseconds), int(number)
