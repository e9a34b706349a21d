"""The supervisor: a small process that starts servers, kills them on request, and ends with its parent (`supervised.py`).

It runs as a script and imports only the standard library. It reads one JSON request per line from standard input and writes one
JSON answer per line to standard output:

    ["start", name, command, config]            {"pid": …} or {"error": …}; it reads its configuration from standard input
    ["run", name, command, environment, log]    the same; in a new session, with its output in the file `log`
    ["kill", name]                              {}; all processes of its session are killed too
    ["log", name]                               {"running": …, "log": …}
    ["folder", prefix] or [… , directory]       {"folder": …} or {"error": …}; a private folder, removed when this process ends
    ["at end", command]                         {}; the command runs when this process ends, after its children have ended

Why a process: servers must also end if the parent is SIGKILLed. The kernel's parent-death signal is not enough: it is sent
when the *thread* that started the child ends, and it is set between fork and exec, which is unsafe in a program with threads.
This process has one thread, so both are safe here: its servers get that signal if the supervisor itself is SIGKILLed. The
supervisor ends when its standard input ends or, if a forked child of the parent keeps that open, when its parent process id
changes. It has its own session, so that Ctrl-C reaches only the parent.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from typing import IO, Any

_PR_SET_PDEATHSIG = 1
_LOOK_AGAIN = 0.5
_SHORTLY = 0.005
_END_SECONDS = 5.0
_LIBC = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


class Children:
    """The children by name, each with the file that it writes its log to."""

    def __init__(self) -> None:
        self._running: dict[str, tuple[subprocess.Popen[bytes], IO[bytes]]] = {}
        self._folders: list[str] = []
        self._at_end: list[list[str]] = []

    def answer(self, request: list[Any]) -> dict[str, Any]:
        match request:
            case ["start", name, command, config]:
                return self._start(name, command, config)
            case ["kill", name]:
                self._kill(name)
                return {}
            case ["log", name]:
                return self._log(name)
            case ["folder", prefix, *directory]:
                return self._folder(prefix, *directory)
            case ["run", name, command, environment, log]:
                return self._run(name, command, environment, log)
            case ["at end", command]:
                self._at_end.append(command)
                return {}
        raise ValueError(f"no such request: {request[:2]}")

    def end(self) -> None:
        for name in list(self._running):
            self._kill(name)
        for command in self._at_end:
            with suppress(OSError, subprocess.SubprocessError):
                subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=_END_SECONDS, cwd="/")
        for folder in self._folders:
            shutil.rmtree(folder, ignore_errors=True)

    def _folder(self, prefix: str, directory: str | None = None) -> dict[str, Any]:
        try:
            self._folders.append(tempfile.mkdtemp(prefix=prefix, dir=directory))
        except OSError as error:
            return {"error": str(error)}
        return {"folder": self._folders[-1]}

    def _start(self, name: str, command: list[str], config: str) -> dict[str, Any]:
        """The config is passed on standard input, so that the password is neither on a command line nor in a file."""
        log = tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as the child
        answer = self._launch(name, log, command, stdin=subprocess.PIPE)
        if "pid" in answer:
            stdin = self._running[name][0].stdin
            assert stdin
            with suppress(BrokenPipeError):  # it has ended; its log says why
                stdin.write(config.encode())
                stdin.close()
        return answer

    def _run(self, name: str, command: list[str], environment: dict[str, str], path: str) -> dict[str, Any]:
        try:
            log = open(path, "a+b")  # noqa: SIM115, PTH123 - it lives as long as the child
        except OSError as error:
            return {"error": str(error)}
        return self._launch(name, log, command, stdin=subprocess.DEVNULL, env=environment, start_new_session=True)

    def _launch(self, name: str, log: IO[bytes], command: list[str], **options: Any) -> dict[str, Any]:
        bound = partial(die_with, os.getpid())
        try:
            child = subprocess.Popen(command, stdout=log, stderr=log, cwd="/", preexec_fn=bound, **options)
        except OSError as error:
            log.close()
            return {"error": error.strerror or str(error)}
        self._running[name] = child, log
        return {"pid": child.pid}

    def _kill(self, name: str) -> None:
        if name in self._running:
            child, log = self._running.pop(name)
            child.kill()
            _kill_session(child.pid)  # before its process id can be reused
            child.wait()
            log.close()

    def _log(self, name: str) -> dict[str, Any]:
        if name not in self._running:
            return {"running": False, "log": ""}
        child, log = self._running[name]
        log.seek(max(0, log.seek(0, os.SEEK_END) - 2000))
        return {"running": child.poll() is None, "log": log.read().decode(errors="replace")}


def _kill_session(leader: int) -> None:
    """Kill all processes in a session, until none is left. Does nothing on a system without /proc."""
    end = time.monotonic() + _END_SECONDS
    while (members := _members(leader)) and time.monotonic() < end:
        for pid in members:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(_SHORTLY)


def _members(leader: int) -> list[int]:
    """The running processes of a session, without its leader."""
    found = []
    for pid in map(int, filter(str.isdecimal, os.listdir("/proc") if os.path.isdir("/proc") else ())):  # noqa: PTH112, PTH208
        with suppress(OSError), open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123
            state, _, _, session, *_ = file.read().rpartition(b")")[2].split()
            if pid != leader and int(session) == leader and state not in b"ZX":
                found.append(pid)
    return found


def die_with(parent: int) -> None:
    """Called in a child between fork and exec: it will end with its parent, even if that is killed."""
    if _LIBC:
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it ended before the signal was set
        os._exit(1)


def _requests(launcher: int) -> Iterator[list[Any]]:
    """Requests, until the parent process has ended."""
    waiting = b""
    while os.getppid() == launcher:
        if select.select([0], [], [], _LOOK_AGAIN)[0]:
            content = os.read(0, 1 << 16)
            if not content:
                return
            *lines, waiting = (waiting + content).split(b"\n")
            yield from map(json.loads, lines)


def main() -> None:
    children = Children()
    for ending in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(ending, lambda *_: sys.exit(0))
    try:
        for request in _requests(int(sys.argv[1])):
            os.write(1, json.dumps(children.answer(request)).encode() + b"\n")
    except BrokenPipeError:
        pass  # the parent has ended
    finally:
        children.end()


if __name__ == "__main__":
    main()
