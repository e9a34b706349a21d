"""Private files in the monitor's folder, for what must not be stored only in Redis.

`SenderNumbers` numbers an operator's commands. `ChannelState` is what the pipeline knows about the commands of a run and its
audit log. With both, someone who can only write to Redis can neither repeat a command nor remove one unnoticed.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import logging
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from monitoring import keys
from monitoring.connection import Address, without_credentials
from monitoring.records import RunKey
from monitoring.signing import new_sender
from ppa_core.engine.numbers import SequenceNumbers
from ppa_core.safety.owned import written_whole

SENDER_FILE = "sender.json"
FOLDER = "audit"
_RUNS = 100
"""Runs that a sender numbers commands for. For another one it gets a new sender id."""
_MAX_BYTES = 4 << 20

_log = logging.getLogger(__name__)


class SenderNumbers:
    """Numbers the commands that are sent from a folder, for each run. Processes may share it: the file is locked."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / SENDER_FILE
        self._own: dict[str, list[Any]] = {}

    @contextmanager
    def next(self, pipeline: RunKey) -> Iterator[str]:
        """The next command's id. Others wait until the block ends, so commands are sent in the order of their numbers."""
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
        except OSError:  # the folder cannot be written: this process is a separate sender
            yield
            return
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)


@dataclass
class ChannelState:
    """The pipeline's state of the commands of a run. `written` is the last line of the audit log that reached the monitor."""

    number: int = 0
    mac: str = ""
    first: int = 1
    """Of the audit log: the newest line, its signature, and the oldest line that was not trimmed."""
    written: int = 0
    numbers: SequenceNumbers = field(default_factory=SequenceNumbers)
    """The numbers of the commands that have arrived."""
    open: dict[str, list[str]] = field(default_factory=dict)
    """Commands that were accepted and have no outcome yet: who, what, digest."""

    @classmethod
    def load(cls, address: Address, pipeline: RunKey) -> ChannelState | None:
        """The state of a run; None if this folder has none."""
        path = _path(address, pipeline)
        known = _read(path)
        if not known:
            return None
        try:
            counts = [int(known[name]) for name in ("number", "first", "written")]
            left = {str(id_): [str(text) for text in texts] for id_, texts in known["open"].items() if len(texts) == 3}
            return cls(counts[0], str(known["mac"]), counts[1], counts[2], SequenceNumbers(known["numbers"]), left)
        except (KeyError, TypeError, ValueError, AttributeError):
            _log.warning("%s: ignored: its content is not valid", path)
            return None

    def save(self, address: Address, pipeline: RunKey) -> bool:
        """Whether it could be written."""
        document = {**self.__dict__, "numbers": self.numbers.taken(), "pipeline": keys.member(pipeline)}
        return _write(_path(address, pipeline), document)


def known_runs(address: Address) -> list[RunKey]:
    """The latest runs of this folder that wrote to that monitor, which must still have them."""
    found: list[tuple[float, RunKey]] = []
    for path in (address.directory / FOLDER).glob(f"{_place(address)}-*.json"):
        with suppress(OSError):
            at = path.stat().st_mtime
            pipeline = keys.pipeline_of(str(_read(path).get("pipeline", "")).encode())
            if pipeline is not None and at > time.time() - keys.EXPIRE + keys.DAY:
                found.append((at, pipeline))
    return [pipeline for _, pipeline in sorted(found, reverse=True)[: keys.RUNS // 2]]


def sweep(address: Address, pipeline: RunKey) -> None:
    """Mark a run as active, and remove the files of runs whose keys have expired."""
    with suppress(OSError):
        os.utime(_path(address, pipeline))
    for path in (address.directory / FOLDER).glob("*.json"):
        with suppress(OSError):
            if path.stat().st_mtime < time.time() - keys.EXPIRE:
                path.unlink()


def _path(address: Address, pipeline: RunKey) -> Path:
    return address.directory / FOLDER / f"{_place(address)}-{_short(keys.member(pipeline))}.json"


def _place(address: Address) -> str:
    """Identifies the monitor: the embedded one of the folder, or the user's server."""
    return "own" if address.url is None else _short(without_credentials(address.url))


def _short(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:24]


def _read(path: Path) -> dict[str, Any]:
    """The document in a file; empty if there is none."""
    try:
        with path.open("rb") as file:
            known = json.loads(file.read(_MAX_BYTES))
    except (OSError, ValueError, RecursionError):
        return {}
    return known if isinstance(known, dict) else {}


def _write(path: Path, document: dict[str, Any]) -> bool:
    """Replace the private file; False if it cannot be written."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with written_whole(path, mode=0o600) as file:
            file.write(json.dumps(document).encode())
        return True
    except OSError as error:
        _log.warning("%s: cannot be written: %s", path, error.strerror)
        return False
