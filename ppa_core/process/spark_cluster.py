"""A Spark standalone cluster on this machine, for tests: a master and workers on loopback.

It requires a secret, which is in `spark-defaults.conf` in a private folder; Spark's processes find it through the environment
variable SPARK_CONF_DIR. Master, workers and executors are children of a supervisor (`supervisor.py` says why): they end, and
the folder is removed, with this process, even if it is killed.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import time
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Self

from ppa_core.driver.executors import WORKER
from ppa_core.errors import RequestError, Unavailable
from ppa_core.process.supervised import Supervised

MASTER = "org.apache.spark.deploy.master.Master"

_START_SECONDS = 60.0
_LOOK_AGAIN = 0.05
_LEAST_MEMORY = 512
"""MB; Spark's minimum for an executor, and a little more."""
_QUICK_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""So that several JVMs start within seconds on few cores."""
_DEFAULTS = """\
spark.authenticate true
spark.authenticate.secret {secret}
spark.executor.memory {memory}m
spark.executor.extraJavaOptions {java}
spark.master.rest.enabled false
spark.ui.killEnabled false
spark.master.ui.decommission.allow.mode DENY
"""
_LOGGING = """\
rootLogger.level = warn
rootLogger.appenderRef.console.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n
logger.master.name = org.apache.spark.deploy.master
logger.master.level = info
logger.worker.name = org.apache.spark.deploy.worker
logger.worker.level = info
"""


class SparkCluster:
    """A running master and its workers 0, 1, …. All stop with `close`, with the `with` block, and with this process."""

    def __init__(self, workers: int, cores: int, memory_mb: int) -> None:
        self.cores, self.memory_mb = cores, memory_mb
        self._supervisor = Supervised("the Spark cluster has stopped, because its supervisor process ended; start it again")
        try:
            self.folder = self._folder()
            self._write_conf()
            self._run("master", MASTER, "--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
            self.master = self._await("master", r"Starting Spark master at (spark://\S+)")
            self._workers = {i: self._start_worker(i) for i in range(workers)}
            for i in self._workers:
                self._await(f"worker-{i}", "Successfully registered with master")
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    @property
    def environment(self) -> dict[str, str]:
        """Environment variables for a program that uses the cluster: where the settings are, including the secret."""
        return {"SPARK_CONF_DIR": str(self.folder / "conf")}

    @property
    def workers(self) -> dict[int, int]:
        """The process id of each worker that was not killed."""
        return dict(self._workers)

    def kill_worker(self, worker: int) -> None:
        """SIGKILL a worker and all its children, as if its machine had failed. It is not restarted automatically."""
        self._pid(worker)
        self._supervisor.kill(_child(f"worker-{worker}"))
        del self._workers[worker]

    def restart_worker(self, worker: int) -> None:
        """Restart a worker; if it still runs, it is killed first."""
        if worker in self._workers:
            self.kill_worker(worker)
        self._log(f"worker-{worker}").unlink(missing_ok=True)
        self._workers[worker] = self._start_worker(worker)
        self._await(f"worker-{worker}", "Successfully registered with master")

    def ended(self) -> str | None:
        """The master or a worker that ended unexpectedly; None if all are running."""
        for name in ("master", *(f"worker-{i}" for i in self._workers)):
            if not self._supervisor.state(_child(name)).running:
                return name
        return None

    def close(self) -> None:
        """Stop all processes; they have ended when this returns."""
        self._supervisor.close()

    def _folder(self) -> Path:
        try:
            return self._supervisor.folder("ppa-cluster-")
        except OSError as error:
            raise Unavailable(f"the Spark cluster needs a temporary folder: {error}; set TMPDIR") from error

    def _write_conf(self) -> None:
        conf = self.folder / "conf"
        conf.mkdir(mode=0o700)
        defaults = _DEFAULTS.format(secret=secrets.token_hex(32), memory=self.memory_mb, java=_QUICK_JAVA)
        for name, content in (("spark-defaults.conf", defaults), ("log4j2.properties", _LOGGING)):
            (conf / name).touch(mode=0o600)
            (conf / name).write_text(content, encoding="utf-8")

    def _start_worker(self, worker: int) -> int:
        work = self.folder / f"work-{worker}"
        return self._run(
            f"worker-{worker}", WORKER, "--host", "127.0.0.1", "--port", "0", "--webui-port", "0", "--cores", str(self.cores),
            "--memory", f"{self.memory_mb}m", "--work-dir", str(work), self.master,
        )  # fmt: skip

    def _run(self, name: str, *command: str) -> int:
        home = _spark_home()
        environment = {key: value for key, value in os.environ.items() if not key.startswith(("SPARK_", "PYSPARK_", "PYTHON"))}
        environment |= self.environment | {
            "SPARK_HOME": str(home),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_LOCAL_DIRS": str(self.folder / "local"),
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": _QUICK_JAVA,
            "SPARK_LAUNCHER_OPTS": _QUICK_JAVA,
        }
        return self._supervisor.run(_child(name), [str(home / "bin/spark-class"), *command], environment, self._log(name))

    def _await(self, name: str, sign: str) -> str:
        """Wait for a line in the log of a master or worker; the first group of the match, or the whole match."""
        end = time.monotonic() + _START_SECONDS
        while True:
            running = self._supervisor.state(_child(name)).running
            log = self._log(name).read_text(encoding="utf-8", errors="replace")
            if found := re.search(sign, log):
                return found[found.re.groups]
            if not running or time.monotonic() > end:
                reason = " ".join(log.split())[-400:] or f"not ready in {_START_SECONDS:g} s"
                raise Unavailable(f"{_child(name)} did not start: {reason}")
            time.sleep(_LOOK_AGAIN)

    def _log(self, name: str) -> Path:
        return self.folder / f"{name}.log"

    def _pid(self, worker: int) -> int:
        if worker not in self._workers:
            known = ", ".join(map(str, self._workers)) or "none"
            raise RequestError(f"worker {worker}", f"not running; running workers: {known}")
        return self._workers[worker]


def launch_spark(workers: int, cores: int, memory_mb: int) -> SparkCluster:
    """Start a cluster on loopback; each worker has `cores` slots and `memory_mb` for an executor.

    Use it as a context manager. There may be more slots than cores, because waiting tasks take slots too. Unavailable if Java
    or Spark is not installed.
    """
    for what, number, least in (("workers", workers, 1), ("cores", cores, 1), ("memory_mb", memory_mb, _LEAST_MEMORY)):
        if number < least:
            raise RequestError(what, f"{number} is too small; the minimum is {least}")
    if not (shutil.which("java") or os.environ.get("JAVA_HOME")):
        raise Unavailable("Java is not installed, and Spark needs it: 'apt-get install openjdk-17-jre-headless' installs it")
    return SparkCluster(workers, cores, memory_mb)


def _child(name: str) -> str:
    """A master's or worker's name among the supervisor's children."""
    return f"Spark {name}"


def _spark_home() -> Path:
    found = find_spec("pyspark")
    for place in (found and found.submodule_search_locations) or ():
        return Path(place)
    raise Unavailable("pyspark is not installed: 'pip install pyspark' installs it")
