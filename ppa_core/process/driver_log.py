"""A driver's standard error: stored in the run's folder, readable by its owner only, with passwords masked."""

from __future__ import annotations

import logging
import os
import shutil
import stat
import threading
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from ppa_core.home import FOLDER
from ppa_core.safety.masking import masked

NAME = "driver.log"
MOST_BYTES = 64_000_000
"""A larger file is renamed to driver.log.1, which replaces the previous one."""

_LAST = 200
_LINE = 100_000

_log = logging.getLogger(__name__)


class DriverLog:
    """Stores what a driver writes to standard error. All drivers of a run write to the same file, one after the other.

    If the disk is full, lines are lost, but the driver's pipe is still read.
    """

    def __init__(self, folder: Path, most: int = MOST_BYTES) -> None:
        self.path, self.most = folder / NAME, most
        self.last: deque[str] = deque(maxlen=_LAST)
        self.over = threading.Event()
        """Set when the driver's standard error is closed."""

    def take(self, lines: Iterable[bytes]) -> None:
        """Store lines until there are no more."""
        file = self._open()
        try:
            for content in lines:
                line = masked(content[:_LINE].decode(errors="backslashreplace").rstrip())
                self.last.append(line)
                if file is not None and not self._write(file, line):
                    os.close(file)
                    file = self._open()
        except ValueError:  # the pipe was closed
            _log.debug("the driver's standard error was closed", exc_info=True)
        finally:
            if file is not None:
                os.close(file)
            self.over.set()

    def _open(self) -> int | None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            file = os.open(self.path, flags, 0o600)
        except OSError:
            _log.warning("the driver's standard error cannot be stored in %s", self.path, exc_info=True)
            return None
        if not stat.S_ISREG(os.fstat(file).st_mode):
            _log.warning("the driver's standard error cannot be stored in %s: not a regular file", self.path)
            os.close(file)
            return None
        return file

    def _write(self, file: int, line: str) -> bool:
        """False if the file reached its maximum size and was renamed: a new one must be opened."""
        try:
            os.write(file, line.encode(errors="backslashreplace") + b"\n")
            if os.fstat(file).st_size < self.most:
                return True
            self.path.replace(self.path.with_name(f"{NAME}.1"))
        except OSError:
            _log.debug("a line of the driver's standard error is lost", exc_info=True)
            return True
        return False


def keep(path: Path, run: str) -> Path:
    """Copy a run's driver.log to where it stays when the run's folder is removed; the original path if that fails."""
    kept = FOLDER / "logs" / f"driver-{run}.log"
    with suppress(OSError):
        kept.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with path.open("rb") as source, os.fdopen(os.open(kept, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as copy:
            shutil.copyfileobj(source, copy)
        return kept
    return path
