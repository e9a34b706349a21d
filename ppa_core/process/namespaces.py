"""Network namespaces: made, entered and removed with iproute2. This needs Linux and root."""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from ppa_core.errors import Unavailable

_FOLDER = Path("/run/netns")
_SECONDS = 10.0
_SHORTLY = 0.005
_CLONE_NEWNET = 0x40000000

Result = TypeVar("Result")


@dataclass(frozen=True)
class Namespace:
    """A named network namespace. Processes keep it alive after it is removed, without its name."""

    name: str

    @property
    def path(self) -> Path:
        return _FOLDER / self.name

    @property
    def prefix(self) -> tuple[str, ...]:
        """A command that replaces itself by another one, in this namespace.

        Not `ip netns exec`: that hides /sys/fs/cgroup, where Java finds how much memory and how many cores it may use.
        """
        return ("nsenter", f"--net={self.path}", "--")

    @property
    def removal(self) -> tuple[str, ...]:
        """The command that removes it, with all its interfaces."""
        return (_program("ip"), "netns", "delete", self.name)

    def create(self) -> None:
        ip(["netns", "add", self.name])

    def remove(self) -> None:
        """Remove it; does nothing if it does not exist."""
        with suppress(Unavailable):
            ip(["netns", "delete", self.name])

    def set_up(self, *commands: str) -> None:
        """Run commands of `ip` in this namespace, such as "link set lo up"."""
        ip(["-n", self.name, "-batch", "-"], "".join(f"{command}\n" for command in commands))

    def call(self, function: Callable[[], Result]) -> Result:
        """Call a function in this namespace, in a thread of its own. Sockets that it opens stay in this namespace."""

        def enter() -> Result:
            _enter(self.path)
            return function()

        with ThreadPoolExecutor(1) as thread:
            return thread.submit(enter).result()

    def pids(self) -> list[int]:
        """All processes in this namespace, zombies excepted."""
        try:
            own = _identity(self.path)
        except OSError:
            return []
        found = []
        for pid in map(int, filter(str.isdecimal, os.listdir("/proc"))):  # noqa: PTH208
            with suppress(OSError):
                if _identity(Path(f"/proc/{pid}/ns/net")) == own and state_of(pid) not in "ZX":
                    found.append(pid)
        return found


def signal_until(
    number: signal.Signals, processes: Callable[[], Iterable[int]], done: Callable[[int], bool] = lambda pid: False
) -> None:
    """Send a signal to processes, also to those that they start in the meantime, until all are `done` or none is left.

    Unavailable if that takes long.
    """
    end = time.monotonic() + _SECONDS
    while waiting := [pid for pid in processes() if not done(pid)]:
        if time.monotonic() > end:
            raise Unavailable(f"processes {', '.join(map(str, waiting))} did not follow {number.name} in {_SECONDS:g} s")
        for pid in waiting:
            with suppress(ProcessLookupError):
                os.kill(pid, number)
        time.sleep(_SHORTLY)


def state_of(pid: int) -> str:
    """The state of a process, as in /proc: T is stopped, Z has ended; X if there is no such process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[0]
    except OSError:
        return "X"


def all_names() -> list[str]:
    """The names of all namespaces of this machine, including those of others."""
    with suppress(OSError):
        return sorted(path.name for path in _FOLDER.iterdir())
    return []


def check_usable() -> None:
    """Unavailable, with the remedy, where network namespaces cannot be made."""
    if not hasattr(os, "geteuid") or not Path("/proc/self/ns/net").exists():
        raise Unavailable("the test bed needs network namespaces, which only Linux has: use a machine or container with Linux")
    if os.geteuid() != 0:
        raise Unavailable("the test bed makes network namespaces, and only root may: start it as root, for example with sudo")
    for program, package in (("ip", "iproute2"), ("nsenter", "util-linux")):
        if shutil.which(program) is None:
            raise Unavailable(f"the test bed needs the program {program!r}: 'apt-get install {package}' installs it")


def ip(arguments: list[str], commands: str = "") -> str:
    """Run `ip`; its output. Unavailable if it fails."""
    try:
        done = subprocess.run(
            [_program("ip"), *arguments], input=commands, capture_output=True, text=True, timeout=_SECONDS, cwd="/"
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise Unavailable(f"'ip {' '.join(arguments)}' failed: {error}") from error
    if done.returncode:
        reason = " ".join(done.stderr.split())[-300:]
        remedy = "in a container, the test bed needs the capabilities SYS_ADMIN and NET_ADMIN (docker run --privileged)"
        raise Unavailable(f"'ip {' '.join(arguments)}' failed: {reason}; {remedy}")
    return done.stdout


def _program(name: str) -> str:
    return shutil.which(name) or name


def _identity(path: Path) -> tuple[int, int]:
    known = path.stat()
    return known.st_dev, known.st_ino


def _enter(path: Path) -> None:
    """Move the calling thread, and no other, to a namespace."""
    libc: Any = ctypes.CDLL(None, use_errno=True)
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if libc.setns(handle, _CLONE_NEWNET):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), str(path))
    finally:
        os.close(handle)
