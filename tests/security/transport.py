"""A stranger who speaks the protocols of a Spark driver: the block manager's over Spark's transport, and py4j's. No secret."""

from __future__ import annotations

import socket
import struct
from types import TracebackType
from typing import Self

_CHUNK, _CHUNK_HERE, _RPC, _ANSWER = 0, 1, 3, 4
_OPEN_BLOCKS, _UPLOAD_BLOCK = 0, 1
_PATIENCE = 5.0


class Stranger:
    """A connection to a port of this machine; whoever does not answer it, or ends it, has refused."""

    def __init__(self, port: int) -> None:
        self._link = socket.create_connection(("127.0.0.1", port), timeout=_PATIENCE)
        self.refused = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._link.close()

    def read_block(self, name: str) -> bytes | None:
        """A block of the block manager, or None."""
        answer = self._rpc(struct.pack(">B", _OPEN_BLOCKS) + _text("app") + _text("1") + struct.pack(">i", 1) + _text(name))
        if answer is None:
            return None
        stream = answer[1:9]  # after the type; then comes the number of chunks
        found = self._ask(_CHUNK, stream + struct.pack(">i", 0))
        return found[1][12:] if found and found[0] == _CHUNK_HERE else None

    def write_block(self, name: str, metadata: bytes, content: bytes) -> bool:
        """Have the block manager keep a block under this name; whether it says that it does."""
        head = struct.pack(">B", _UPLOAD_BLOCK) + _text("app") + _text("1") + _text(name)
        return self._rpc(head + _sized(metadata) + _sized(content)) is not None

    def call(self, target: str, method: str) -> str | None:
        """The result of a method that a py4j server calls for this client; None if it calls none."""
        try:
            self._link.sendall(f"c\n{target}\n{method}\ne\n".encode())
            answer = self._link.recv(65536).decode(errors="replace")
        except OSError:
            answer = ""
        self.refused = not answer
        return answer[2:].strip() if answer.startswith("!y") else None

    def _rpc(self, body: bytes) -> bytes | None:
        answer = self._ask(_RPC, struct.pack(">qi", 7, len(body)) + body)
        return answer[1][12:] if answer and answer[0] == _ANSWER else None

    def _ask(self, kind: int, message: bytes) -> tuple[int, bytes] | None:
        if self.refused:
            return None
        try:
            self._link.sendall(struct.pack(">qB", 9 + len(message), kind) + message)
            size, kind = struct.unpack(">qB", self._take(9))
            return kind, self._take(size - 9)
        except (OSError, EOFError):
            self.refused = True
            return None

    def _take(self, size: int) -> bytes:
        taken = bytearray()
        while len(taken) < size:
            part = self._link.recv(min(65536, size - len(taken)))
            if not part:
                raise EOFError
            taken += part
        return bytes(taken)


def _sized(content: bytes) -> bytes:
    return struct.pack(">i", len(content)) + content


def _text(text: str) -> bytes:
    return _sized(text.encode())
