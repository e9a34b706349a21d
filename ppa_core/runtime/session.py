"""The Spark application that pipelines run in."""

from __future__ import annotations

import os
import shutil
import socket
import sys

from pyspark.sql import SparkSession

from ppa_core.errors import BadInput, Unavailable
from ppa_core.runtime.executors import on_a_cluster
from ppa_core.runtime.workers import prepare

_LOOPBACK = "127.0.0.1"
_CONNECT_SECONDS = 3.0


_ON_A_CLUSTER = {
    "spark.task.maxFailures": "8",
    "spark.stage.maxConsecutiveAttempts": "8",
    "spark.locality.wait": "0s",
    "spark.shuffle.io.maxRetries": "2",
    "spark.shuffle.io.retryWait": "200ms",
    "spark.executor.heartbeatInterval": "2s",
    "spark.network.timeout": "30s",
    "spark.network.timeoutInterval": "5s",
}
"""A lost executor is noticed soon, what it held is made again at once, and several may be lost while one job runs."""


def open_session(master: str | None, partitions: int) -> SparkSession:
    """A session for a pipeline. The default master has four slots for every partition: a batch, a replay beside it, and what
    was overtaken and is not gone yet never take each other's. A task that loses its worker process is tried four times in all.

    On a standalone cluster (spark://…) this package is shipped to the workers; a task that loses its executor is tried eight
    times in all. Secrets, and the executors' memory and cores, are as in `spark-defaults.conf`, in the folder that
    SPARK_CONF_DIR names.
    """
    if not (shutil.which("java") or os.environ.get("JAVA_HOME")):
        raise Unavailable("Java is missing, and Spark needs it: 'apt-get install openjdk-17-jre-headless' installs it")
    address = _check_master(master)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.shuffle.partitions": str(partitions),
        "spark.sql.execution.arrow.maxRecordsPerBatch": "1000000",
        "spark.driver.bindAddress": address,
        "spark.driver.host": address,
        "spark.sql.streaming.pollingDelay": "10ms",
        "spark.sql.streaming.stopTimeout": "10s",
        "spark.driver.memory": "2g",
        "spark.python.task.killTimeout": "200ms",
        "spark.log.level": "ERROR",
    }
    if master is None or on_a_cluster(master):
        settings["spark.python.daemon.module"] = "ppa_core.runtime.daemon"
    if on_a_cluster(master):
        settings |= _ON_A_CLUSTER
    builder = SparkSession.builder.master(master or f"local[{4 * partitions},4]").appName("ppa")
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    if master is not None and on_a_cluster(master):
        prepare(spark.sparkContext, master, 2 * partitions)
    return spark


def _check_master(master: str | None) -> str:
    """The address of this machine that a master's workers can reach: the one that the master is reached from.

    Spark itself would try for a minute and then say little: look whether a standalone master is there at all.
    """
    if master is None or not on_a_cluster(master):
        return _LOOPBACK
    places = []
    for place in master.removeprefix("spark://").split(","):
        host, _, port = place.rpartition(":")
        if not host or not port.isdecimal():
            raise BadInput(f"--master {master}", "not spark://HOST:PORT")
        try:
            with socket.create_connection((host.strip("[]"), int(port)), timeout=_CONNECT_SECONDS) as link:
                return str(link.getsockname()[0])
        except (OSError, OverflowError) as error:
            places.append(f"{place}: {error}")
    raise Unavailable(f"no Spark master answers ({'; '.join(places)}); start it, or leave --master out to run on this machine")
