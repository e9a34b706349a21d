"""The Spark session that pipelines run in."""

from __future__ import annotations

import atexit
import os
import re
import shutil
import socket
import sys
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import urlsplit

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from ppa_core.driver.authentication import check_cluster, check_session, protect_callbacks, protection
from ppa_core.driver.executors import on_a_cluster
from ppa_core.driver.shipping import prepare
from ppa_core.errors import BadInput, Unavailable
from ppa_core.placement.nodes import Node
from ppa_core.safety.owned import scratch

_MASTER = re.compile(r"spark://.+|local(\[(\*|\d+)(,\s*\d+)?\])?|yarn|k8s://.+")
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
"""A lost executor is detected soon, its results are recomputed at once, and several may be lost during one job."""


def open_session(master: str | None, partitions: int, trusted_network: bool = False) -> SparkSession:
    """A session for a pipeline. The default master has four slots per partition: enough for a batch, a parallel replay, and
    superseded jobs that have not ended yet. A task that loses its worker process is tried up to four times.

    On a standalone cluster (spark://…) this package is shipped to the workers; a task that loses its executor is tried up to
    eight times. Secrets, and the executors' memory and cores, come from `spark-defaults.conf` in the folder that SPARK_CONF_DIR
    names. A cluster without `spark.authenticate` is refused, unless its network is trusted.
    """
    if not (shutil.which("java") or os.environ.get("JAVA_HOME")):
        raise Unavailable("Java is not installed, and Spark needs it: 'apt-get install openjdk-17-jre-headless' installs it")
    check_master(master)
    address = _reached_from(master)
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
        settings["spark.python.daemon.module"] = "ppa_core.worker.daemon"
    if on_a_cluster(master):
        settings |= _ON_A_CLUSTER
    elif master is None or master.startswith("local"):
        settings |= protection(_private_folder())
    else:
        settings["spark.authenticate"] = "true"  # yarn and Kubernetes create a secret for every application
    conf = SparkConf().setMaster(master or f"local[{4 * partitions},4]").setAppName("ppa").setAll(list(settings.items()))
    SparkContext._ensure_initialized(conf=conf)
    if master is not None and on_a_cluster(master):
        check_cluster(SparkConf(_jvm=SparkContext._jvm), master, trusted_network)
        spark = _on_the_cluster(conf, master, partitions)
    else:
        spark = SparkSession.builder.config(conf=conf).getOrCreate()
    check_session(spark.sparkContext, trusted_network)
    protect_callbacks(spark.sparkContext._gateway)
    return spark


def _on_the_cluster(conf: SparkConf, master: str, partitions: int) -> SparkSession:
    try:
        spark = SparkSession.builder.config(conf=conf).getOrCreate()
        prepare(spark.sparkContext, master, 2 * partitions)
    except Py4JError as error:
        reason = next((line for line in str(error).splitlines() if line.startswith(": ")), ": no reason given")[2:]
        if "stopped SparkContext" in reason:  # the master did not respond
            reason = "the application was not registered within a minute"
        raise Unavailable(
            f"{master} does not accept this application ({reason[:200]}); check that the secret in spark-defaults.conf is "
            "that of the cluster; SPARK_CONF_DIR names the folder of that file (see docs/cluster.md)"
        ) from error
    return spark


def _private_folder() -> Path:
    """A new folder that other users cannot enter; it is removed when this process ends."""
    folder = scratch("ppa-spark-")
    atexit.register(folder.remove)
    return folder.path


def check_master(master: str | None) -> None:
    """Refuse an invalid master URL before a JVM is started."""
    if master is not None and not _MASTER.fullmatch(master):
        known = "spark://HOST:PORT, local[N], yarn or k8s://…"
        raise BadInput(f"--master {master}", f"not a Spark master; use {known}, or omit --master to run on this machine")


def check_reach(master: str | None, nodes: Iterable[Node]) -> None:
    """Refuse nodes on loopback for a cluster on other machines: its workers cannot reach them."""
    if master is None or not on_a_cluster(master) or _is_here(master):
        return
    for node in nodes:
        host = urlsplit(node.url).hostname
        if host is None or host == "localhost" or host.startswith("127.") or host == "::1":
            raise BadInput(
                f"node {node.name}",
                f"the workers of {master} cannot reach {node.address}; with --nodes-file, name nodes that they can reach",
            )


def _is_here(master: str) -> bool:
    """Whether the master is on this machine: then its workers are assumed to be here too."""
    host = master.removeprefix("spark://").partition(",")[0].rpartition(":")[0].strip("[]")
    try:
        family, _, _, _, address = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)[0]
        with socket.socket(family) as probe:
            probe.bind(address)  # an address of another machine cannot be bound
    except OSError:
        return False
    return True


def _reached_from(master: str | None) -> str:
    """The address of this machine for the master's workers: the one from which the master is reached.

    This also checks that a standalone master answers: Spark itself would try for a minute, without a clear error.
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
    raise Unavailable(f"no Spark master answers ({'; '.join(places)}); start it, or omit --master to run on this machine")
