"""A `Writer`: records go to Redis off the data path.

`tell` encodes a record, puts it into a bounded queue and returns: it never waits for Redis and never raises. One thread writes,
many records to a round trip. While Redis is away the queue fills to its bound, then the oldest records are dropped and counted;
when Redis is back, everything still queued is written.

Ids of a stream are the records' times, made by the writer. So a record whose first write was cut off can be sent again: if it
had arrived, its id is refused, and nothing is there twice. A Redis that is killed may have lost what it acknowledged last, up
to two seconds where the disk is busy: so that much is kept, and what a stream lacks of it is sent again.
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
from monitoring.codec import dumps
from monitoring.connection import Address, Connection, MonitorDown, UnknownSchema
from monitoring.keys import Series
from monitoring.recent import Item, RecentWrites
from monitoring.records import PipelineInfo, RunKey, WriterHealth
from monitoring.routes import routes
from ppa_core.errors import PpaError

MOST_RECORDS = 50_000
MOST_BYTES = 32 << 20
BATCH = 500
"""Records to a round trip."""
BACKOFF = (0.05, 2.0)
"""Seconds before the first new attempt to connect, and at most; doubled in between."""
HEALTH_EVERY = 1.0
IDLE = 5.0
"""Seconds after which a sign of life is written, even if there is nothing else to write."""
RENEW_EVERY = 600.0

_ID_TAKEN = "equal or smaller than the target stream top item"
_log = logging.getLogger(__name__)


class Writer:
    """Writes the records of one run. Any thread may tell; `close` writes what is left, within a time."""

    def __init__(self, address: Address, info: PipelineInfo, most: int = MOST_RECORDS, most_bytes: int = MOST_BYTES) -> None:
        self.pipeline: RunKey = info.pipeline
        self.told = self.written = self.dropped = self.refused = 0
        self.trouble = ""
        """Why nothing is written now; empty while all is well."""
        self.complaint = ""
        """Why a record was refused last."""
        self._most, self._most_bytes = most, most_bytes
        self._connection = Connection(address, timeout=2.0)
        self._queue: deque[Item] = deque()
        self._bytes = 0
        self._flying: deque[Item] = deque()
        self._recent = RecentWrites()
        self._current: dict[str, bytes] = {}
        """The newest value of everything that has a current one: written again at every connection."""
        self._changed: set[str] = set()
        """Those of them that are not written yet."""
        self._minute = 0
        self._info = dumps(info)
        self._last: dict[str, tuple[int, int]] = {}
        self._expiring: set[str] = set()
        """The keys that were given their expiry, at this connection."""
        self._connected = self._away = False
        self._health_at = self._renewed_at = -RENEW_EVERY
        self._wake = threading.Condition()
        self._closing = False
        self._deadline = 0.0
        self._thread = threading.Thread(target=self._run, name="ppa-monitor-writer", daemon=True)
        self._thread.start()

    def tell(self, record: Any) -> None:
        """Queue a record of `records.py`; what cannot be kept is counted as refused."""
        try:
            wanted, content = routes(record), dumps(record)
        except (TypeError, ValueError, OverflowError, RecursionError):
            wanted, content = (), b""
        with self._wake:
            self.told += 1
            if not wanted or self._closing:
                self.refused += not wanted
                self.dropped += bool(wanted)
                return
            for route in wanted:
                if route.field is not None:
                    self._current[route.field] = content
                    self._changed.add(route.field)
                elif route.series is not keys.TASK_MINUTES or self._first_of_minute(route.at):
                    self._push(Item(route, content))
            self._wake.notify()

    def _first_of_minute(self, at: float) -> bool:
        before, self._minute = self._minute, int(at // 60)
        return before != self._minute

    def _push(self, item: Item) -> None:
        self._queue.append(item)
        self._bytes += len(item.content)
        while len(self._queue) > self._most or self._bytes > self._most_bytes:
            self._bytes -= len(self._queue.popleft().content)
            self.dropped += 1

    def close(self, timeout: float = 5.0) -> bool:
        """Write what is queued, for at most so long, and end. Whether everything was written; the rest counts as dropped."""
        with self._wake:
            self._closing, self._deadline = True, time.monotonic() + timeout
            self._wake.notify()
        self._thread.join(timeout + 5.0)
        with self._wake:
            left = len(self._queue) + len(self._flying)
            self.dropped += left
            self._queue.clear()
            self._flying.clear()
            self._bytes = 0
        self._connection.close()
        return left == 0

    @property
    def waiting(self) -> int:
        """Records that are queued."""
        with self._wake:
            return len(self._queue) + len(self._flying)

    def health(self) -> WriterHealth:
        return WriterHealth(round(time.time(), 3), self.told, self.written, self.dropped, self.refused)

    # ------------------------------------------------------------------------------------------------------------ thread

    def _run(self) -> None:
        pause = BACKOFF[0]
        while True:
            with self._wake:
                while not (self._busy or self._away or self._closing or time.monotonic() - self._health_at > IDLE):
                    self._wake.wait(1.0)
                if self._closing and (time.monotonic() > self._deadline or not self._busy):
                    break
            try:
                if not self._connected:
                    self._connect()
                self._flush()
                self.trouble, pause = "", BACKOFF[0]
            except PpaError as error:
                _log.info("the monitor takes nothing", exc_info=True)
                self._connected, self._away, self.trouble = False, True, str(error)
                if isinstance(error, UnknownSchema):
                    pause = BACKOFF[1]
                self._rest(pause)
                pause = min(2 * pause, BACKOFF[1])
            except Exception as error:  # noqa: BLE001 - a defect here costs the records at hand, never those that follow
                _log.exception("records were lost")
                self._connected, self.complaint = False, type(error).__name__
                self.refused += len(self._flying)
                self._flying.clear()
                self._rest(pause)
        if self._connected:
            with suppress(PpaError), self._connection.pipeline() as pipe:  # the last word: what it all came to
                pipe.hset(keys.now(self.pipeline), "health", dumps(self.health()))
                self._connection.execute(pipe)

    @property
    def _busy(self) -> bool:
        return bool(self._queue or self._flying or self._changed)

    def _rest(self, seconds: float) -> None:
        """Wait, but not beyond the time that `close` gave."""
        end = time.monotonic() + seconds
        with self._wake:
            while (left := min(end, self._deadline if self._closing else end) - time.monotonic()) > 0:
                self._wake.wait(left)

    def _connect(self) -> None:
        """Say what is kept here, make the run known, and find out where each stream ends."""
        connection = self._connection
        with connection.pipeline() as pipe:
            pipe.set(keys.SCHEMA_KEY, keys.SCHEMA, nx=True)
            pipe.get(keys.SCHEMA_KEY)
            taken, schema = connection.execute(pipe)
        connection.check_schema(schema)
        if schema is None or isinstance(taken, Exception):
            raise MonitorDown(f"the monitor at {connection.place} takes no writes")
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
        with self._wake:  # before all that came later
            self._flying.extendleft(reversed(lost))
        self._register()
        with self._wake:
            self._changed = set(self._current)
        self._connected, self._away, self._renewed_at = True, False, -RENEW_EVERY

    def _register(self) -> None:
        """Make this run known, and let go of those that were silent longest, where there are too many."""
        with self._connection.pipeline() as pipe:
            pipe.zadd(keys.PIPELINES_KEY, {keys.member(self.pipeline): round(time.time(), 3)})
            pipe.zrange(keys.PIPELINES_KEY, 0, -keys.RUNS - 1)
            _, old = self._connection.execute(pipe)
        with self._connection.pipeline() as pipe:
            for member in old[: keys.RUNS] if isinstance(old, list) else ():  # if someone else filled it, more the next time
                if known := keys.pipeline_of(member):
                    pipe.unlink(*keys.lasting(known))
                pipe.zrem(keys.PIPELINES_KEY, member)
            pipe.set(keys.info(self.pipeline), self._info, ex=keys.EXPIRE)
            self._connection.execute(pipe)

    def _flush(self) -> None:
        """Write what is current, and the oldest queued records, in one round trip."""
        with self._wake:
            while self._queue and len(self._flying) < BATCH:
                item = self._queue.popleft()
                self._bytes -= len(item.content)
                self._flying.append(item)
            current = {field: self._current[field] for field in self._changed}
            self._changed.clear()
        flying = list(self._flying)
        ends = []
        try:
            with self._connection.pipeline() as pipe:
                pipe.exists(keys.info(self.pipeline))
                for item in flying:
                    self._write(pipe, item)
                    ends.append(len(pipe))
                self._write_current(pipe, current)
                answers = self._connection.execute(pipe)
        except PpaError:
            for item in flying[: len(ends)]:
                item.sent = True
            raise
        known = answers[0]
        self._connected = bool(known)
        self._away = not known  # a monitor that came back empty is told everything current again
        begin, again = 1, []
        for item, end in zip(flying, ends, strict=True):
            if not self._settled(item, answers[begin:end]):
                again.append(item)
            begin = end
        self._flying.clear()
        if again:
            self._requeue(again)

    def _write(self, pipe: Pipeline, item: Item) -> None:
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
        """The first write to a key gives it its expiry: the run may end before all are renewed."""
        if name not in self._expiring:
            self._expiring.add(name)
            pipe.expire(name, keys.EXPIRE)

    def _next_id(self, series: Series, at: float) -> tuple[int, int]:
        """The record's time, or one after the stream's last id if clocks went back."""
        last = self._last.get(series.name, (0, 0))
        self._last[series.name] = found = max((int(at * 1000), 0), (last[0], last[1] + 1))
        return found

    def _settled(self, item: Item, answers: list[Any]) -> bool:
        """Count what came of an item; False if its id was taken by another teller of the same run, so it needs a new one."""
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
        """To the front of the queue again; connecting anew finds out where the streams end."""
        with self._wake:
            for item in reversed(items):
                item.id = None
                self._queue.appendleft(item)
                self._bytes += len(item.content)
        self._connected = False

    def _write_current(self, pipe: Pipeline, current: Mapping[Any, bytes]) -> None:
        """What goes along with the records: current values, how the telling goes, and now and then the expiries."""
        now = time.monotonic()
        if now - self._health_at > HEALTH_EVERY:
            self._health_at = now
            current = {**current, "health": dumps(self.health())}
        if current:
            pipe.hset(keys.now(self.pipeline), mapping=current)
        if now - self._renewed_at > RENEW_EVERY:
            self._renewed_at = now
            pipe.zadd(keys.PIPELINES_KEY, {keys.member(self.pipeline): round(time.time(), 3)})
            for name in keys.lasting(self.pipeline):
                pipe.expire(name, keys.EXPIRE)


def _parsed(id_: bytes) -> tuple[int, int]:
    milliseconds, _, number = id_.partition(b"-")
    return int(milliseconds), int(number)
