"""Flink: a job manager and three task managers on loopback, and the work as a job (`flink_job.py`)."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
import urllib.request
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from benchmarks.peers.flink_environment import HERE, FlinkEnvironment
from benchmarks.peers.watching import START_SECONDS, Tail, parsed
from benchmarks.peers.work import KEYS, LENGTH, MIXED, SOURCES, WINDOW, Row
from ppa_core.errors import Unavailable
from ppa_core.process.spark_daemons import LOOPBACK
from ppa_core.process.supervised import Supervised

NAMES, SLOTS = ("taskmanager-1", "taskmanager-2", "taskmanager-3"), 8
"""16 slots are needed: two task managers have as many."""
PARALLELISM = 4
"""Of the windows; the sources have 16."""
FILES, STDOUT = "exactly once", "at least once"

DEFAULT: dict[str, str] = {}
"""Heartbeats every 10 s, lost after 50 s or two refused connections; restart after 1 s."""
TUNED = {
    "heartbeat.interval": "500 ms",
    "heartbeat.timeout": "2 s",
    "heartbeat.rpc-failure-threshold": "1",
    "pekko.ask.timeout": "2 s",
    "pekko.tcp.timeout": "2 s",
    "restart-strategy.fixed-delay.delay": "50 ms",
    "taskmanager.network.request-backoff.max": "500",
}

QUERY = f"""
SELECT TIMESTAMPDIFF(SECOND, TIMESTAMP '1970-01-01 00:00:00', window_end), k, COUNT(*), SUM(v)
FROM TABLE(HOP(TABLE tuples, DESCRIPTOR(ts), INTERVAL '1' SECOND, INTERVAL '{WINDOW}' SECOND))
GROUP BY window_start, window_end, k
"""
_JAVA = " ".join(f"--add-opens=java.base/java.{name}=ALL-UNNAMED" for name in ("lang", "net", "io", "nio", "time", "util"))
_LOGGING = """\
rootLogger.level = INFO
rootLogger.appenderRef.file.ref = file
appender.file.type = File
appender.file.name = file
appender.file.fileName = ${sys:log.file}
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{HH:mm:ss,SSS} %-5p %c{1} %m%n
"""
_OF_JOB = ("execution.", "parallelism.", "pipeline.", "restart-strategy.", "table.")
"""Settings that belong to the job and not to the cluster."""
_LEAD = 5.0
"""Seconds from submitting the job to the first row, so that it is running by then."""
_LOOK_AGAIN = 0.2


class FlinkJob:
    """A cluster with the job on it. All stops with `close`, with the `with` block, and with this process."""

    def __init__(self, environment: FlinkEnvironment, settings: Mapping[str, str]) -> None:
        self._environment = environment
        self._supervisor = Supervised("the Flink cluster has stopped, because its supervisor process ended")
        self._tail = Tail()
        try:
            self.folder = self._supervisor.folder("ppa-peers-flink-")
            rpc, self._rest = _free_ports()
            self._settings = configuration(self.folder, rpc, self._rest, settings)
            self._write_conf()
            self._start("jobmanager", "jobmanager.sh")
            self._managers = {name: self._start(name, "taskmanager.sh", f"-Dtaskmanager.resource-id={name}") for name in NAMES}
            self._await_managers()
            self.zero = self._submit()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def rows(self) -> dict[str, list[Row]]:
        """New rows: in the files that checkpoints have completed, and on the task managers' standard outputs."""
        at = time.time()
        files = [path for path in self._output.glob("part-*") if path not in self._read]
        self._read.update(files)
        return {
            FILES: [row for path in files for row in parsed(path.read_bytes().splitlines(), at)],
            STDOUT: [row for name in self._managers for row in parsed(self._tail.lines(self._log(name)), at)],
        }

    def fail(self, how: str) -> None:
        """Kill or hang the task manager that runs most: one may be idle, because two have slots enough."""
        (job,) = self._get("jobs")["jobs"]
        vertices = [vertex["id"] for vertex in self._get(f"jobs/{job['id']}")["vertices"]]
        busiest = most_running([self._get(f"jobs/{job['id']}/vertices/{one}/taskmanagers") for one in vertices])
        os.kill(self._managers[busiest], signal.SIGKILL if how == "kill" else signal.SIGSTOP)

    def ended(self) -> str | None:
        """Why the job or the job manager has ended, if it has."""
        if not self._supervisor.state("jobmanager").running:
            return "the job manager has ended"
        return None

    def close(self) -> None:
        """Stop all processes; they have ended when this returns."""
        self._supervisor.close()

    # ------------------------------------------------------------------------------------------------------------- starting

    def _write_conf(self) -> None:
        conf = self.folder / "conf"
        conf.mkdir()
        (conf / "config.yaml").write_text("".join(f"{key}: {json.dumps(value)}\n" for key, value in self._settings.items()))
        (conf / "log4j-console.properties").write_text(_LOGGING)

    def _start(self, name: str, script: str, *options: str) -> int:
        command = [str(self._environment.home / "bin" / script), "start-foreground", *options]
        return self._supervisor.run(name, command, self._variables(name), self._log(name))

    def _variables(self, name: str) -> dict[str, str]:
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("FLINK_", "PYTHON", "SPARK_", "JVM_"))}
        places = {"FLINK_CONF_DIR": "conf", "FLINK_LOG_DIR": f"log-{name}", "FLINK_PID_DIR": f"log-{name}"}
        for place in places.values():
            (self.folder / place).mkdir(exist_ok=True)
        own = {key: str(self.folder / place) for key, place in places.items()}
        return kept | own | {"FLINK_HOME": str(self._environment.home)}

    def _await_managers(self) -> None:
        end = time.monotonic() + START_SECONDS
        while len(self._get("taskmanagers").get("taskmanagers", ())) < len(NAMES):
            if time.monotonic() > end or self.ended():
                raise Unavailable(f"Flink did not start: {self._supervisor.state('jobmanager').log[-400:]}")
            time.sleep(_LOOK_AGAIN)

    def _get(self, path: str) -> dict[str, Any]:
        """An answer of the REST API; empty while there is none."""
        try:
            with urllib.request.urlopen(f"http://{LOOPBACK}:{self._rest}/{path}", timeout=5) as answer:
                found: dict[str, Any] = json.load(answer)
                return found
        except OSError:
            return {}

    def _submit(self) -> float:
        """Submit the job; the time of its first row."""
        self._output, self._read = self.folder / "output", set[Path]()
        start = time.time() + _LEAD
        jar = self._environment.compiled(self.folder)
        job = job_description(start, self._output) | {"host": LOOPBACK, "port": self._rest, "jar": str(jar)}
        job |= {"settings": {key: value for key, value in self._settings.items() if key.startswith(_OF_JOB)}}
        command = [str(self._environment.python), str(HERE / "flink_job.py"), json.dumps(job)]
        ran = subprocess.run(command, env=self._variables("client"), capture_output=True, text=True, timeout=START_SECONDS)
        if ran.returncode:
            raise Unavailable(f"the Flink job was not accepted: {ran.stderr[-2000:]}")
        return start

    def _log(self, name: str) -> Path:
        return self.folder / f"{name}.out"


