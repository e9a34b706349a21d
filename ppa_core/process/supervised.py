"""The client of a supervisor process (`supervisor.py` says why there is one).

Embedded nodes, the embedded monitor, the Spark cluster and the test bed are children of a supervisor: they end with `close`,
and with this process, even if it is killed.
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ppa_core.errors import Unavailable
from ppa_core.process import supervisor

_log = logging.getLogger(__name__)

_END_SECONDS = 15.0
"""Time for the supervisor to kill its children and remove its folders; after that it is killed, and its children with it."""


class SupervisorGone(Unavailable):
    """The supervisor has ended, and with it all its children."""


@dataclass(frozen=True)
class ChildState:
    running: bool
    log: str
    """The end of its standard output and standard error."""


class Supervised:
    """A supervisor and its children, by name. Can be shared by threads; requests are sent one at a time.

    `gone` is the message of SupervisorGone, which every request raises once the supervisor has ended.
    """

    def __init__(self, gone: str) -> None:
        self._gone = gone
        self._lock = threading.Lock()
        self._process = subprocess.Popen(
            [sys.executable, "-I", supervisor.__file__, str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,
        )
        assert self._process.stdin and self._process.stdout
        self._requests, self._answers = self._process.stdin, self._process.stdout

    @property
    def pid(self) -> int:
        """The supervisor's process id."""
        return self._process.pid

    def start(self, name: str, executable: str, config: str, prefix: Sequence[str] = ()) -> int:
        """Start a server that reads its configuration from standard input; its process id. Unavailable if that fails.

        `prefix` is a command that replaces itself by the server, such as nsenter.
        """
        command = [*prefix, executable, "-"]
        return self._started(name, command[0], self._request("start", name, command, config))

    def run(self, name: str, command: Sequence[str], environment: Mapping[str, str], log: Path) -> int:
        """Start a command in a new session, with its output in `log`; its process id. Its children are killed with it."""
        return self._started(name, command[0], self._request("run", name, list(command), dict(environment), str(log)))

    def kill(self, name: str) -> None:
        """SIGKILL a child; it has ended when this returns. Does nothing if it is not running."""
        self._request("kill", name)

    def state(self, name: str) -> ChildState:
        return ChildState(**self._request("log", name))

    def folder(self, prefix: str, directory: str | None = None) -> Path:
        """Create a private folder, which is removed when the supervisor ends. OSError if that fails."""
        answer = self._request("folder", prefix, *([] if directory is None else [directory]))
        if "error" in answer:
            raise OSError(answer["error"])
        return Path(answer["folder"])

    def at_end(self, command: Sequence[str]) -> None:
        """Run a command when the supervisor ends, after all its children: to remove what no process owns."""
        self._request("at end", list(command))

    def close(self) -> None:
        """End all children and the supervisor; they have ended when this returns. Later requests raise SupervisorGone."""
        with self._lock:
            self._requests.close()  # the supervisor ends when its input ends
            try:
                self._process.wait(_END_SECONDS)
            except subprocess.TimeoutExpired:
                _log.warning("supervisor %d does not end; it is killed", self._process.pid)
                self._process.kill()
                self._process.wait()
            self._answers.close()

    def _started(self, name: str, executable: str, answer: Mapping[str, Any]) -> int:
        if "error" in answer:
            raise Unavailable(f"{name}: {executable} cannot be started: {answer['error']}")
        return int(answer["pid"])

    def _request(self, *request: Any) -> dict[str, Any]:
        with self._lock:
            try:
                self._requests.write(json.dumps(request).encode() + b"\n")
                answer = self._answers.readline()
            except (OSError, ValueError):
                _log.info("the supervisor does not answer", exc_info=True)
                answer = b""
        if not answer:
            raise SupervisorGone(self._gone)
        found: dict[str, Any] = json.loads(answer)
        return found
