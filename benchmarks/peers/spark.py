"""Plain Spark Structured Streaming: a master and three workers on loopback, and the work as a query (`spark_job.py`)."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from benchmarks.peers.watching import START_SECONDS, Tail, parsed
from benchmarks.peers.work import Row
from ppa_core.driver.executors import children
from ppa_core.errors import Unavailable
from ppa_core.process.spark_cluster import launch_spark
from ppa_core.process.spark_daemons import LOOPBACK
from ppa_core.process.supervised import Supervised

WORKERS, CORES, MEMORY = 3, 2, 1024
PARTITIONS = 4
SINK = "exactly once"
"""By the number of the batch: Spark runs a batch again only after a restart of its driver."""

DEFAULT: dict[str, str] = {}
"""An executor is lost after 120 s without a heartbeat."""
TUNED = {
    "spark.network.timeout": "3s",
    "spark.executor.heartbeatInterval": "500ms",
    "spark.network.timeoutInterval": "500ms",
    "spark.rpc.askTimeout": "3s",
    "spark.locality.wait": "0s",
}
_PROJECT = Path(__file__).parents[2]
_LOOK_AGAIN = 0.2


class SparkJob:
    """A cluster with the query on it. All stops with `close`, with the `with` block, and with this process."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        self._tail = Tail()
        self._supervisor = Supervised("the Spark driver has stopped, because its supervisor process ended")
        self._cluster = launch_spark(WORKERS, CORES, MEMORY)
        try:
            self.folder = self._supervisor.folder("ppa-peers-spark-")
            job = job_description(self._cluster.master, self.folder / "checkpoint", settings)
            command = [sys.executable, "-m", "benchmarks.peers.spark_job", json.dumps(job)]
            self._supervisor.run("driver", command, self._variables(), self._log)
            self.zero = self._await_source()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def rows(self) -> dict[str, list[Row]]:
        return {SINK: list(parsed(self._tail.lines(self._log), time.time()))}

    def fail(self, how: str) -> None:
        """Kill or hang a worker with its executor: the one that has worked most, because one may be idle."""
        workers = self._cluster.workers
        busiest = max(workers, key=lambda number: _seconds(workers[number]))
        if how == "kill":
            self._cluster.kill_worker(busiest)
            return
        for pid in (workers[busiest], *(process.pid for process in children(workers[busiest]))):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)

    def ended(self) -> str | None:
        state = self._supervisor.state("driver")
        return None if state.running else state.log[-400:]

    def close(self) -> None:
        """Stop all processes; they have ended when this returns."""
        self._supervisor.close()
        self._cluster.close()

    @property
    def _log(self) -> Path:
        return self.folder / "driver.out"

    def _variables(self) -> dict[str, str]:
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("SPARK_", "PYSPARK_", "PYTHON"))}
        own = {"SPARK_LOCAL_IP": LOOPBACK, "PYTHONPATH": str(_PROJECT), "PYSPARK_PYTHON": sys.executable}
        return kept | self._cluster.environment | own

    def _await_source(self) -> float:
        """The time of the first tuple: Spark keeps it with the source's offsets."""
        start, end = self.folder / "checkpoint/sources/0/0", time.monotonic() + START_SECONDS
        while not start.exists():
            if reason := self.ended():
                raise Unavailable(f"the Spark driver has ended: {reason}")
            if time.monotonic() > end:
                raise Unavailable(f"Spark did not start the query in {START_SECONDS:g} s")
            time.sleep(_LOOK_AGAIN)
        return source_start(start.read_text(encoding="utf-8"))


def source_start(text: str) -> float:
    """The time in the rate source's own file: a line with the version, then milliseconds since 1970."""
    return int(text.split()[-1]) / 1000


def job_description(master: str, checkpoint: Path, settings: Mapping[str, str]) -> dict[str, Any]:
    """What `spark_job.py` is told."""
    always = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": LOOPBACK,
        "spark.driver.bindAddress": LOOPBACK,
        "spark.sql.shuffle.partitions": str(PARTITIONS),
        "spark.sql.session.timeZone": "UTC",
        "spark.log.level": "ERROR",
        "spark.executor.extraJavaOptions": "-XX:+UseSerialGC",  # the cluster's own are for a quick start, not for speed
    }
    return {"master": master, "checkpoint": str(checkpoint), "partitions": PARTITIONS, "settings": always | dict(settings)}


def _seconds(worker: int) -> float:
    """The CPU time of a worker's executor so far."""
    return float(sum(process.cpu_times().user for process in children(worker)))
