"""A Spark standalone cluster on this machine, for tests: a master and workers on loopback (`spark_daemons.py`).

Master, workers and executors are children of a supervisor (`supervisor.py` says why): they end, and the folder with their
secret is removed, with this process, even if it is killed.
"""

from __future__ import annotations

from pathlib import Path

from ppa_core.closeable import Closeable
from ppa_core.errors import RequestError, Unavailable
from ppa_core.process.spark_daemons import LEAST_MEMORY, SparkDaemons, require_java
from ppa_core.process.supervised import Supervised


class SparkCluster(Closeable):
    """A running master and its workers 0, 1, …. All stop with `close`, with the `with` block, and with this process."""

    def __init__(self, workers: int, cores: int, memory_mb: int) -> None:
        self._supervisor = Supervised("the Spark cluster has stopped, because its supervisor process ended; start it again")
        try:
            self.folder = self._folder()
            self._daemons = SparkDaemons(self._supervisor, self.folder, cores, memory_mb)
            self._daemons.start_master()
            for i in range(workers):
                self._daemons.start_worker(_name(i))
            for i in range(workers):
                self._daemons.await_worker(_name(i))
        except BaseException:
            self.close()
            raise

    @property
    def master(self) -> str:
        """The master's URL."""
        return self._daemons.master

    @property
    def environment(self) -> dict[str, str]:
        """Environment variables for a program that uses the cluster: where the settings are, including the secret."""
        return self._daemons.environment

    @property
    def workers(self) -> dict[int, int]:
        """The process id of each worker that was not killed."""
        return {int(name.removeprefix(_PREFIX)): pid for name, pid in self._daemons.workers.items()}

    def kill_worker(self, worker: int) -> None:
        """SIGKILL a worker and all its children, as if its machine had failed. It is not restarted automatically."""
        self._daemons.kill_worker(self._known(worker))

    def restart_worker(self, worker: int) -> None:
        """Restart a worker; if it still runs, it is killed first."""
        if worker in self.workers:
            self.kill_worker(worker)
        self._daemons.start_worker(_name(worker))
        self._daemons.await_worker(_name(worker))

    def ended(self) -> str | None:
        """The master or a worker that ended unexpectedly; None if all are running."""
        return next(iter(self._daemons.ended()), None)

    def close(self) -> None:
        """Stop all processes; they have ended when this returns."""
        self._supervisor.close()

    def _folder(self) -> Path:
        try:
            return self._supervisor.folder("ppa-cluster-")
        except OSError as error:
            raise Unavailable(f"the Spark cluster needs a temporary folder: {error}; set TMPDIR") from error

    def _known(self, worker: int) -> str:
        if worker not in self.workers:
            known = ", ".join(map(str, self.workers)) or "none"
            raise RequestError(f"worker {worker}", f"not running; running workers: {known}")
        return _name(worker)


_PREFIX = "worker-"


def _name(worker: int) -> str:
    return f"{_PREFIX}{worker}"


def launch_spark(workers: int, cores: int, memory_mb: int) -> SparkCluster:
    """Start a cluster on loopback; each worker has `cores` slots and `memory_mb` for an executor.

    Use it as a context manager. There may be more slots than cores, because waiting tasks take slots too. Unavailable if Java
    or Spark is not installed.
    """
    for what, number, least in (("workers", workers, 1), ("cores", cores, 1), ("memory_mb", memory_mb, LEAST_MEMORY)):
        if number < least:
            raise RequestError(what, f"{number} is too small; the minimum is {least}")
    require_java()
    return SparkCluster(workers, cores, memory_mb)
