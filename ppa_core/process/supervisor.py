"""The supervisor: a small process that starts servers, kills them on request, and ends with its launcher (`supervised.py`).

It runs as a script and imports nothing but the standard library. One request a line on standard input, one answer a line on
standard output, both JSON: `["start", name, executable, config]`, `["kill", name]`, `["log", name]`; the answer is
`{"pid": …}` or `{"error": …}`, `{}`, `{"running": …, "log": …}`. `["folder", prefix]`, or with a directory
to make it in, makes a folder that only its owner can enter and that goes when this process ends: `{"folder": …}` or
`{"error": …}`. `["run", name, command, environment, log]` starts a server in a session of its own, with its
output in the file `log`; whatever it starts in turn is killed with it.

Why a process: servers must also end when the launcher is SIGKILLed. The kernel's parent-death signal alone will not do: it
comes when the *thread* that started the child ends, and it is set between fork and exec, which is unsafe in a launcher with
threads. This process has one thread, so here both are sound: its servers get that signal in case it is SIGKILLed itself. It
ends with its launcher because its standard input ends then or, should a forked child of the launcher hold that open, because
its parent changes. It has a session of its own, so an interrupt from the keyboard reaches the launcher alone.
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

    def answer(self, request: list[Any]) -> dict[str, Any]:
        match request:
            case ["start", name, executable, config]:
                return self._start(name, executable, config)
            case ["kill", name]:
                self._kill(name)
                return {}
            case ["log", name]:
                return self._log(name)
            case ["folder", prefix, *directory]:
                return self._folder(prefix, *directory)
            case ["run", name, command, environment, log]:
                return self._run(name, command, environment, log)
        raise ValueError(f"no such request: {request[:2]}")

    def end(self) -> None:
        for name in list(self._running):
            self._kill(name)
        for folder in self._folders:
            shutil.rmtree(folder, ignore_errors=True)

    def _folder(self, prefix: str, directory: str | None = None) -> dict[str, Any]:
        try:
            self._folders.append(tempfile.mkdtemp(prefix=prefix, dir=directory))
        except OSError as error:
            return {"error": str(error)}
        return {"folder": self._folders[-1]}

    def _start(self, name: str, executable: str, config: str) -> dict[str, Any]:
        """The config goes in on standard input: neither a command line nor a file shows the password."""
        log = tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as the child
        answer = self._launch(name, log, [executable, "-"], stdin=subprocess.PIPE)
        if "pid" in answer:
            stdin = self._running[name][0].stdin
            assert stdin
            with suppress(BrokenPipeError):  # it has ended already; its log says why
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
            _kill_session(child.pid)  # before its number is free for another process
            child.wait()
            log.close()

    def _log(self, name: str) -> dict[str, Any]:
        if name not in self._running:
            return {"running": False, "log": ""}
        child, log = self._running[name]
        log.seek(max(0, log.seek(0, os.SEEK_END) - 2000))
        return {"running": child.poll() is None, "log": log.read().decode(errors="replace")}


def _kill_session(leader: int) -> None:
    """Kill all that a session's leader has started, until nothing is left; without /proc they must notice themselves."""
    end = time.monotonic() + _END_SECONDS
    while (members := _members(leader)) and time.monotonic() < end:
        for pid in members:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(_SHORTLY)


def _members(leader: int) -> list[int]:
    """The living processes of a session but its leader."""
    found = []
    for pid in map(int, filter(str.isdecimal, os.listdir("/proc") if os.path.isdir("/proc") else ())):  # noqa: PTH112, PTH208
        with suppress(OSError), open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123
            state, _, _, session, *_ = file.read().rpartition(b")")[2].split()
            if pid != leader and int(session) == leader and state not in b"ZX":
                found.append(pid)
    return found


def die_with(parent: int) -> None:
    """In a child, before it becomes another program: end with its parent, however that ends."""
    if _LIBC:
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it ended before the signal was set
        os._exit(1)


def _requests(launcher: int) -> Iterator[list[Any]]:
    """Requests until the launcher is gone."""
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
        pass  # nobody is left to answer
    finally:
        children.end()


if __name__ == "__main__":
    main()
