"""Logs: configured once per process, to standard error and a file, as text or JSON, with passwords masked.

A module has `_log = logging.getLogger(__name__)`. Records pass through a bounded queue, so that logging never blocks on a
disk, a pipe or a terminal. Each record has the run, batch, attempt and cause that it belongs to, set by `about`; work that
another thread does for this one keeps them (`Threads`, or `contextvars.copy_context`). A driver is a separate process; its
records come through its pipe (`to_line`, `relayed`).
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import stat
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from contextvars import ContextVar, copy_context
from copy import copy
from dataclasses import dataclass
from functools import partial
from io import TextIOWrapper
from logging.handlers import QueueHandler, QueueListener, RotatingFileHandler
from queue import Full, Queue
from typing import Any, ParamSpec, TypeVar

from ppa_core.errors import BadInput
from ppa_core.safety.masking import masked
from ppa_core.safety.printable import printable
from ppa_core.terminal.printing import writable

LEVELS = ("debug", "info", "warning", "error")
FIELDS = ("run", "batch", "attempt", "cause")
"""The context of a record."""

_OURS = ("ppa_core", "monitoring", "pages")
_MOST = 10_000
"""Maximum number of records waiting to be written; further ones are dropped and counted."""
_FILE_BYTES, _FILES = 64_000_000, 3
"""A larger log file is renamed to FILE.1, FILE.1 to FILE.2, …"""
_PIECE = 4096
"""Bytes that are written to a pipe atomically."""

P = ParamSpec("P")
T = TypeVar("T")

_about: ContextVar[dict[str, object] | None] = ContextVar("ppa_about", default=None)
_of_process: dict[str, object] = {}


@dataclass(frozen=True)
class LogSettings:
    level: str | None = None
    """Minimum level of the records; None: `info` in the file, `warning` on standard error."""
    file: str | None = None
    as_json: bool = False

    @property
    def terminal_level(self) -> str:
        return self.level or "warning"

    @property
    def lowest(self) -> str:
        """The minimum level of the records that are written anywhere."""
        return self.level or ("warning" if self.file is None else "info")


def add_log_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--log-level", choices=LEVELS, help="minimum level of log records (default: warning; in the file of --log-file: info)"
    )
    parser.add_argument("--log-file", metavar="FILE", help="also write the log to FILE")
    parser.add_argument("--log-json", action="store_true", help="write the log as JSON, one document per line")


def settings_of(arguments: argparse.Namespace) -> LogSettings:
    """The log settings of a command line; the defaults for a command without log options."""
    given = vars(arguments)
    return LogSettings(given.get("log_level"), given.get("log_file"), given.get("log_json", False))


# ---------------------------------------------------------------------------------------------------------------- context


def of_run(run: str) -> None:
    """Set the run of this process's records, unless `about` sets another."""
    _of_process["run"] = run


@contextmanager
def about(**known: object) -> Iterator[None]:
    """Set the run, batch, attempt or cause of this thread's records within the block."""
    token = _about.set({**(_about.get() or {}), **known})
    try:
        yield
    finally:
        _about.reset(token)


