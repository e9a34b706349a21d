"""The embedded monitor: a real Redis server on a private Unix socket, with its history in a folder.

Who starts it owns it: it ends with its owner, however that ends, and its history stays in the folder. Whoever starts it while
it runs finds the running one. Passwords are kept from start to start, so that readers find it again.
"""

from __future__ import annotations

import fcntl
import logging
import os
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from monitoring.connection import DIRECTORY, SERVER_FILE, Address, MonitorDown
from monitoring.embedded import MonitorProcess, answers
from ppa_core.errors import BadInput, Unavailable
from ppa_core.safety.owned import is_own, open_own

_log = logging.getLogger(__name__)

MEMORY_MB = 512
_FIND_SECONDS = 30.0
_LOOK_SECONDS = 1.0
"""Between two looks whether a server that is kept still runs."""
_LOCK_FILE = "owner.lock"


class MonitorServer:
    """The folder's server, running. `owned` says whether it ends with this process; `close` ends it then."""

    def __init__(self, directory: Path, owned: MonitorProcess | None) -> None:
        self.address = Address(directory=directory)
        self._owned = owned
        self._over = threading.Event()
        self._keeping: threading.Thread | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    @property
    def owned(self) -> bool:
        return self._owned is not None

    @property
    def pid(self) -> int | None:
        """The server's process, if it is owned here."""
        return self._owned.pid if self._owned else None

    def kill(self) -> None:
        """SIGKILL the server and leave it dead; it is gone when this returns. For tests and drills."""
        assert self._owned
        self._owned.kill()

    def restart(self) -> None:
        """Start a killed server again, where it was and with what it had."""
        assert self._owned
        self._owned.start()

    def keep(self) -> None:
        """Start the server again whenever it has ended, from now on until `close`, if it is owned."""
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
                _log.warning("the embedded monitor could not be started; it is tried again", exc_info=True)

    def close(self) -> None:
        """End the server if it is owned; it is gone when this returns."""
        self._over.set()
        if self._keeping is not None:
            self._keeping.join()
        owned, self._owned = self._owned, None
        if owned:
            owned.close()


def start(directory: Path = DIRECTORY, memory_mb: int = MEMORY_MB) -> MonitorServer:
    """The folder's server: the one that runs, else a new one that belongs to this process. Unavailable if neither can be."""
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
        if found is None:  # it reads its history
            end = time.monotonic() + _FIND_SECONDS
        if time.monotonic() > end:
            lock.close()
            reason = f"another process owns the monitor in {str(directory)!r}, but it does not answer"
            raise MonitorDown(f"{reason}; a run with a monitor starts it again by itself, else end that process")
        time.sleep(0.05)


def _close_to_others(directory: Path) -> None:
    """The history is its owner's alone. Only a folder that has nothing else in it is closed: /tmp is others' too."""
    if not is_own(directory):
        reason = "it, or the link to it, is another user's, who could exchange what is in it; name a folder of your own"
        raise BadInput(f"monitor's folder {directory}", reason)
    if not directory.stat().st_mode & 0o077:
        return
    if any(directory.iterdir()) and not (directory / SERVER_FILE).is_file():
        reason = "others can look into it, and it has other things in it; name a folder of its own, or close it with chmod 700"
        raise BadInput(f"monitor's folder {directory}", reason)
    directory.chmod(0o700)


def _taken(lock: IO[str]) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
