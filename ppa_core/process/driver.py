"""A driver as a child process: it reports events, takes commands, and can be killed together with all its children."""

from __future__ import annotations

import json
import logging
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from ppa_core.closeable import Closeable
from ppa_core.driver.config import Config
from ppa_core.driver.executors import busy_executor, children, on_a_cluster, worker_of
from ppa_core.driver.stalls import runs_daemon
from ppa_core.engine.event_codec import NotAnEvent, decode
from ppa_core.engine.run_events import Ended, Failed, RunEvent, RunUnavailable
from ppa_core.errors import BadInput, PpaError, Unavailable
from ppa_core.process.driver_log import DriverLog, keep
from ppa_core.safety.owned import scratch
from ppa_core.terminal import logs

PATIENCE = 300.0
"""A driver that writes nothing for this many seconds is killed."""

HUNG_SECONDS = 6.0
"""A driver without a pulse for this many seconds hangs: it is killed, and its parent restarts it."""

PROGRAM = (sys.executable, "-m", "ppa_core.driver.main")

_LAST_LINES = 15
_LAST_SECONDS = 2.0
"""To read the rest of a dead driver's standard error, which its children may keep open."""

_log = logging.getLogger(__name__)


class DriverExited(PpaError):
    """A driver process ended unexpectedly, without a reason. `log` has its standard error."""

    def __init__(self, last: str, log: Path) -> None:
        super().__init__(f"the driver ended unexpectedly; the last lines of its log:\n{last}\nthe whole log is {log}")
        self.last, self.log = last, log

    def kept(self, run: str) -> DriverExited:
        """The same error, with the log copied to a place where it stays when the run's folder is removed."""
        return DriverExited(self.last, keep(self.log, run))


class Driver(Closeable):
    """A driver process. `events` yields the events until its end, and raises the error if the run failed.

    `prefix` is a command that replaces itself by the driver, such as that of a test bed, which enters a network namespace.
    """

    def __init__(self, config: Config, patience: float = PATIENCE, prefix: Sequence[str] = ()) -> None:
        config.hide_passwords()
        self.log = DriverLog(config.folder)
        self._last, self.patience, self._over = time.monotonic(), patience, threading.Event()
        self._writing = threading.Lock()
        self._on_a_cluster = on_a_cluster(config.master)
        self._scratch = scratch("ppa-driver-")
        self._hung: list[psutil.Process] = []
        self._pulse, theirs = os.pipe()
        self.process = subprocess.Popen(
            [*prefix, *PROGRAM, str(theirs)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=self._environment(),
            start_new_session=True,
            pass_fds=(theirs,),
        )
        os.close(theirs)
        for work in (self._drain, self._watch):
            threading.Thread(target=work, daemon=True).start()
        self._write(config.encode())

    def close(self) -> None:
        """Kill the process, and release what it held."""
        self.kill()
        self.log.over.wait(_LAST_SECONDS)
        for pipe in (self.process.stdin, self.process.stdout):
            with suppress(OSError):
                if pipe:
                    pipe.close()

    def events(self) -> Iterator[RunEvent]:
        """The events, up to and including `Ended`. Raises PpaError if the run failed, DriverExited if the process ended
        unexpectedly."""
        for event in self._read():
            match event:
                case RunUnavailable(reason=reason):
                    raise Unavailable(reason)
                case Failed(bad_input=(place, reason)):
                    raise BadInput(place, reason)
                case Failed(reason=reason):
                    raise PpaError(reason)
            yield event
            if isinstance(event, Ended):
                return
        self.log.over.wait(_LAST_SECONDS)
        raise DriverExited("\n".join(list(self.log.last)[-_LAST_LINES:]), self.log.path)

    def send(self, word: str, arguments: dict[str, Any] | None = None, id_: str = "") -> None:
        """Send a command; an `answer` event with the same id reports the outcome."""
        self._write(json.dumps({"do": word, "arguments": arguments or {}, "id": id_}))

    def kill(self) -> None:
        """SIGKILL the driver and all processes in its session: the JVM and the workers."""
        self._over.set()
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self._scratch.remove()

    def hang(self) -> None:
        """SIGSTOP the driver, its JVM and its workers: they keep their connections and say nothing more."""
        self._hung = [psutil.Process(self.process.pid), *children(self.process.pid)]
        _signal(self._hung, signal.SIGSTOP)

    def resume(self) -> None:
        """Let what hangs continue."""
        _signal(self._hung, signal.SIGCONT)

    def fail_executor(self, how: signal.Signals = signal.SIGKILL) -> None:
        """Kill or stop a busy executor; without a cluster, the Python processes in which Spark runs tasks, and their parent."""
        if self._on_a_cluster:
            busy = busy_executor(self.process.pid)
            self._hung = [busy] if how == signal.SIGKILL else [busy, *children(busy.pid)]
        else:
            self._hung = [child for child in children(self.process.pid) if runs_daemon(child)]
        _signal(self._hung, how)

    def fail_worker(self, how: signal.Signals = signal.SIGKILL) -> None:
        """Kill or stop a Spark worker with a busy executor, and all its children."""
        executor = busy_executor(self.process.pid)
        worker = worker_of(executor) or executor
        self._hung = [worker, *children(worker.pid)]
        _signal(self._hung, how)

    def _environment(self) -> dict[str, str]:
        """With a folder for temporary files of Spark and Java, which a killed driver cannot remove itself."""
        folder = str(self._scratch.path)
        java = " ".join(filter(None, (os.environ.get("JDK_JAVA_OPTIONS"), f"-Djava.io.tmpdir={folder}")))
        own = {"TMPDIR": folder, "SPARK_LOCAL_DIRS": folder, "JDK_JAVA_OPTIONS": java}
        return {**os.environ, **own}

    def _read(self) -> Iterator[RunEvent]:
        for line in self.process.stdout or ():
            self._last = time.monotonic()
            try:
                yield decode(line)
            except NotAnEvent as error:
                _not_an_event(line, str(error))

    def _write(self, text: str) -> None:
        assert self.process.stdin
        with self._writing, suppress(BrokenPipeError, ValueError):  # it has ended: `events` raises that
            self.process.stdin.write(text.encode() + b"\n")
            self.process.stdin.flush()

    def _drain(self) -> None:
        assert self.process.stderr
        with self.process.stderr as pipe:
            self.log.take(pipe)

    def _watch(self) -> None:
        """Kill a driver that hangs: it has no pulse any more, or reports nothing for long."""
        beat = float("inf")
        while not self._over.is_set():
            if select.select([self._pulse], [], [], 0.5)[0]:
                if os.read(self._pulse, 4096):
                    beat = time.monotonic()
                else:  # it has ended
                    self._over.wait(0.5)
            now = time.monotonic()
            if now - self._last > self.patience or now - beat > HUNG_SECONDS:
                _log.warning("no sign of the driver for %.0f s: it is killed", min(now - self._last, now - beat))
                self.kill()
        os.close(self._pulse)


def _not_an_event(line: bytes, reason: str) -> None:
    """Log a line that is not an event: a log record of the driver, or an incomplete line, such as the last one of a killed
    driver."""
    try:
        match known := json.loads(line):
            case {"kind": "log"}:
                logs.relayed(known)
                return
    except (ValueError, KeyError, TypeError, RecursionError):
        _log.debug("a line of the driver cannot be decoded", exc_info=True)
    _log.info("a line of the driver was skipped: %s", reason)


def _signal(processes: Sequence[psutil.Process], sign: signal.Signals) -> None:
    for process in processes:
        with suppress(psutil.Error):  # it may have ended
            process.send_signal(sign)
