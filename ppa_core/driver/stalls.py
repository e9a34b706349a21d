"""Stalled jobs: a job makes no progress because an executor, or its Python processes, do nothing any more.

Nothing is said of an executor that hangs: its tasks are just not done. When a job has run for as long as a batch's deadline,
what holds it up is removed, so that it is run again on what works. A job that is only slow is left alone.
"""

from __future__ import annotations

import logging
import os
import time
from contextlib import suppress

import psutil

from ppa_core.driver.executor_hosts import ExecutorHosts
from ppa_core.driver.executors import children

_log = logging.getLogger(__name__)

DAEMONS = ("pyspark.daemon", "ppa_core.worker.daemon")
_LOOK_SECONDS, _IDLE_SECONDS = 0.3, 2.0
"""How long processes that are stopped, and others, use no CPU time before they count as hung: others may wait for Java."""


def remove_stalled(executors: ExecutorHosts | None) -> bool:
    """Remove what holds up the job that is running now; whether there was something."""
    return _kill_idle_daemons() if executors is None else executors.remove_busy()


def _kill_idle_daemons() -> bool:
    """Kill the Python processes of Spark's tasks on this machine if none of them uses any CPU time; Spark starts new ones."""
    found = [process for process in children(os.getpid()) if runs_daemon(process)]
    before = _cpu(found)
    time.sleep(_LOOK_SECONDS if any(map(_is_stopped, found)) else _IDLE_SECONDS)
    if not found or _cpu(found) > before:
        return False
    _log.warning("the Python processes of Spark's tasks do nothing: they are killed, and started again")
    for process in found:
        with suppress(psutil.Error):  # it may have ended
            process.kill()
    return True


def runs_daemon(process: psutil.Process) -> bool:
    """Whether a process is one of those in which Spark runs Python tasks, or their parent."""
    with suppress(psutil.Error):
        return any(module in process.cmdline() for module in DAEMONS)
    return False


def _is_stopped(process: psutil.Process) -> bool:
    with suppress(psutil.Error):
        return bool(process.status() == psutil.STATUS_STOPPED)
    return False


def _cpu(processes: list[psutil.Process]) -> float:
    spent = 0.0
    for process in processes:
        with suppress(psutil.Error):
            times = process.cpu_times()
            spent += times.user + times.system
    return spent
