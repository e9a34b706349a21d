"""A journal: one small file per batch, written once, atomically, and never changed.

Entries and notes begin with a digest of the rest, so that damage on disk is detected.
"""

from __future__ import annotations

import errno
import json
import os
import re
import secrets
import stat
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ppa_core.errors import BadInput
from ppa_core.home import FOLDER
from ppa_core.pipeline.tables import digest
from ppa_core.safety.owned import Owned, is_own, make

STATE = ".ppa"
_ENTRY = re.compile(r"batch-([0-9]{9,18})\.json")
_MARK_BYTES = 4096
"""All marks have this size, so that one overwrites the other in one write."""


def is_full(error: BadInput) -> bool:
    """Whether the journal could not be written because the disk is full: it can be tried again later."""
    return isinstance(error.__cause__, OSError) and error.__cause__.errno in (errno.ENOSPC, errno.EDQUOT)


def place_for(directory: Path) -> Path:
    """Where the journal of an input directory is kept: inside it or, if others could replace it there, in our own folder."""
    try:
        known = directory.stat()
        exchangeable = known.st_mode & stat.S_IWOTH and not known.st_mode & stat.S_ISVTX
        if is_own(directory) and not exchangeable:
            return directory / STATE
    except OSError:
        return directory / STATE  # reading the directory reports the error
    return FOLDER.absolute() / "sources" / digest(os.fsencode(directory))


@dataclass(frozen=True)
class Journal:
    """A directory of entries by batch, notes by name, and a mark. Entries are written once; notes are replaced atomically."""

    path: str

    def check_owner(self) -> None:
        """Refuse a directory, or a link to it, that belongs to another user: its owner could change what is read."""
        try:
            own = is_own(Path(self.path))
        except OSError:
            return  # it does not exist yet
        if not own:
            raise BadInput(self.path, "this folder belongs to another user; remove it, or choose another one with `state`")

    def batches(self) -> list[int]:
        """The batches that have an entry, in order."""
        self.check_owner()
        try:
            names = [path.name for path in Path(self.path).iterdir()]
        except FileNotFoundError:
            return []
        except OSError as error:
            raise BadInput(self.path, f"cannot be read: {error.strerror}") from error
        return sorted(int(found[1]) for name in names if (found := _ENTRY.fullmatch(name)))

    def entry(self, batch: int) -> bytes | None:
        """The entry of a batch as JSON, or None. Raises BadInput if it is damaged."""
        self.check_owner()
        return self._sound(self._entry(batch), "restore the file, or start a new run with another name")

    def add(self, batch: int, entry: dict[str, Any]) -> None:
        """Add an entry, durably; if another process was first, its entry is kept."""
        new = self._written(entry)
        try:
            with suppress(FileExistsError):
                os.link(new, self._entry(batch))
            self._sync()
        finally:
            new.unlink()

    def remove(self, batches: list[int]) -> None:
        for batch in batches:
            self._entry(batch).unlink(missing_ok=True)

    def begin(self, purpose: str) -> Owned:
        """Create its folder, which must not exist; the result can remove it again."""
        try:
            Path(self.path).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            return make(Path(self.path), purpose)
        except FileExistsError:
            reason = "it contains the seals of another run of that name, which is still running or whose nodes are gone"
            raise BadInput(self.path, f"{reason}; choose another name, or delete this folder") from None
        except OSError as error:
            raise BadInput(self.path, f"cannot be created: {error.strerror}; choose another place with `state`") from error

    def note(self, name: str) -> dict[str, Any] | None:
        content = self._sound(Path(self.path) / f"{name}.json", "delete the file, it will be created again")
        return None if content is None else dict(json.loads(content))

    def set_note(self, name: str, note: dict[str, Any], replace: bool = True) -> None:
        """Write a note; with `replace` off, an existing one is kept."""
        new, place = self._written(note), Path(self.path) / f"{name}.json"
        if replace:
            new.replace(place)
        else:
            with suppress(FileExistsError):
                os.link(new, place)
            new.unlink()
        self._sync()

    def mark(self, mark: dict[str, Any]) -> None:
        """Leave a mark for the next process, without fsync: it survives a crash of the process, but not of the machine."""
        try:
            Path(self.path).mkdir(mode=0o700, parents=True, exist_ok=True)
            handle = os.open(self._mark, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
            try:
                os.pwrite(handle, json.dumps(mark).encode().ljust(_MARK_BYTES), 0)
            finally:
                os.close(handle)
        except OSError as error:
            raise BadInput(self.path, f"cannot be written: {error.strerror}; choose another place with `state`") from error

    def marked(self) -> dict[str, Any]:
        """The mark; empty if there is none or it is damaged."""
        try:
            return dict(json.loads(self._read(self._mark) or b"{}"))
        except (ValueError, TypeError):
            return {}

    def unmark(self) -> None:
        self._mark.unlink(missing_ok=True)

    @property
    def _mark(self) -> Path:
        return Path(self.path) / "reading.json"

    def _entry(self, batch: int) -> Path:
        return Path(self.path) / f"batch-{batch:09}.json"

    def _sound(self, path: Path, remedy: str) -> bytes | None:
        content = self._read(path)
        if content is None:
            return None
        known, _, rest = content.partition(b"\n")
        if known != digest(rest).encode():
            raise BadInput(str(path), f"damaged, or written by an earlier version; {remedy}")
        return rest

    def _read(self, path: Path) -> bytes | None:
        try:
            return path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise BadInput(str(path), f"cannot be read: {error.strerror}") from error

    def _written(self, document: dict[str, Any]) -> Path:
        """Write a new file with a unique name, durably."""
        new = Path(self.path) / f"new-{os.getpid()}-{secrets.token_hex(4)}.tmp"
        try:
            new.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            content = json.dumps(document).encode()
            with new.open("xb") as file:
                file.write(digest(content).encode() + b"\n" + content)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            with suppress(OSError):
                new.unlink(missing_ok=True)
            raise BadInput(
                self.path, f"cannot be written: {error.strerror}; free some space, or choose another place with `state`"
            ) from error
        return new

    def _sync(self) -> None:
        """Make the directory entries durable too."""
        handle = os.open(self.path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
