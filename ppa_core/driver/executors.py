"""Processes of a Spark standalone cluster on this machine: the executors of a driver, and the workers that started them."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path

import psutil

from ppa_core.errors import Unavailable

EXECUTOR = "org.apache.spark.executor.CoarseGrainedExecutorBackend"
WORKER = "org.apache.spark.deploy.worker.Worker"

_PATIENCE = 10.0
_LOOK_AGAIN = 0.1
_OFTEN = 0.01
_LISTEN = "0A"
"""A listening socket, in Linux' tables of TCP sockets."""


def on_a_cluster(master: str | None) -> bool:
    """Whether a Spark master URL is that of a standalone cluster."""
    return master is not None and master.startswith("spark://")


def executors_of(driver: int) -> list[psutil.Process]:
    """The executors on this machine that work for a driver process or its children: an executor has its driver's port in its
    command line."""
    ports: set[int] = set()
    for process in [psutil.Process(driver), *children(driver)]:
        with suppress(psutil.Error, OSError):
            ports |= _listening(process)
    found = [process for process in psutil.process_iter() if runs(process, EXECUTOR)]
    return [process for process in found if _driver_port(process) in ports]


def busy_executor(driver: int) -> psutil.Process:
    """An executor of a driver whose Python processes are working now; if none works within some seconds, any.

    Unavailable if no executor is on this machine.
    """
    end = time.monotonic() + _PATIENCE
    while not (found := executors_of(driver)):
        if time.monotonic() > end:
            raise Unavailable("no executor of this run is on this machine; executors on other machines must be killed there")
        time.sleep(_LOOK_AGAIN)
    before = [_python_seconds(executor) for executor in found]
    while time.monotonic() < end:
        for executor, spent in zip(found, before, strict=True):
            if _python_seconds(executor) > spent:
                return executor
        time.sleep(_OFTEN)
    return found[0]


def worker_of(executor: psutil.Process) -> psutil.Process | None:
    """The Spark worker that started an executor."""
    with suppress(psutil.Error):
        for process in executor.parents():
            if runs(process, WORKER):
                return process
    return None


def children(pid: int) -> list[psutil.Process]:
    """All children of a process, recursively; empty if the process has ended."""
    with suppress(psutil.Error):
        return list(psutil.Process(pid).children(recursive=True))
    return []


def runs(process: psutil.Process, java_class: str) -> bool:
    """Whether a process is a JVM that runs this class."""
    with suppress(psutil.Error):
        return java_class in process.cmdline()
    return False


def _listening(process: psutil.Process) -> set[int]:
    """The TCP ports on which a process listens, in its own network namespace; psutil would look in that of this process."""
    tables = [table for table in (Path(f"/proc/{process.pid}/net/{name}") for name in ("tcp", "tcp6")) if table.exists()]
    if not tables:  # not Linux
        return {link.laddr.port for link in process.net_connections("tcp") if link.status == psutil.CONN_LISTEN}
    sockets = set()
    for link in Path(f"/proc/{process.pid}/fd").iterdir():
        with suppress(OSError):  # it may be closed by now
            sockets.add(str(link.readlink()))
    rows = [line.split() for table in tables for line in table.read_text().splitlines()[1:]]
    return {int(row[1].rpartition(":")[2], 16) for row in rows if row[3] == _LISTEN and f"socket:[{row[9]}]" in sockets}


def _driver_port(executor: psutil.Process) -> int | None:
    with suppress(psutil.Error, ValueError, IndexError):
        words = executor.cmdline()
        return int(words[words.index("--driver-url") + 1].rpartition(":")[2])
    return None


def _python_seconds(executor: psutil.Process) -> float:
    """The CPU time of an executor's child processes so far."""
    spent = 0.0
    for process in children(executor.pid):
        with suppress(psutil.Error):
            times = process.cpu_times()
            spent += times.user + times.system
    return spent
