"""A driver's standard error: kept in the run's folder, for its owner's eyes alone, without passwords."""

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
"""A file that is longer becomes driver.log.1, in place of the one before."""

_LAST = 200
_LINE = 100_000

_log = logging.getLogger(__name__)


class DriverLog:
    """Takes what a driver writes to its standard error. All drivers of a run write to one file, one after the other.

    A disk that takes nothing costs the lines, never the driver: its pipe is read all the same.
    """

    def __init__(self, folder: Path, most: int = MOST_BYTES) -> None:
        self.path, self.most = folder / NAME, most
        self.last: deque[str] = deque(maxlen=_LAST)
        self.over = threading.Event()
        """Set when the driver has written its last."""

    def take(self, lines: Iterable[bytes]) -> None:
        """Keep lines until there are no more."""
        file = self._open()
        try:
            for content in lines:
                line = masked(content[:_LINE].decode(errors="backslashreplace").rstrip())
                self.last.append(line)
                if file is not None and not self._write(file, line):
                    os.close(file)
                    file = self._open()
        except ValueError:  # the pipe was closed meanwhile
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
            _log.warning("the driver's standard error cannot be kept in %s", self.path, exc_info=True)
            return None
        if not stat.S_ISREG(os.fstat(file).st_mode):
            _log.warning("the driver's standard error cannot be kept in %s: it is not a regular file", self.path)
            os.close(file)
            return None
        return file

    def _write(self, file: int, line: str) -> bool:
        """False if the file is long enough, and another one is to be opened."""
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
    """A copy of a run's driver.log that stays when the run's folder goes; the path itself if none can be made."""
    kept = FOLDER / "logs" / f"driver-{run}.log"
    with suppress(OSError):
        kept.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with path.open("rb") as source, os.fdopen(os.open(kept, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as copy:
            shutil.copyfileobj(source, copy)
        return kept
    return path
