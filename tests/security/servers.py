"""Redis servers for tests: every program on this machine, and a server that listens on loopback, as users run them."""

from __future__ import annotations

import secrets
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from redis import Redis
from redis.exceptions import ConnectionError as NoConnection

from ppa_core.nodes import servers
from ppa_core.placement.nodes import Node

BUNDLED = next(servers._bundled(), None)
PROGRAMS = {str(Path(path).resolve()): path for path in (*servers._on_path(), *servers._bundled())}.values()


def _backported(path: str) -> bool:
    """Whether a program is patched although its version says that it is not."""
    program = servers._program(path)
    return program is not None and program.patched and not servers.is_patched(program.product, program.version)


BACKPORTED = next(filter(_backported, PROGRAMS), None)


@contextmanager
def listening(program: str) -> Iterator[Node]:
    """A server on a port of loopback, with a password."""
    password = secrets.token_urlsafe(12)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    config = f'bind 127.0.0.1\nport {port}\nrequirepass {password}\nsave ""\nappendonly no\n'
    node = Node("n1", "r1", "primary", f"redis://:{password}@127.0.0.1:{port}")
    with subprocess.Popen([program, "-"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, cwd="/") as server:
        assert server.stdin
        server.stdin.write(config.encode())
        server.stdin.close()
        try:
            with Redis.from_url(node.url, protocol=2) as client:
                _await(client)
            yield node
        finally:
            server.kill()


def _await(client: Redis) -> None:
    end = time.monotonic() + 20
    while True:
        try:
            client.ping()
            return
        except NoConnection:
            assert time.monotonic() < end
            time.sleep(0.02)