def configuration(folder: Path, rpc: int, rest: int, settings: Mapping[str, str]) -> dict[str, str]:
    """All settings of a cluster; every port is on loopback."""
    return {
        "jobmanager.rpc.address": LOOPBACK,
        "jobmanager.rpc.port": str(rpc),
        "jobmanager.bind-host": LOOPBACK,
        "jobmanager.memory.process.size": "1024m",
        "jobmanager.execution.failover-strategy": "region",
        "rest.address": LOOPBACK,
        "rest.bind-address": LOOPBACK,
        "rest.port": str(rest),
        "web.submit.enable": "false",
        "taskmanager.host": LOOPBACK,
        "taskmanager.bind-host": LOOPBACK,
        "taskmanager.memory.process.size": "1280m",
        "taskmanager.numberOfTaskSlots": str(SLOTS),
        "taskmanager.load-balance.mode": "SLOTS",
        "parallelism.default": str(PARALLELISM),
        "pipeline.auto-watermark-interval": "50 ms",
        "execution.buffer-timeout.interval": "20 ms",
        "table.local-time-zone": "UTC",
        "execution.checkpointing.interval": "1 s",
        "execution.checkpointing.mode": "EXACTLY_ONCE",
        "execution.checkpointing.dir": (folder / "checkpoints").as_uri(),
        "execution.checkpointing.tolerable-failed-checkpoints": "1000000",
        "restart-strategy.type": "fixed-delay",
        "restart-strategy.fixed-delay.attempts": "1000000",
        "restart-strategy.fixed-delay.delay": "1 s",
        "io.tmp.dirs": str(folder),
        "env.java.opts.all": _JAVA,
    } | dict(settings)


def job_description(start: float, output: Path) -> dict[str, Any]:
    """What `flink_job.py` is told: columns in terms of the number `f0`, the query over them, and where rows go."""
    mixed = MIXED.format(number="f0")
    columns = {
        "ts": f"TO_TIMESTAMP_LTZ(pace(MOD(f0, {LENGTH}), {int(start * 1000)}), 3)",
        "k": f"MOD({mixed}, {KEYS})",
        "v": f"MOD({mixed} / {KEYS}, {KEYS})",
    }
    return {"sources": SOURCES, "length": LENGTH, "columns": columns, "query": QUERY, "output": output.as_uri()}


def most_running(vertices: Iterable[Mapping[str, Any]]) -> str:
    """The task manager with the most running tasks, from the REST API's answers for each vertex of the job."""
    running: Counter[str] = Counter()
    for vertex in vertices:
        for manager in vertex["taskmanagers"]:
            running[manager["taskmanager-id"]] += manager["status-counts"]["RUNNING"]
    return running.most_common(1)[0][0]


def _free_ports() -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(2)]
        for one in sockets:
            one.bind((LOOPBACK, 0))
        return [one.getsockname()[1] for one in sockets]
