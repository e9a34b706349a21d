"""What is removed or replaced is what was made here: folders that go with all that is in them, and files written as a whole.

A folder is made anew, never taken over, and gets a marker: a file with what the folder is for and a random token. `remove`
wants that token. It opens the folder once, looks at the marker through what it opened and removes through it too, so nobody can
put another folder, or a link to one, in between.
"""

from __future__ import annotations

import errno
import json
import os
import secrets
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

MARKER = ".ppa-owner"
DRAFT = ".unfinished"
_MOST_BYTES = 1_000
_ATTEMPTS = 3
"""A process that is about to end may still write there."""
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW


@dataclass(frozen=True)
class Owned:
    """A folder that was made here."""

    path: Path
    token: str = field(repr=False)

    def remove(self) -> bool:
        """Remove the folder if it is still the one that was made; False if it is not, or not all of it could be removed."""
        try:
            folder = os.open(self.path, _FOLDER)
        except OSError:
            return False
        try:
            if _token(folder) != self.token:
                return False
            if not any(_emptied(folder) for _ in range(_ATTEMPTS)):
                return False
            os.unlink(MARKER, dir_fd=folder)
            self.path.rmdir()  # of what else may stand there by now, only an empty folder would go
        except OSError:
            return False
        finally:
            os.close(folder)
        return True


def make(path: Path, purpose: str) -> Owned:
    """A new folder, for its owner's eyes alone. FileExistsError if anything is there, be it a link to nowhere."""
    path.mkdir(mode=0o700)
    return _marked(path, purpose)


@contextmanager
def temporary(prefix: str, inside: Path | None = None) -> Iterator[Path]:
    """A new folder of a random name that goes with the block."""
    owned = scratch(prefix, inside)
    try:
        yield owned.path
    finally:
        owned.remove()


def scratch(prefix: str, inside: Path | None = None) -> Owned:
    """A new folder of a random name; whoever asked for it removes it."""
    return _marked(Path(tempfile.mkdtemp(prefix=prefix, dir=inside)), prefix)


def is_own(path: Path) -> bool:
    """Whether nobody but this user and root can have made what is there, nor the link that it is, if it is one."""
    return not {path.lstat().st_uid, path.stat().st_uid} - {0, os.geteuid()}


def open_own(path: Path, flags: int, mode: int = 0o600) -> int:
    """Open a file that is this user's or root's own. PermissionError for another's, for one that has a second name, and for
    what is no file: a link is not followed, a pipe not waited for."""
    handle = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, mode)
    known = os.fstat(handle)
    if not stat.S_ISREG(known.st_mode) or known.st_uid not in (0, os.geteuid()) or known.st_nlink != 1:
        os.close(handle)
        raise PermissionError(errno.EPERM, "it is another user's, or no ordinary file", str(path))
    return handle


@contextmanager
def written_whole(path: Path, sync: bool = False) -> Iterator[IO[bytes]]:
    """A file that is there wholly or not at all, in place of what has its name: written beside it first, under a name that
    nobody can foresee, so that no link put there beforehand is followed. With `sync` it is safe on disk when the block ends."""
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}{DRAFT}")
    file = os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o666), "wb")
    try:
        with file:
            yield file
            if sync:
                file.flush()
                os.fsync(file.fileno())
        draft.replace(path)
    except BaseException:
        with suppress(OSError):
            draft.unlink()
        raise


def _marked(path: Path, purpose: str) -> Owned:
    token = secrets.token_hex(16)
    folder = os.open(path, _FOLDER)
    try:
        marker = os.open(MARKER, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600, dir_fd=folder)
        with os.fdopen(marker, "w") as file:
            json.dump({"for": purpose, "token": token}, file)
    finally:
        os.close(folder)
    return Owned(path, token)


def _token(folder: int) -> str | None:
    try:
        with os.fdopen(os.open(MARKER, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder), "rb") as file:
            return str(json.loads(file.read(_MOST_BYTES))["token"])
    except (OSError, ValueError, TypeError, KeyError):
        return None


def _emptied(folder: int) -> bool:
    """Whether nothing but the marker is left. Links are removed, never followed: neither here nor by `rmtree`."""
    with os.scandir(folder) as found:
        entries = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in found if entry.name != MARKER]
    for name, is_folder in entries:
        with suppress(OSError):
            if is_folder:
                shutil.rmtree(name, ignore_errors=True, dir_fd=folder)
            else:
                os.unlink(name, dir_fd=folder)
    return os.listdir(folder) == [MARKER]