class Threads(ThreadPoolExecutor):
    """Threads whose records have the context of the thread that submitted the work."""

    def submit(self, work: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        return super().submit(copy_context().run, partial(work, *args, **kwargs))


# ----------------------------------------------------------------------------------------------------------------- set-up


@contextmanager
def configured(settings: LogSettings, tell: Callable[[dict[str, Any]], None] | None = None) -> Iterator[None]:
    """Log with these settings within the block. Raises BadInput if the file cannot be written.

    With `tell`, for a driver: standard error is the run's own log and gets at least `info`; `tell` is called with a line for
    each record of the configured level.
    """
    level = _number(settings.lowest)
    lowest = level if tell is None else min(level, logging.INFO)
    formatter: logging.Formatter = _Json() if settings.as_json else _Text()
    handlers: list[logging.Handler] = [_Terminal(_number(settings.terminal_level) if tell is None else lowest)]
    if settings.file is not None:
        handlers.insert(0, _File(settings.file))
    if tell is not None:
        handlers.append(_Relay(tell, level))
    for handler in handlers:
        handler.setFormatter(formatter)
    queue: Queue[Any] = Queue(_MOST)
    queued, listener = _Queued(queue), _Listener(queue, *handlers, respect_handler_level=True)
    root = logging.getLogger()
    before = {name: logging.getLogger(name).level for name in _OURS}
    for name in _OURS:
        logging.getLogger(name).setLevel(lowest)
    root.addHandler(queued)
    listener.start()
    try:
        yield
    finally:
        root.removeHandler(queued)
        for name, old in before.items():
            logging.getLogger(name).setLevel(old)
        listener.stop()
        for handler in handlers:
            handler.close()


def to_stderr() -> None:
    """For processes without log settings, such as Spark's workers and the dashboard: warnings, with passwords masked."""
    root = logging.getLogger()
    if not any(isinstance(handler, _Terminal) for handler in root.handlers):
        handler = _Terminal()
        handler.setFormatter(_Text())
        root.addHandler(handler)


def to_line(record: logging.LogRecord) -> dict[str, Any]:
    """A record as a JSON document."""
    known = {name: getattr(record, name, "") for name in FIELDS}
    line = {
        "kind": "log", "at": record.created, "level": record.levelname.lower(), "logger": record.name,
        "process": record.process, "message": masked(record.getMessage()),
        **{name: value for name, value in known.items() if value != ""},
    }  # fmt: skip
    return {**line, "traceback": masked(record.exc_text)} if record.exc_text else line


def relayed(line: dict[str, Any]) -> None:
    """Log a record of another process in this one."""
    known = {name: line[name] for name in FIELDS if name in line}
    level = str(line["level"]).upper()
    record = logging.makeLogRecord({"levelname": level, "levelno": logging.getLevelName(level), "created": line["at"], **known})
    record.name, record.msg, record.process = str(line["logger"]), line["message"], line["process"]
    record.exc_text = line.get("traceback")
    logger = logging.getLogger(record.name)
    if logger.isEnabledFor(record.levelno):
        logger.handle(record)


# --------------------------------------------------------------------------------------------------------------- handlers


class _Queued(QueueHandler):
    """Prepares a record in the thread that logs it: adds its context, and formats its message and traceback."""

    _dropped = 0

    def prepare(self, record: logging.LogRecord) -> logging.LogRecord:
        taken = copy(record)
        taken.msg, taken.args = masked(record.getMessage()), None
        if record.exc_info:
            taken.exc_text = masked(_PLAIN.formatException(record.exc_info))
        taken.exc_info = None
        known = {**_of_process, **(_about.get() or {})}
        for name in FIELDS:
            value = getattr(record, name, "")
            value = known.get(name, "") if value == "" else value
            setattr(taken, name, masked(value) if isinstance(value, str) else value)
        return taken

    def enqueue(self, record: logging.LogRecord) -> None:
        try:
            if self._dropped:
                self.queue.put_nowait(_warning(f"{self._dropped} log records were dropped: the log queue was full"))
                self._dropped = 0
            self.queue.put_nowait(record)
        except Full:
            self._dropped += 1

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - the library's name
        """Ignore errors: the library would print the record with its arguments, which may contain passwords."""


class _Listener(QueueListener):
    queue: Queue[Any]

    def enqueue_sentinel(self) -> None:
        self.queue.put(None)  # waits if the queue is full, where the library's method raises


class _Text(logging.Formatter):
    """One line, followed by the traceback. Control characters are escaped."""

    def format(self, record: logging.LogRecord) -> str:
        known = " ".join(f"{name}={value}" for name in FIELDS if (value := getattr(record, name, "")) != "")
        at = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.created % 1 * 1000):03d}Z"
        head = f"{at} {record.levelname:7} {record.name} [{known}] {record.getMessage()}"
        trace = record.exc_text or (self.formatException(record.exc_info) if record.exc_info else "")
        return masked("\n".join(printable(line) for line in (head, *trace.splitlines())))


class _Json(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return json.dumps({name: value for name, value in to_line(record).items() if name != "kind"}, default=str)


class _Terminal(logging.Handler):
    """Standard error. While it is blocked, records are dropped and counted."""

    def __init__(self, level: int = logging.NOTSET) -> None:
        super().__init__(level)
        self._missed = 0

    def emit(self, record: logging.LogRecord) -> None:
        try:
            text = self.format(record)
            if self._missed:
                text = f"{self._missed} log records were dropped here: standard error was blocked\n{text}"
            self._missed = 0 if _write(text + "\n", 0.0 if self._missed else 1.0) else self._missed + 1
        except Exception:  # noqa: BLE001 - there is nowhere left to report it
            self._missed += 1


class _File(RotatingFileHandler):
    """A log file that only its owner can read."""

    def __init__(self, name: str) -> None:
        try:
            super().__init__(name, maxBytes=_FILE_BYTES, backupCount=_FILES, encoding="utf-8", errors="backslashreplace")
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            raise BadInput(f"--log-file {name}", f"cannot be written: {reason}; choose another file") from None

    def _open(self) -> TextIOWrapper:
        number = os.open(self.baseFilename, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NONBLOCK, 0o600)
        if not stat.S_ISREG(os.fstat(number).st_mode):
            os.close(number)
            raise ValueError("it is not a regular file")
        return TextIOWrapper(os.fdopen(number, "ab"), encoding="utf-8", errors="backslashreplace")

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802
        """Ignore errors, such as a full disk: the record is also on standard error."""


class _Relay(logging.Handler):
    def __init__(self, tell: Callable[[dict[str, Any]], None], level: int) -> None:
        super().__init__(level)
        self._tell = tell

    def emit(self, record: logging.LogRecord) -> None:
        with suppress(OSError, ValueError):  # the parent process is gone
            self._tell(to_line(record))


_PLAIN = logging.Formatter()


def _number(level: str) -> int:
    return logging.getLevelNamesMapping()[level.upper()]


def _warning(message: str) -> logging.LogRecord:
    return logging.LogRecord(__name__, logging.WARNING, "", 0, message, None, None)


def _write(text: str, seconds: float) -> bool:
    """Write to standard error without blocking for longer than `seconds`; False if nothing could be written."""
    stream = sys.stderr
    if stream is None:
        return True
    try:
        number = stream.fileno()
    except (AttributeError, OSError, ValueError):
        stream.write(text)
        return True
    stream.flush()
    content = text.encode(errors="backslashreplace")
    for start in range(0, len(content), _PIECE):
        if not writable(seconds, stream):
            return start > 0
        os.write(number, content[start : start + _PIECE])
    return True
