"""The process of the embedded server. It is started with a folder's history by a supervisor that ends with this process.

It listens only on a Unix socket in a folder that only its owner can access, so other users of the machine cannot connect. The
socket is beside the history. If that path is too long for a socket, or the folder is not private, a new private folder is made.
"""

from __future__ import annotations

import json
import logging
import os
import secrets
import signal
import socket
import struct
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from redis.exceptions import BusyLoadingError, RedisError

from monitoring import acl
from monitoring.connection import SERVER_FILE, MonitorDown, embedded_url, last_start, private_socket
from ppa_core.errors import Unavailable
from ppa_core.nodes.acl import quoted
from ppa_core.nodes.servers import Program, find_program
from ppa_core.process.supervised import Supervised
from ppa_core.redis_client import open_redis
from ppa_core.safety.owned import written_whole

_log = logging.getLogger(__name__)

_START_SECONDS = 30.0
_ASK_SECONDS = 1.0
_END_SECONDS = 10.0
_MAX_PATH = 103
"""Maximum length of a socket's path: 107 on Linux, 103 on macOS. Redis cuts off longer paths."""
_SOCKET = "monitor.sock"
_CHILD = "the monitor"
"""The server's name in the supervisor."""
_MANIFEST = Path("appendonlydir", "monitor.aof.manifest")
"""The list of history files of Redis 7 and later, and of Valkey. Redis 6.2 has a single file and ignores this one."""
_CONFIG = """
port 0
unixsocket {socket}
unixsocketperm 600
dir {directory}
save ""
appendonly yes
appendfilename monitor.aof
appendfsync everysec
aof-use-rdb-preamble yes
auto-aof-rewrite-percentage 100
auto-aof-rewrite-min-size 64mb
maxmemory {memory}mb
maxmemory-policy noeviction
daemonize no
databases 1
loglevel warning
logfile ""
{users}
"""


class MonitorProcess:
    """A server that this process started, its supervisor, and the lock that marks the owner."""

    def __init__(self, directory: Path, lock: IO[str], memory_mb: int) -> None:
        self.directory, self.memory_mb = directory, memory_mb
        self.pid = 0
        """The process id of the server that answers, or of the last one that did."""
        self._lock, self._socket = lock, ""
        self._program = find_program()
        _check_history(directory, self._program)
        _end_orphan(directory)
        self._supervisor = Supervised("the embedded monitor has stopped, because its supervisor process ended; start it again")
        try:
            for place in self._places():
                self._socket = place
                if self.start():
                    return
            raise Unavailable(f"the monitor: no folder for its socket; make {str(directory)!r} or /tmp writable")
        except BaseException:
            self.close()
            raise

    def start(self) -> bool:
        """Start the server and wait until it has loaded its history; False if it cannot create the socket."""
        self.kill()  # in case the previous one still runs
        passwords = self._write_down({})
        config = _CONFIG.format(
            socket=quoted(self._socket), directory=quoted(str(self.directory)), memory=self.memory_mb,
            users=acl.config(passwords),
        )  # fmt: skip
        pid = self._supervisor.start(_CHILD, self._program.path, config)
        self._write_down({"pid": pid})
        end = time.monotonic() + _START_SECONDS
        while not (state := answers(self.directory)):
            if state is None:  # it is loading its history, which may take long
                end = time.monotonic() + _START_SECONDS
            child = self._supervisor.state(_CHILD)
            if not child.running or time.monotonic() > end:
                log = " ".join(child.log.split())
                if "unix socket" in log.lower():
                    return False
                raise Unavailable(f"{_CHILD}: {self._program.path} did not start: {_reason(log, self.directory)}")
            time.sleep(0.02)
        self.pid = pid
        return True

    def _write_down(self, others: dict[str, Any]) -> dict[str, str]:
        """Write the server file; returns each user's password, which is kept between starts."""
        kept = last_start(self.directory).get("passwords")
        found = {role: kept.get(role) if isinstance(kept, dict) else None for role in acl.RULES}
        passwords = {
            role: known if isinstance(known, str) and len(known) >= 20 else secrets.token_urlsafe(24)
            for role, known in found.items()
        }
        with written_whole(self.directory / SERVER_FILE, mode=0o600) as file:
            file.write(json.dumps({"socket": self._socket, "passwords": passwords, **others}, indent=1).encode())
        return passwords

    def _places(self) -> Iterator[str]:
        """Paths for the socket, each in a private folder."""
        beside, folder = str(self.directory / _SOCKET), self.directory.stat()
        if _fits(beside) and folder.st_uid == os.getuid() and not folder.st_mode & 0o077:
            yield beside
        for base in (tempfile.gettempdir(), "/tmp"):
            try:
                place = str(self._supervisor.folder("ppa-monitor-", str(Path(base).absolute())) / _SOCKET)
            except OSError:
                _log.info("no folder for the monitor's socket", exc_info=True)
                continue
            if _fits(place):
                yield place

    def kill(self) -> None:
        """SIGKILL the server; it has ended when this returns."""
        self._supervisor.kill(_CHILD)

    def running(self) -> bool:
        return self._supervisor.state(_CHILD).running

    def close(self) -> None:
        self._supervisor.close()
        self._remove_socket()
        self._lock.close()

    def _remove_socket(self) -> None:
        """Remove what a killed server or a killed supervisor leaves: the socket and its folder."""
        if self._socket:
            path = Path(self._socket)
            with suppress(OSError):
                path.unlink(missing_ok=True)
                if path.parent != self.directory:
                    path.parent.rmdir()


