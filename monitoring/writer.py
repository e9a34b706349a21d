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
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from monitoring import keys
from monitoring.codec import dumps
from monitoring.connection import Address, Connection, MonitorDown, UnknownSchema
from monitoring.records import PipelineInfo, RunKey, WriterHealth
from monitoring.routes import Route, routes
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
DOUBTED = 5.0
"""Seconds in which what was written may still be lost with the server."""
MOST_DOUBTED = 8 << 20
"""Bytes of it that are kept."""

_ID_TAKEN = "equal or smaller than the target stream top item"
_log = logging.getLogger(__name__)


@dataclass
class _Item:
    """A record on its way: where it goes, what is sent, and the id it was first sent with."""

    route: Route
    content: bytes
    id: tuple[int, int] | None = None
    sent: bool = False


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
        self._queue: deque[_Item] = deque()
        self._bytes = 0
        self._flying: deque[_Item] = deque()
        self._doubted: deque[tuple[float, _Item]] = deque()
        """Written lately, with the times."""
        self._doubted_bytes = 0
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
                    self._push(_Item(route, content))
            self._wake.notify()

    def _first_of_minute(self, at: float) -> bool:
        before, self._minute = self._minute, int(at // 60)
        return before != self._minute

    def _push(self, item: _Item) -> None:
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
            with suppress(PpaError):  # the last word: what it all came to
                self._connection.run(("HSET", keys.now(self.pipeline), "health", dumps(self.health())))

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
        taken, schema = self._connection.run(("SET", keys.SCHEMA_KEY, keys.SCHEMA, "NX"), ("GET", keys.SCHEMA_KEY))
        self._connection.check_schema(schema)
        if schema is None or isinstance(taken, Exception):
            raise MonitorDown(f"the monitor at {self._connection.place} takes no writes")
        names = [keys.series(self.pipeline, series) for series in keys.SERIES]
        tops = self._connection.run(*(("XREVRANGE", name, "+", "-", "COUNT", 1) for name in names))
        ends = {
            name: _parsed(top[0][0]) if isinstance(top, list) and top else (0, 0) for name, top in zip(names, tops, strict=True)
        }
        for name, end in ends.items():
            self._last[name] = max(end, self._last.get(name, end))
        self._expiring.clear()
        self._send_lost(ends)
        self._forget_old_runs()
        self._connection.run(("SET", keys.info(self.pipeline), self._info, "EX", keys.EXPIRE))
        with self._wake:
            self._changed = set(self._current)
        self._connected, self._away, self._renewed_at = True, False, -RENEW_EVERY

    def _send_lost(self, ends: dict[str, tuple[int, int]]) -> None:
        """Have what was written lately and is beyond the end of its stream sent once more, before all that came later."""
        lost = []
        for _, item in self._doubted:
            series = item.route.series
            if series is None or (item.id or (0, 0)) > ends[keys.series(self.pipeline, series)]:
                item.sent = True
                lost.append(item)
        self._doubted.clear()
        self._doubted_bytes = 0
        self.written -= len(lost)
        with self._wake:
            self._flying.extendleft(reversed(lost))

    def _doubt(self, item: _Item) -> None:
        """Keep what was just written for a while, as long as it is not too much."""
        now = time.monotonic()
        self._doubted.append((now, item))
        self._doubted_bytes += len(item.content)
        while self._doubted[0][0] < now - DOUBTED or self._doubted_bytes > MOST_DOUBTED:
            self._doubted_bytes -= len(self._doubted.popleft()[1].content)
            if not self._doubted:
                break

    def _forget_old_runs(self) -> None:
        """Make this run known, and let go of those that were silent longest, where there are too many."""
        now = round(time.time(), 3)
        _, old = self._connection.run(
            ("ZADD", keys.PIPELINES_KEY, now, keys.member(self.pipeline)),
            ("ZRANGE", keys.PIPELINES_KEY, 0, -keys.RUNS - 1),
        )
        for member in old if isinstance(old, list) else ():
            known = keys.pipeline_of(member)
            gone = [("UNLINK", *keys.lasting(known))] if known else []
            self._connection.run(*gone, ("ZREM", keys.PIPELINES_KEY, member))

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
        sent = [self._command(item) for item in flying]
        try:
            known, *answers = self._connection.run(
                ("EXISTS", keys.info(self.pipeline)), *(command for group in sent for command in group), *self._beside(current)
            )
        except PpaError:
            for item in flying:
                item.sent = True
            raise
        self._connected = bool(known)
        self._away = not known  # a monitor that came back empty is told everything current again
        place, again = 0, []
        for item, group in zip(flying, sent, strict=True):
            if not self._settled(item, answers[place : place + len(group)]):
                again.append(item)
            place += len(group)
        self._flying.clear()
        if again:
            self._requeue(again)

    def _command(self, item: _Item) -> list[tuple[Any, ...]]:
        if item.route.incident is not None:
            id_, since = item.route.incident
            order = keys.incidents(self.pipeline)
            return [
                ("SET", keys.incident(self.pipeline, id_), item.content, "EX", keys.EXPIRE),
                ("ZADD", order, since, id_),
                ("ZREMRANGEBYRANK", order, 0, -keys.INCIDENTS - 1),
                *self._expiry(order),
            ]
        series = item.route.series
        assert series is not None
        name = keys.series(self.pipeline, series)
        if item.id is None:
            item.id = self._next_id(name, item.route.at)
        id_ = f"{item.id[0]}-{item.id[1]}"
        return [("XADD", name, "MAXLEN", "~", series.cap, id_, "r", item.content), *self._expiry(name)]

    def _expiry(self, name: str) -> list[tuple[Any, ...]]:
        """The first write to a key gives it its expiry: the run may end before all are renewed."""
        if name in self._expiring:
            return []
        self._expiring.add(name)
        return [("EXPIRE", name, keys.EXPIRE)]

    def _next_id(self, name: str, at: float) -> tuple[int, int]:
        """The record's time, or one after the stream's last id if clocks went back."""
        last = self._last.get(name, (0, 0))
        self._last[name] = max((int(at * 1000), 0), (last[0], last[1] + 1))
        return self._last[name]

    def _settled(self, item: _Item, answers: list[Any]) -> bool:
        """Count what came of an item; False if its id was taken by another teller of the same run, so it needs a new one."""
        error = next((answer for answer in answers if isinstance(answer, Exception)), None)
        taken = error is not None and _ID_TAKEN in str(error)
        if error is None or (taken and item.sent):
            self.written += 1
            self._doubt(item)
        elif taken:
            return False
        else:
            self.refused += 1
            self.complaint = str(error)[:200]
        return True

    def _requeue(self, items: list[_Item]) -> None:
        """To the front of the queue again; connecting anew finds out where the streams end."""
        with self._wake:
            for item in reversed(items):
                item.id = None
                self._queue.appendleft(item)
                self._bytes += len(item.content)
        self._connected = False

    def _beside(self, current: dict[str, bytes]) -> list[tuple[Any, ...]]:
        """What goes along with the records: current values, how the telling goes, and now and then the expiries."""
        now = time.monotonic()
        if now - self._health_at > HEALTH_EVERY:
            self._health_at = now
            current = {**current, "health": dumps(self.health())}
        found: list[tuple[Any, ...]] = []
        if current:
            found.append(("HSET", keys.now(self.pipeline), *(part for pair in current.items() for part in pair)))
        if now - self._renewed_at > RENEW_EVERY:
            self._renewed_at = now
            found.append(("ZADD", keys.PIPELINES_KEY, round(time.time(), 3), keys.member(self.pipeline)))
            found += [("EXPIRE", name, keys.EXPIRE) for name in keys.lasting(self.pipeline)]
        return found


def _parsed(id_: bytes) -> tuple[int, int]:
    milliseconds, _, number = id_.partition(b"-")
    return int(milliseconds), int(number)
