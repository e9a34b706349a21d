"""Spark's master and workers, as children of a supervisor (`supervisor.py` says why there is one).

They require a secret, which is in `spark-defaults.conf` in a private folder; Spark's processes find it through the environment
variable SPARK_CONF_DIR.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import time
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from ppa_core.driver.executors import EXECUTOR, WORKER, children, runs
from ppa_core.errors import Unavailable
from ppa_core.process.supervised import Supervised

MASTER = "org.apache.spark.deploy.master.Master"
LEAST_MEMORY = 512
"""MB; Spark's minimum for an executor, and a little more."""
LOOPBACK = "127.0.0.1"

_START_SECONDS = 60.0
_LOOK_AGAIN = 0.05
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


class SparkDaemons:
    """A master and workers with names. Each worker has `cores` slots and `memory_mb` for an executor.

    `prefix` is a command that replaces itself by the daemon, such as nsenter. `address` is where a daemon listens; executors
    listen and register with the address of their worker.
    """

    def __init__(self, supervisor: Supervised, folder: Path, cores: int, memory_mb: int) -> None:
        self._supervisor, self.folder, self.cores, self.memory_mb = supervisor, folder, cores, memory_mb
        self._workers: dict[str, int] = {}
        self._home = _spark_home()
        self._write_conf()

    @property
    def environment(self) -> dict[str, str]:
        """Environment variables for a program that uses the cluster: where the settings are, including the secret."""
        return {"SPARK_CONF_DIR": str(self.folder / "conf")}

    @property
    def workers(self) -> dict[str, int]:
        """The process id of each worker that was not killed."""
        return dict(self._workers)

    def start_master(self, address: str = LOOPBACK, prefix: Sequence[str] = ()) -> None:
        """Start the master on a free port; returns when it accepts workers."""
        self._run("master", address, prefix, MASTER, "--host", address, "--port", "0", "--webui-port", "0")
        self.master = self._await("master", r"Starting Spark master at (spark://\S+)")

    def start_worker(self, name: str, address: str = LOOPBACK, prefix: Sequence[str] = ()) -> None:
        """Start a worker; `await_worker` returns when the master has accepted it."""
        self._log(name).unlink(missing_ok=True)
        self._workers[name] = self._run(
            name, address, prefix, WORKER, "--host", address, "--port", "0", "--webui-port", "0", "--cores", str(self.cores),
            "--memory", f"{self.memory_mb}m", "--work-dir", str(self.folder / f"work-{name}"), self.master,
        )  # fmt: skip

    def await_worker(self, name: str) -> None:
        self._await(name, "Successfully registered with master")

    def executors(self, worker: str) -> list[int]:
        """The process ids of a worker's executors."""
        return [process.pid for process in children(self._workers[worker]) if runs(process, EXECUTOR)]

    def kill_worker(self, name: str) -> None:
        """SIGKILL a worker and all its children. It is not restarted automatically."""
        self._supervisor.kill(_child(name))
        self._workers.pop(name, None)

    def ended(self) -> list[str]:
        """The master and workers that ended unexpectedly."""
        return [name for name in ("master", *self._workers) if not self._supervisor.state(_child(name)).running]

    def _write_conf(self) -> None:
        conf = self.folder / "conf"
        conf.mkdir(mode=0o700)
        defaults = _DEFAULTS.format(secret=secrets.token_hex(32), memory=self.memory_mb, java=_QUICK_JAVA)
        for name, content in (("spark-defaults.conf", defaults), ("log4j2.properties", _LOGGING)):
            (conf / name).touch(mode=0o600)
            (conf / name).write_text(content, encoding="utf-8")

    def _run(self, name: str, address: str, prefix: Sequence[str], *command: str) -> int:
        environment = {key: value for key, value in os.environ.items() if not key.startswith(("SPARK_", "PYSPARK_", "PYTHON"))}
        environment |= self.environment | {
            "SPARK_HOME": str(self._home),
            "SPARK_LOCAL_IP": address,
            "SPARK_LOCAL_DIRS": str(self.folder / "local"),
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": _QUICK_JAVA,
            "SPARK_LAUNCHER_OPTS": _QUICK_JAVA,
        }
        whole = [*prefix, str(self._home / "bin/spark-class"), *command]
        return self._supervisor.run(_child(name), whole, environment, self._log(name))

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


def require_java() -> None:
    """Unavailable if Java is not installed."""
    if not (shutil.which("java") or os.environ.get("JAVA_HOME")):
        raise Unavailable("Java is not installed, and Spark needs it: 'apt-get install openjdk-17-jre-headless' installs it")


def _child(name: str) -> str:
    """A master's or worker's name among the supervisor's children."""
    return f"Spark {name}"


def _spark_home() -> Path:
    found = find_spec("pyspark")
    for place in (found and found.submodule_search_locations) or ():
        return Path(place)
    raise Unavailable("pyspark is not installed: 'pip install pyspark' installs it")
