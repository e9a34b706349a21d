"""A process that reads untrusted files for another one, with limited memory and CPU time, so that only it can crash.

It receives open files over a socket, and one to write their rows to; it responds in JSON, and exits when the socket is closed.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import socket
import sys
import time
from base64 import b64decode, b64encode
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from ppa_core.pipeline.sources.converting import brief
from ppa_core.pipeline.sources.copies import write_segment
from ppa_core.pipeline.sources.formats import Place, infer_schema, read_piece
from ppa_core.pipeline.sources.limits import Limits, Unfit

HEAD = 4
"""Bytes of a message's length prefix."""

MOST_FILES = 100
"""Maximum number of input files in one message; a copy may be added."""


def serve(connection: socket.socket) -> None:
    """Handle one request after the other."""
    pa.set_memory_pool(pa.system_memory_pool())
    pa.set_cpu_count(1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # no core dumps
    with suppress(OSError):  # if memory runs out, the kernel kills this process first
        Path("/proc/self/oom_score_adj").write_text("1000")
    taken = _address_space()
    _send(connection, {"ready": True})
    while request := _receive(connection):
        document, handles = request
        try:
            answer = _answer(document, handles, taken)
        finally:
            for handle in handles:
                os.close(handle)
        _send(connection, answer)


def _answer(asked: dict[str, Any], handles: list[int], taken: int) -> dict[str, Any]:
    """Read the first of the requested files, and others while there is room and time.

    If rows are to be copied, the last handle is that of the copy.
    """
    limits = Limits.from_document(asked["limits"])
    if asked["schema"] is None:
        return _outcome(lambda: _suggested(asked["kind"], handles[0], limits), limits, taken) or {"memory": True}
    schema = pa.ipc.read_schema(pa.py_buffer(b64decode(asked["schema"])))
    tables: list[pa.Table] = []
    found: list[dict[str, Any]] = []
    room, size, until = asked["most"], limits.batch_bytes, time.monotonic() + asked["seconds"]

    def next_piece(handle: int, name: str, place: Place) -> dict[str, Any]:
        with open(handle, "rb", closefd=False) as file:
            piece = read_piece(asked["kind"], file, name, schema, place, limits, room)
        if piece.table.num_rows:
            tables.append(piece.table)
        return piece.extent.document()

    for (name, *place), handle in zip(asked["files"], handles, strict=False):
        outcome = _outcome(partial(next_piece, handle, name, Place(*place)), limits, taken)
        if outcome is None:
            break
        found.append(outcome)
        if "rows" in outcome:
            room, size = room - outcome["rows"] - outcome["refusals"]["count"], size - outcome["bytes"]
        else:
            room -= 1
        if room <= 0 or size <= 0 or not outcome.get("ended", True) or time.monotonic() > until:
            break
    answer: dict[str, Any] = {"found": found, "memory": len(found) < 1 or outcome is None}
    if asked["copy"] is not None and tables:
        try:
            answer["segment"] = write_segment(handles[-1], asked["copy"], tables)
        except MemoryError:
            return {"found": [], "memory": True, "several": len(found) > 1}  # together they need too much memory
        except OSError as error:
            return {"copy": error.errno}
    return answer


def _suggested(kind: str, handle: int, limits: Limits) -> dict[str, Any]:
    with open(handle, "rb", closefd=False) as file:
        return {"schema": b64encode(infer_schema(kind, file, limits).serialize()).decode()}


def _outcome(read: Callable[[], dict[str, Any]], limits: Limits, taken: int) -> dict[str, Any] | None:
    """The result of reading a file; None if there is not enough memory."""
    try:
        _bound(limits, taken)
        return read()
    except Unfit as error:
        return {"unfit": error.reason}
    except MemoryError:
        return None
    except OSError as error:
        if error.errno is not None:
            return {"errno": error.errno}
        return {"unfit": f"cannot be read: {brief(error)}"}
    # Not logged: the files are not trusted, so this process has neither a log nor a standard error (`reading.py`). Its answer
    # has the reason, which the run reports with the refused file.
    except Exception as error:  # noqa: BLE001 - any error of a library means that the file is refused
        return {"unfit": f"cannot be read: {type(error).__name__}: {brief(error)}"}


def _address_space() -> int:
    """The address space of this process in bytes; 0 on systems where it is not known and not limited."""
    if sys.platform != "linux":
        return 0
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


def _bound(limits: Limits, taken: int) -> None:
    """Limit the memory and CPU time of the next request, in addition to what the process used at the start."""
    if taken:
        resource.setrlimit(resource.RLIMIT_AS, (taken + limits.memory_bytes, resource.RLIM_INFINITY))
    used = resource.getrusage(resource.RUSAGE_SELF)
    seconds = int(used.ru_utime + used.ru_stime) + 1 + limits.seconds
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, resource.RLIM_INFINITY))


def _receive(connection: socket.socket) -> tuple[dict[str, Any], list[int]] | None:
    head, handles, _, _ = socket.recv_fds(connection, HEAD, MOST_FILES + 1)
    if not head:
        return None
    content = receive_all(connection, int.from_bytes(head + receive_all(connection, HEAD - len(head))))
    return json.loads(content), handles


def _send(connection: socket.socket, document: dict[str, Any]) -> None:
    content = json.dumps(document).encode()
    connection.sendall(len(content).to_bytes(HEAD) + content)


def receive_all(connection: socket.socket, count: int) -> bytes:
    """Receive `count` bytes. Raises EOFError if the connection is closed before."""
    content = bytearray()
    while len(content) < count:
        part = connection.recv(count - len(content))
        if not part:
            raise EOFError
        content += part
    return bytes(content)


def main() -> None:
    with suppress(EOFError, ConnectionError, BrokenPipeError), socket.socket(fileno=int(sys.argv[1])) as connection:
        serve(connection)


if __name__ == "__main__":
    main()
