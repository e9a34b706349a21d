"""Reads files in a separate process. A file that exhausts or crashes that process is reported as Unfit."""

from __future__ import annotations

import atexit
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from base64 import b64decode, b64encode
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa

from ppa_core.errors import Unavailable
from ppa_core.pipeline.sources.copies import InputCopy
from ppa_core.pipeline.sources.formats import Extent, Place
from ppa_core.pipeline.sources.limits import Limits, Unfit, check_size, size_of
from ppa_core.pipeline.sources.reader import HEAD, receive_all

_ATTEMPTS = 3
"""A reader may be killed for other reasons than the file; if this many die in a row, the file is refused."""


@dataclass(frozen=True)
class ReadRequest:
    """A file to read from a place on."""

    file: BinaryIO
    name: str
    place: Place


def examine(kind: str, file: BinaryIO, name: str, schema: pa.Schema, place: Place, limits: Limits, most: int) -> Extent:
    """What `read_piece` finds there, without the rows. Raises Unfit also if the file exhausts or crashes the reader."""
    found = read_files(kind, [ReadRequest(file, name, place)], schema, limits, most)[0]
    if isinstance(found, Extent):
        return found
    raise found


def read_files(
    kind: str,
    files: list[ReadRequest],
    schema: pa.Schema,
    limits: Limits,
    most: int,
    copy: InputCopy | None = None,
    seconds: float = 0.0,
) -> list[Extent | Unfit | OSError]:
    """Read the files in order and write their rows to the copy: as many as fit, in about `seconds`. The result has at least one
    element, or none if reading several crashed the process: then read the first one alone."""
    try:
        check_size(files[0].file, limits)
    except Unfit as error:
        return [error]
    places = [[each.name, each.place.start, each.place.line] for each in files]
    asked = {"kind": kind, "schema": b64encode(schema.serialize()).decode(), "files": places, "most": most}
    handles = [each.file.fileno() for each in files] + ([copy.handle] if copy else [])
    try:
        answer = _ask(asked | {"copy": copy and copy.length, "seconds": seconds}, handles, limits, len(files) == 1)
    except Unfit as error:
        return [error]
    if answer is None:
        return []
    if copy and "segment" in answer:
        length, digest = answer["segment"]
        copy.segments.append((int(length), str(digest)))
    return [_found(outcome) for outcome in answer["found"]]


def _found(outcome: dict[str, Any]) -> Extent | Unfit | OSError:
    if "unfit" in outcome:
        return Unfit(str(outcome["unfit"]))
    if "errno" in outcome:
        return OSError(int(outcome["errno"]), os.strerror(int(outcome["errno"])))
    return Extent.from_document(outcome)


def start() -> None:
    """Start the reader process if it is not running."""
    with _lock:
        _reader()


def suggested_schema(kind: str, file: BinaryIO, limits: Limits) -> pa.Schema:
    """Infer the schema from the beginning of a file. Raises Unfit if that fails."""
    check_size(file, limits)
    answer = _ask({"kind": kind, "schema": None}, [file.fileno()], limits, True)
    assert answer is not None, "there is one file"
    if "schema" not in answer:
        found = _found(answer)
        assert not isinstance(found, Extent)
        raise found
    return pa.ipc.read_schema(pa.py_buffer(b64decode(answer["schema"])))


def _ask(asked: dict[str, Any], handles: list[int], limits: Limits, alone: bool) -> dict[str, Any] | None:
    """The response. Raises Unfit if the first file exhausts the reader, or is alone and crashes it; None if several did.

    Raises OSError if the copy cannot be written.
    """
    request = json.dumps(asked | {"limits": limits.document()}).encode()
    code = 0
    for _ in range(_ATTEMPTS):
        with _lock:
            reader = _reader()
            answer, code = reader.ask(request, handles)
            if answer is not None and answer.get("memory"):
                reader.end()
        if answer is None:
            if not alone:
                return None
            if code == -signal.SIGXCPU:
                raise Unfit(f"reading a batch of it takes more than {limits.seconds} s of CPU time, the limit seconds")
        elif answer.get("several"):
            return None
        elif answer.get("memory") and not answer.get("found"):
            if reader.asked == 1:  # an older process may hold memory of other files: try a new one first
                more = f"more than {size_of(limits.memory_bytes)} of memory, the limit memory_bytes"
                raise Unfit(f"reading a batch of it takes {more}")
        elif "copy" in answer:
            raise OSError(int(answer["copy"]), os.strerror(int(answer["copy"])))
        else:
            return answer
    raise Unfit(f"it crashed {_ATTEMPTS} processes that tried to read it ({_how(code)})")


def _how(code: int) -> str:
    return signal.Signals(-code).name if code < 0 else f"exit code {code}"


class _Reader:
    """The reader process, seen from the process that uses it."""

    def __init__(self) -> None:
        self.owner, self.asked = os.getpid(), 0
        self.socket, theirs = socket.socketpair()
        code = "from ppa_core.pipeline.sources.reader import main; main()"
        known = {name: os.environ[name] for name in ("PATH", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "TZ") if name in os.environ}
        paths = os.pathsep.join(path or str(Path.cwd()) for path in sys.path)
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-c", code, str(theirs.fileno())],
                env=known | {"PYTHONPATH": paths, "ARROW_DEFAULT_MEMORY_POOL": "system", "OMP_NUM_THREADS": "1"},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
            )
        if not self._answer():
            raise Unavailable(f"the process that reads files did not start ({_how(self.end())}); is there enough memory?")

    @property
    def alive(self) -> bool:
        return self.owner == os.getpid() and self.process.poll() is None

    def ask(self, request: bytes, handles: list[int]) -> tuple[dict[str, Any] | None, int]:
        """The response, or None and the exit code of the process."""
        self.asked += 1
        try:
            socket.send_fds(self.socket, [len(request).to_bytes(HEAD)], handles)
            self.socket.sendall(request)
        except OSError:
            return None, self.end()
        answer = self._answer()
        return (answer, 0) if answer is not None else (None, self.end())

    def _answer(self) -> dict[str, Any] | None:
        try:
            found: dict[str, Any] = json.loads(receive_all(self.socket, int.from_bytes(receive_all(self.socket, HEAD))))
        except (EOFError, OSError, ValueError):
            return None
        return found

    def end(self) -> int:
        """End the process; its exit code."""
        self.socket.close()
        try:
            return self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()


_lock = threading.Lock()
_current: list[_Reader] = []


def _reader() -> _Reader:
    """The reader of this process; started when it is first needed."""
    if _current and not _current[0].alive:
        gone = _current.pop()
        if gone.owner == os.getpid():
            gone.end()
    if not _current:
        try:
            _current.append(_Reader())
        except OSError as error:
            raise Unavailable(f"the process that reads files cannot be started: {error.strerror}") from error
    return _current[0]


def _forked() -> None:
    """A forked process uses its own reader, and closes its handle of the parent's."""
    global _lock
    _lock = threading.Lock()
    for reader in _current:
        reader.socket.close()
        reader.process.returncode = 0  # not this process's child: nothing to wait for
    _current.clear()


@atexit.register
def _end() -> None:
    with suppress(OSError):
        while _current and (reader := _current.pop()).owner == os.getpid():
            reader.end()


os.register_at_fork(after_in_child=_forked)
