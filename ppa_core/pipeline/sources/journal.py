"""A journal: one small file a batch, written once and never changed. It is there wholly or not at all, whatever crashes."""

from __future__ import annotations

import json
import os
import secrets
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ppa_core.errors import BadInput
from ppa_core.safety.owned import Owned, is_own, make

_MARK_BYTES = 4096
"""Marks are as long as this, so that one is written over the other at once."""


@dataclass(frozen=True)
class Journal:
    """A directory of entries by batch, notes by name, and a mark. Entries are written once; a note is replaced as a whole."""

    path: str

    def check_owner(self) -> None:
        """Refuse a directory that somebody else made, or a link of theirs: who can write it decides what is read."""
        try:
            own = is_own(Path(self.path))
        except OSError:
            return  # there is none yet
        if not own:
            raise BadInput(self.path, "this place for the state is another user's; remove it, or name another one with `state`")

    def batches(self) -> list[int]:
        """The batches that have an entry, in order."""
        try:
            names = [path.name for path in Path(self.path).iterdir()]
        except FileNotFoundError:
            return []
        except OSError as error:
            raise BadInput(self.path, f"cannot be read: {error.strerror}") from error
        return sorted(int(name[6:-5]) for name in names if name.startswith("batch-") and name.endswith(".json"))

    def entry(self, batch: int) -> bytes | None:
        return self._read(self._entry(batch))

    def add(self, batch: int, entry: dict[str, Any]) -> None:
        """Add an entry, durably; if another process was first, its entry stands."""
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
        """Make its folder, which must be new; what is given back can remove it again."""
        try:
            Path(self.path).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            return make(Path(self.path), purpose)
        except FileExistsError:
            reason = "there are seals of another run of that name, whose nodes are gone or which still runs"
            raise BadInput(self.path, f"{reason}; take another name, or remove what is there") from None
        except OSError as error:
            raise BadInput(self.path, f"cannot be made: {error.strerror}; name another place for the state") from error

    def note(self, name: str) -> dict[str, Any] | None:
        path = Path(self.path) / f"{name}.json"
        content = self._read(path)
        try:
            return None if content is None else dict(json.loads(content))
        except (ValueError, TypeError):
            raise BadInput(str(path), "damaged: no JSON object; remove the file, it is made anew") from None

    def set_note(self, name: str, note: dict[str, Any], replace: bool = True) -> None:
        """Write a note; with `replace` off, one that is there stands."""
        new, place = self._written(note), Path(self.path) / f"{name}.json"
        if replace:
            new.replace(place)
        else:
            with suppress(FileExistsError):
                os.link(new, place)
            new.unlink()
        self._sync()

    def mark(self, mark: dict[str, Any]) -> None:
        """Leave a mark for the process after this one, quickly: it survives the death of processes, not of the machine."""
        try:
            Path(self.path).mkdir(mode=0o700, parents=True, exist_ok=True)
            handle = os.open(self._mark, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
            try:
                os.pwrite(handle, json.dumps(mark).encode().ljust(_MARK_BYTES), 0)
            finally:
                os.close(handle)
        except OSError as error:
            raise BadInput(self.path, f"cannot be written: {error.strerror}; name another place for the state") from error

    def marked(self) -> dict[str, Any]:
        """The mark that is there; nothing if it is damaged."""
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

    def _read(self, path: Path) -> bytes | None:
        try:
            return path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise BadInput(str(path), f"cannot be read: {error.strerror}") from error

    def _written(self, document: dict[str, Any]) -> Path:
        """A new file under a name of its own, safe on disk."""
        new = Path(self.path) / f"new-{os.getpid()}-{secrets.token_hex(4)}.tmp"
        try:
            new.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with new.open("xb") as file:
                file.write(json.dumps(document).encode())
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise BadInput(self.path, f"cannot be written: {error.strerror}; name another place for the state") from error
        return new

    def _sync(self) -> None:
        """Make the directory's names durable too."""
        handle = os.open(self.path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
