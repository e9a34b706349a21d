"""A process that reads files for another one, which therefore survives them: its memory and computing time are bounded.

It is handed open files over a socket, answers in JSON, and ends when the socket does.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import socket
import sys
from base64 import b64decode, b64encode
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa

from ppa_core.pipeline.sources.converting import brief
from ppa_core.pipeline.sources.formats import Place, infer_schema, read_piece
from ppa_core.pipeline.sources.limits import Limits, Unfit

HEAD = 4
"""Bytes that say how long a message is."""


def serve(connection: socket.socket) -> None:
    """Answer one request after the other."""
    pa.set_memory_pool(pa.system_memory_pool())
    pa.set_cpu_count(1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # what kills it leaves no image of its memory on the disk
    with suppress(OSError):  # if memory is short, this process goes first and not the one that it reads for
        Path("/proc/self/oom_score_adj").write_text("1000")
    taken = _address_space()
    _send(connection, {"ready": True})
    while request := _receive(connection):
        document, handle = request
        with os.fdopen(handle, "rb") as file:
            answer = _answer(document, file, taken)
        _send(connection, answer)


def _answer(asked: dict[str, Any], file: BinaryIO, taken: int) -> dict[str, Any]:
    limits = Limits.from_document(asked["limits"])
    try:
        _bound(limits, taken)
        if asked["schema"] is None:
            return {"schema": b64encode(infer_schema(asked["kind"], file, limits).serialize()).decode()}
        schema = pa.ipc.read_schema(pa.py_buffer(b64decode(asked["schema"])))
        place, most, stop = Place(*asked["place"]), asked["most"], asked["stop"]
        return read_piece(asked["kind"], file, asked["name"], schema, place, limits, most, stop).extent.document()
    except Unfit as error:
        return {"unfit": error.reason}
    except MemoryError:
        return {"memory": True}
    except OSError as error:
        if error.errno is not None:
            return {"errno": error.errno}
        return {"unfit": f"cannot be read: {brief(error)}"}
    except Exception as error:  # noqa: BLE001 - whatever a library makes of such a file, it is the file that is refused
        return {"unfit": f"cannot be read: {type(error).__name__}: {brief(error)}"}


def _address_space() -> int:
    """What this process has taken of it, in bytes; 0 where that is not told, and not bounded."""
    if sys.platform != "linux":
        return 0
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


def _bound(limits: Limits, taken: int) -> None:
    """Bound what the next request may take, beyond what this process had taken at first."""
    if taken:
        resource.setrlimit(resource.RLIMIT_AS, (taken + limits.memory_bytes, resource.RLIM_INFINITY))
    used = resource.getrusage(resource.RUSAGE_SELF)
    seconds = int(used.ru_utime + used.ru_stime) + 1 + limits.seconds
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, resource.RLIM_INFINITY))


def _receive(connection: socket.socket) -> tuple[dict[str, Any], int] | None:
    head, handles, _, _ = socket.recv_fds(connection, HEAD, 1)
    if not head:
        return None
    content = receive_all(connection, int.from_bytes(head + receive_all(connection, HEAD - len(head))))
    return json.loads(content), handles[0]


def _send(connection: socket.socket, document: dict[str, Any]) -> None:
    content = json.dumps(document).encode()
    connection.sendall(len(content).to_bytes(HEAD) + content)


def receive_all(connection: socket.socket, count: int) -> bytes:
    """So many bytes; EOFError if the other side ends before."""
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
