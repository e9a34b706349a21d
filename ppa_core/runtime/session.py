"""The Spark application that pipelines run in."""

from __future__ import annotations

import os
import shutil
import socket
import sys

from pyspark.sql import SparkSession

from ppa_core.errors import BadInput, Unavailable

_CONNECT_SECONDS = 3.0


def open_session(master: str | None, partitions: int) -> SparkSession:
    """A session for a pipeline. The default master has four slots for every partition: a batch, a replay beside it, and what
    was overtaken and is not gone yet never take each other's. A task that loses its worker process is tried four times in all.
    """
    if not (shutil.which("java") or os.environ.get("JAVA_HOME")):
        raise Unavailable("Java is missing, and Spark needs it: 'apt-get install openjdk-17-jre-headless' installs it")
    _check_master(master)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    settings = {
        "spark.ui.enabled": "false",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.shuffle.partitions": str(partitions),
        "spark.sql.execution.arrow.maxRecordsPerBatch": "1000000",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.sql.streaming.pollingDelay": "10ms",
        "spark.sql.streaming.stopTimeout": "10s",
        "spark.driver.memory": "2g",
        "spark.python.task.killTimeout": "200ms",
        "spark.log.level": "ERROR",
    }
    if master is None:
        settings["spark.python.daemon.module"] = "ppa_core.runtime.daemon"
    builder = SparkSession.builder.master(master or f"local[{4 * partitions},4]").appName("ppa")
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def _check_master(master: str | None) -> None:
    """Spark itself would try for a minute and then say little: look whether a standalone master is there at all."""
    if master is None or not master.startswith("spark://"):
        return
    places = []
    for place in master.removeprefix("spark://").split(","):
        host, _, port = place.rpartition(":")
        if not host or not port.isdecimal():
            raise BadInput(f"--master {master}", "not spark://HOST:PORT")
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=_CONNECT_SECONDS).close()
        except (OSError, OverflowError) as error:
            places.append(f"{place}: {error}")
        else:
            return
    raise Unavailable(f"no Spark master answers ({'; '.join(places)}); start it, or leave --master out to run on this machine")
