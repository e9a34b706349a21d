"""Folders and files that are only removed or replaced if this program created them.

A folder is always newly created and gets a marker: a file with the folder's purpose and a random token. `remove` requires that
token. It opens the folder once, and checks the marker and removes the content through that handle, so nobody can swap the
folder for another one or a link in between.
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
"""Attempts to empty a folder: a process that is about to end may still write there."""
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW


@dataclass(frozen=True)
class Owned:
    """A folder that this program created."""

    path: Path
    token: str = field(repr=False)

    def remove(self) -> bool:
        """Remove the folder if it is still the same one; False if it is not, or if it could not be removed completely."""
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
            self.path.rmdir()  # if it was replaced in the meantime, this removes only an empty folder
        except OSError:
            return False
        finally:
            os.close(folder)
        return True


def make(path: Path, purpose: str) -> Owned:
    """Create a folder that only its owner can access. FileExistsError if anything exists there, even a dangling link."""
    path.mkdir(mode=0o700)
    return _marked(path, purpose)


@contextmanager
def temporary(prefix: str, inside: Path | None = None) -> Iterator[Path]:
    """A new folder with a random name that is removed at the end of the block."""
    owned = scratch(prefix, inside)
    try:
        yield owned.path
    finally:
        owned.remove()


def scratch(prefix: str, inside: Path | None = None) -> Owned:
    """A new folder with a random name; the caller removes it."""
    return _marked(Path(tempfile.mkdtemp(prefix=prefix, dir=inside)), prefix)


def is_own(path: Path) -> bool:
    """Whether the file or folder, and the link to it if it is one, belong to this user or root."""
    return not {path.lstat().st_uid, path.stat().st_uid} - {0, os.geteuid()}


def open_own(path: Path, flags: int, mode: int = 0o600) -> int:
    """Open a file that belongs to this user or root. PermissionError for other owners, for a file with a second hard link, and
    for anything that is not a regular file: links are not followed, pipes do not block."""
    handle = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, mode)
    known = os.fstat(handle)
    if not stat.S_ISREG(known.st_mode) or known.st_uid not in (0, os.geteuid()) or known.st_nlink != 1:
        os.close(handle)
        raise PermissionError(errno.EPERM, "it belongs to another user, or is not a regular file", str(path))
    return handle


def read_private(path: Path, most: int) -> bytes:
    """The first `most` bytes of a file of this user or root. PermissionError if others can read or change it."""
    with os.fdopen(open_own(path, os.O_RDONLY), "rb") as file:
        if os.fstat(file.fileno()).st_mode & (stat.S_IRWXG | stat.S_IRWXO):
            raise PermissionError(errno.EPERM, "others can read or change it; make it private with chmod 600", str(path))
        return file.read(most)


@contextmanager
def written_whole(path: Path, sync: bool = False, mode: int = 0o666) -> Iterator[IO[bytes]]:
    """Replace a file atomically: it is written under an unpredictable temporary name, so that no link prepared by others is
    followed, and then renamed. With `sync` it is durable when the block ends."""
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}{DRAFT}")
    file = os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode), "wb")
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
    """Remove everything but the marker; whether that succeeded. Links are removed, never followed, also by `rmtree`."""
    with os.scandir(folder) as found:
        entries = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in found if entry.name != MARKER]
    for name, is_folder in entries:
        with suppress(OSError):
            if is_folder:
                shutil.rmtree(name, ignore_errors=True, dir_fd=folder)
            else:
                os.unlink(name, dir_fd=folder)
    return os.listdir(folder) == [MARKER]
