"""The embedded monitor: a real Redis server on a private Unix socket, with its history in a folder.

The process that starts it owns it: the server ends with this process, however that ends. Its history stays in the folder. If it
is running already, `start` returns the running one. Passwords are kept between starts, so that readers can reconnect.
"""

from __future__ import annotations

import fcntl
import logging
import os
import threading
import time
from pathlib import Path
from typing import IO

from monitoring.connection import DIRECTORY, SERVER_FILE, Address, MonitorDown
from monitoring.embedded import MonitorProcess, answers
from ppa_core.closeable import Closeable
from ppa_core.errors import BadInput, Unavailable
from ppa_core.safety.owned import is_own, open_own

_log = logging.getLogger(__name__)

MEMORY_MB = 512
_FIND_SECONDS = 30.0
_LOOK_SECONDS = 1.0
"""Seconds between two checks whether the server still runs."""
_LOCK_FILE = "owner.lock"


class MonitorServer(Closeable):
    """The running server of a folder. If it is `owned` by this process, `close` ends it."""

    def __init__(self, directory: Path, owned: MonitorProcess | None) -> None:
        self.address = Address(directory=directory)
        self._owned = owned
        self._over = threading.Event()
        self._keeping: threading.Thread | None = None

    @property
    def owned(self) -> bool:
        return self._owned is not None

    @property
    def pid(self) -> int | None:
        """The server's process id, if this process owns it."""
        return self._owned.pid if self._owned else None

    def kill(self) -> None:
        """SIGKILL the server; it has ended when this returns. For tests and drills."""
        assert self._owned
        self._owned.kill()

    def restart(self) -> None:
        """Start a killed server again, at the same address and with its history."""
        assert self._owned
        self._owned.start()

    def keep(self) -> None:
        """If the server is owned, start it again whenever it ends, until `close`."""
        if self._owned is not None and self._keeping is None:
            self._keeping = threading.Thread(target=self._keep, name="ppa-monitor-keeper", daemon=True)
            self._keeping.start()

    def _keep(self) -> None:
        while not self._over.wait(_LOOK_SECONDS):
            owned = self._owned
            try:
                if owned is not None and not owned.running() and not self._over.is_set():
                    _log.warning("the embedded monitor ended; it is started again")
                    self.restart()
            except Unavailable:
                _log.warning("the embedded monitor could not be started; trying again", exc_info=True)

    def close(self) -> None:
        """End the server if it is owned; it has ended when this returns."""
        self._over.set()
        if self._keeping is not None:
            self._keeping.join()
        owned, self._owned = self._owned, None
        if owned:
            owned.close()


def start(directory: Path = DIRECTORY, memory_mb: int = MEMORY_MB) -> MonitorServer:
    """The folder's running server, or a new one that this process owns. Unavailable if neither works."""
    directory = directory.absolute()
    try:
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        _close_to_others(directory)
        lock = os.fdopen(open_own(directory / _LOCK_FILE, os.O_WRONLY | os.O_APPEND | os.O_CREAT), "a")
    except OSError as error:
        raise Unavailable(f"the monitor's folder {str(directory)!r} cannot be written: {error.strerror}") from error
    end = time.monotonic() + _FIND_SECONDS
    while True:
        if _taken(lock):
            try:
                return MonitorServer(directory, MonitorProcess(directory, lock, memory_mb))
            except BaseException:
                lock.close()
                raise
        found = answers(directory)
        if found:
            lock.close()
            return MonitorServer(directory, None)
        if found is None:  # it is loading its history
            end = time.monotonic() + _FIND_SECONDS
        if time.monotonic() > end:
            lock.close()
            reason = f"another process owns the monitor in {str(directory)!r}, but it does not answer"
            raise MonitorDown(f"{reason}; a run with a monitor restarts it automatically, otherwise end that process")
        time.sleep(0.05)


def _close_to_others(directory: Path) -> None:
    """Make the folder private. A folder with other content is refused, not changed: it may be shared, like /tmp."""
    if not is_own(directory):
        reason = "the folder or the link to it belongs to another user, who could replace it; choose a folder of your own"
        raise BadInput(f"monitor's folder {directory}", reason)
    if not directory.stat().st_mode & 0o077:
        return
    if any(directory.iterdir()) and not (directory / SERVER_FILE).is_file():
        reason = "other users can read it, and it has other content; choose a new folder, or make it private with chmod 700"
        raise BadInput(f"monitor's folder {directory}", reason)
    directory.chmod(0o700)


def _taken(lock: IO[str]) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
