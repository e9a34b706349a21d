"""Which sessions may upload files to the dashboard, and how many files are kept."""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock

from streamlit import runtime
from streamlit.runtime.memory_uploaded_file_manager import MemoryUploadedFileManager

from monitoring.access import holds

_MOST_SESSIONS = 1_000


class Uploads:
    """Keeps the last `each` files of a session and the last `most` of all; accepts `at_once` uploads at the same time."""

    def __init__(self, most: int = 30, each: int = 3, at_once: int = 8) -> None:
        self._most, self._each, self._at_once = most, each, at_once
        self._allowed: OrderedDict[str, str | None] = OrderedDict()
        self._files: OrderedDict[tuple[str, str], None] = OrderedDict()
        self._going = 0
        self._lock = Lock()

    def allow(self, session: str, known: str | None) -> None:
        """Allow a session to upload. `known` is the password hash that it logged in with, None if no login is required."""
        with self._lock:
            self._allowed.pop(session, None)
            self._allowed[session] = known
            while len(self._allowed) > _MOST_SESSIONS:
                self._allowed.popitem(last=False)

    def may(self, session: str) -> bool:
        """Whether the session may upload: it was allowed to, and its login is still valid."""
        with self._lock:
            if session not in self._allowed:
                return False
            known = self._allowed[session]
        return known is None or holds(known)

    def begin(self) -> bool:
        """Start an upload; False if there are too many at the same time."""
        with self._lock:
            free = self._going < self._at_once
            self._going += free
            return free

    def end(self, session: str, file: str) -> None:
        """End an upload, and delete the oldest files above the limits."""
        with self._lock:
            self._going -= 1
            self._files.pop((session, file), None)
            self._files[session, file] = None
            own = [key for key in self._files if key[0] == session]
            gone = {*own[: -self._each], *list(self._files)[: -self._most]}
            for key in gone:
                del self._files[key]
        manager = runtime.get_instance().uploaded_file_mgr
        if isinstance(manager, MemoryUploadedFileManager):
            for key in gone:
                manager.remove_file(*key)


UPLOADS = Uploads()
"""Shared by the whole server: pages allow uploads, the guard checks them."""
