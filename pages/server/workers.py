"""Planning in worker processes, which can be killed: when the viewer leaves, at the time limit, and when this server ends.

There are a fixed number of workers, started when first needed. Each runs one job at a time; further jobs wait. So planning uses
no more processes than these, however many pages there are. A killed worker is replaced at the next job. Jobs and results are
pickled: they are exchanged only between this program and its own children.
"""

from __future__ import annotations

import atexit
import logging
import os
import pickle
import resource
import select
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, LifoQueue, SimpleQueue
from typing import IO, Any, TypeVar

from ppa_core.errors import PpaError
from ppa_core.terminal import logs

_log = logging.getLogger(__name__)

T = TypeVar("T")
_LOOK = 0.1
_MEMORY = 6 << 30
_START_SECONDS = 20.0
_SIZE = 8


class WorkerEnded(PpaError):
    """A job ended before it was complete."""


class TooLong(WorkerEnded):
    """A job exceeded its time limit."""


class Unwanted(WorkerEnded):
    """The viewer who was waiting for a job has left."""


class Worker:
    """A process that runs one job at a time."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", "from pages.server import workers; workers.work()"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            start_new_session=True,
        )  # fmt: skip
        assert self._process.stdin
        assert self._process.stdout
        self._in, self._out = self._process.stdin, self._process.stdout
        self._waiting = b""

    def begin(self, work: tuple[Any, ...]) -> None:
        content = pickle.dumps(work)
        self._in.write(len(content).to_bytes(_SIZE, "big") + content)
        self._in.flush()

    def answer(self, seconds: float) -> bytes | None:
        """The pickled result of the job; None if it is not complete within `seconds`. EOFError if the process has ended."""
        if not select.select([self._out], [], [], seconds)[0]:
            return None
        content = os.read(self._out.fileno(), 1 << 20)
        if not content:
            raise EOFError
        self._waiting += content
        size = int.from_bytes(self._waiting[:_SIZE], "big")
        if len(self._waiting) < _SIZE or len(self._waiting) < _SIZE + size:
            return None
        found, self._waiting = self._waiting[_SIZE : _SIZE + size], b""
        return found

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        for end in (self._in, self._out):
            with suppress(OSError):
                end.close()


class Workers:
    """At most `most` workers, shared by all sessions. Thread-safe."""

    def __init__(self, most: int = 2) -> None:
        self._free: LifoQueue[Worker | None] = LifoQueue()  # last used first: its modules are loaded
        for _ in range(most):
            self._free.put(None)  # no process yet
        atexit.register(self.close)

    def run(self, seconds: float, wanted: Callable[[], bool], do: Callable[..., T], *arguments: Any) -> T:
        """Call `do` in a worker and return its result. Raises TooLong after `seconds`, Unwanted once `wanted` is False."""
        worker = self._take(wanted)
        try:
            fresh = worker is None
            worker = worker or Worker()
            worker.begin((do, arguments))
            end = time.monotonic() + seconds + (_START_SECONDS if fresh else 0.0)
            while (content := worker.answer(_LOOK)) is None:
                if not wanted():
                    raise Unwanted("the viewer has left")
                if time.monotonic() > end:
                    raise TooLong(f"it took longer than {seconds:g} s")
        except (OSError, EOFError):
            _log.warning("a planning process ended", exc_info=True)
            self._give_back(worker, keep=False)
            raise WorkerEnded("the planning process has ended; the topology may be too large") from None
        except BaseException:
            self._give_back(worker, keep=False)
            raise
        self._give_back(worker, keep=True)
        done, value = pickle.loads(content)
        if done:
            return value  # type: ignore[no-any-return]
        raise value

    def _take(self, wanted: Callable[[], bool]) -> Worker | None:
        while True:
            with suppress(Empty):
                return self._free.get(timeout=_LOOK)
            if not wanted():
                raise Unwanted("the viewer has left")

    def _give_back(self, worker: Worker | None, keep: bool) -> None:
        if worker is not None and not keep:
            worker.kill()
        self._free.put(worker if keep else None)

    def close(self) -> None:
        """End all idle workers."""
        found = []
        with suppress(Empty):
            while True:
                found.append(self._free.get_nowait())
        for worker in found:
            self._give_back(worker, keep=False)


# ------------------------------------------------------------------------------------------------------------- in a worker


def work() -> None:
    """Run jobs from standard input. When that ends, the server has ended, and this process exits at once, even during a job."""
    source, sink = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # solvers print to standard output, which is for results
    os.nice(5)
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    logs.to_stderr()
    tasks: SimpleQueue[bytes] = SimpleQueue()
    threading.Thread(target=_listen, args=(source, tasks), daemon=True).start()
    while True:
        answer = pickle.dumps(_done(tasks.get()))
        sink.write(len(answer).to_bytes(_SIZE, "big") + answer)
        sink.flush()


def _listen(source: IO[bytes], tasks: SimpleQueue[bytes]) -> None:
    while len(size := source.read(_SIZE)) == _SIZE:
        tasks.put(source.read(int.from_bytes(size, "big")))
    os._exit(0)


def _done(task: bytes) -> tuple[bool, Any]:
    try:
        do, arguments = pickle.loads(task)
        return True, do(*arguments)
    except PpaError as error:
        return False, error
    except MemoryError:
        return False, WorkerEnded("it needs more memory than allowed")
    except Exception as error:  # noqa: BLE001 - any error is returned to the caller
        _log.exception("a job failed")
        return False, RuntimeError(f"{type(error).__name__}: {error}")