def answers(directory: Path) -> bool | None:
    """Whether the folder's server answers; None while it loads its history."""
    try:
        with open_redis(embedded_url(directory, "reader"), _ASK_SECONDS) as client:
            return bool(client.ping())
    except BusyLoadingError:
        return None
    except (RedisError, OSError, MonitorDown):
        _log.debug("the embedded monitor does not answer", exc_info=True)
        return False


def _check_history(directory: Path, program: Program) -> None:
    """Refuse a server that would ignore the existing history and start an empty one."""
    if int(program.version.partition(".")[0]) < 7 and (directory / _MANIFEST).exists():
        raise Unavailable(
            f"the monitor: its history in {str(directory)!r} was written by Redis 7 or later, or Valkey, and "
            f"{program.product} {program.version} ({program.path}) cannot read it: install such a server, or set "
            "PPA_REDIS_SERVER to its path, or choose another folder to start a new history"
        )


def _reason(log: str, directory: Path) -> str:
    """Why a server did not start, from its log."""
    if "RDB format version" in log:
        return f"the history in {str(directory)!r} is of a later version; install that version, or choose another folder"
    return log[-300:] or f"no answer in {_START_SECONDS:g} s"


def _end_orphan(directory: Path) -> None:
    """Wait until the server of an owner that has ended has ended too: two servers would damage the history.

    The kernel says which process listens on the socket. It is killed only if it is the process that was started here.
    """
    known = last_start(directory)
    try:
        path = private_socket(directory, known)
    except (KeyError, ValueError):
        return
    started, end = known.get("pid"), time.monotonic() + _END_SECONDS
    while (listening := _listening(path)) is not None:
        if time.monotonic() > end:
            who = f"process {listening[0]} of user {listening[1]}" if listening[0] else "an unknown process"
            raise Unavailable(f"the monitor: {who} listens on {path!r} and does not end; end it first")
        if listening == (started, os.getuid()):
            with suppress(ProcessLookupError, PermissionError):
                os.kill(listening[0], signal.SIGKILL)
        time.sleep(0.02)


def _listening(path: str) -> tuple[int, int] | None:
    """The process that listens on a socket, and its user; (0, 0) if unknown, None if there is none."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.settimeout(1.0)
            probe.connect(path)
        except (TimeoutError, BlockingIOError):  # it listens but does not accept
            return 0, 0
        except (OSError, ValueError):
            return None
        if sys.platform != "linux":
            return 0, 0
        pid, user, _ = struct.unpack("3i", probe.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")))
        return pid, user


def _fits(path: str) -> bool:
    return len(os.fsencode(path)) <= _MAX_PATH and path.isprintable()
