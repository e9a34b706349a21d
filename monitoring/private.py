"""Files in the monitor's folder that only their owner can read: what must be known outside Redis.

`Sender` numbers an operator's commands; `Memory` is what a run's end of the channel knows. Both are there so that whoever can
write to Redis, and to nothing else, can neither have a command carried out twice nor take one away unseen.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import logging
import os
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from monitoring import keys
from monitoring.connection import Address, shown
from monitoring.records import RunKey
from monitoring.signing import new_sender
from ppa_core.engine.numbers import SequenceNumbers

SENDER_FILE = "sender.json"
FOLDER = "audit"
_RUNS = 100
"""Runs whose commands a sender counts; it is a new sender for others."""
_MOST_BYTES = 4 << 20

_log = logging.getLogger(__name__)


class Sender:
    """Counts the commands that are sent from a folder, by run; over processes, for the file is locked meanwhile."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / SENDER_FILE
        self._own: dict[str, list[Any]] = {}

    @contextmanager
    def next(self, pipeline: RunKey) -> Iterator[str]:
        """The next command's id. No other gets one until the block ends, so commands are sent in the order of their numbers."""
        with self._locked():
            counts = _read(self._path) or self._own
            known = counts.pop(keys.member(pipeline), None)
            if not (isinstance(known, list) and len(known) == 2 and isinstance(known[0], str) and isinstance(known[1], int)):
                known = [new_sender(), 0]
            counts[keys.member(pipeline)] = known = [known[0], known[1] + 1]
            self._own = dict(list(counts.items())[-_RUNS:])
            _write(self._path, self._own)
            yield f"{known[0]}-{known[1]}"

    @contextmanager
    def _locked(self) -> Iterator[None]:
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            handle = os.open(self._path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT, 0o600)
        except OSError:  # a folder that cannot be written: this process is a sender of its own
            yield
            return
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)


@dataclass
class Memory:
    """What a run's end of the channel knows. `written` lines of the audit log have reached the monitor."""

    number: int = 0
    mac: str = ""
    first: int = 1
    """The newest line of the audit log, its signature, and the oldest line that was not trimmed."""
    written: int = 0
    numbers: SequenceNumbers = field(default_factory=SequenceNumbers)
    """Of the commands that have arrived."""
    open: dict[str, list[str]] = field(default_factory=dict)
    """Commands that were taken and have no outcome: who, what, digest."""

    @classmethod
    def load(cls, address: Address, pipeline: RunKey) -> Memory | None:
        """None if nothing is known here of that run."""
        path = _path(address, pipeline)
        known = _read(path)
        if not known:
            return None
        try:
            counts = [int(known[name]) for name in ("number", "first", "written")]
            left = {str(id_): [str(text) for text in texts] for id_, texts in known["open"].items() if len(texts) == 3}
            return cls(counts[0], str(known["mac"]), counts[1], counts[2], SequenceNumbers(known["numbers"]), left)
        except (KeyError, TypeError, ValueError, AttributeError):
            _log.warning("%s: not as it was written; passed over", path)
            return None

    def save(self, address: Address, pipeline: RunKey) -> bool:
        """Whether it could be written."""
        document = {**self.__dict__, "numbers": self.numbers.taken(), "pipeline": keys.member(pipeline)}
        return _write(_path(address, pipeline), document)


def known_runs(address: Address) -> list[RunKey]:
    """The latest runs whose end of the channel was here and has written to that monitor: it must know them still."""
    found: list[tuple[float, RunKey]] = []
    for path in (address.directory / FOLDER).glob(f"{_place(address)}-*.json"):
        with suppress(OSError):
            at = path.stat().st_mtime
            pipeline = keys.pipeline_of(str(_read(path).get("pipeline", "")).encode())
            if pipeline is not None and at > time.time() - keys.EXPIRE + keys.DAY:
                found.append((at, pipeline))
    return [pipeline for _, pipeline in sorted(found, reverse=True)[: keys.RUNS // 2]]


def sweep(address: Address, pipeline: RunKey) -> None:
    """Show that a run is still there, and forget those that the monitor has forgotten too."""
    with suppress(OSError):
        os.utime(_path(address, pipeline))
    for path in (address.directory / FOLDER).glob("*.json"):
        with suppress(OSError):
            if path.stat().st_mtime < time.time() - keys.EXPIRE:
                path.unlink()


def _path(address: Address, pipeline: RunKey) -> Path:
    return address.directory / FOLDER / f"{_place(address)}-{_short(keys.member(pipeline))}.json"


def _place(address: Address) -> str:
    """Which monitor it is: the folder's own, or one that the user runs."""
    return "own" if address.url is None else _short(shown(address.url))


def _short(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:24]


def _read(path: Path) -> dict[str, Any]:
    """Empty if there is no such file, or no document in it."""
    try:
        with path.open("rb") as file:
            known = json.loads(file.read(_MOST_BYTES))
    except (OSError, ValueError, RecursionError):
        return {}
    return known if isinstance(known, dict) else {}


def _write(path: Path, document: dict[str, Any]) -> bool:
    """Whole or not at all, for its owner alone."""
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            json.dump(document, file)
        draft.replace(path)
        return True
    except OSError as error:
        with suppress(OSError):
            draft.unlink()
        _log.warning("%s: cannot be written: %s", path, error.strerror)
        return False
