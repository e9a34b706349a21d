"""A Spark standalone cluster: it starts and ends cleanly, keeps its secret, and killed executors and workers change nothing."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from ppa_core.drills.baseline import without_spark
from ppa_core.drills.drill import Setup, drill
from ppa_core.drills.failures import PlannedFailure
from ppa_core.driver.executors import children
from ppa_core.driver.records import Settings
from ppa_core.driver.session import check_reach
from ppa_core.driver.shipping import package
from ppa_core.errors import BadInput, RequestError
from ppa_core.placement.nodes import Node
from ppa_core.process.spark_cluster import SparkCluster, launch_spark

ROOT = Path(__file__).parents[2]
BATCHES = 12


@pytest.fixture(scope="module")
def cluster() -> Iterator[SparkCluster]:
    with launch_spark(workers=2, cores=2, memory_mb=1024) as running:
        yield running


def setup(*kills: PlannedFailure, master: str | None) -> Setup:
    options = {"rate": 100, "window": 4.0, "batch_seconds": 1.0}
    return Setup("tree", options, 8, kills, Settings(batches=BATCHES, checkpoint_every=4, interval=0.5), master=master)


@pytest.mark.drill
def test_an_executor_then_a_worker_then_all_primaries_killed_and_the_output_is_that_of_a_run_without_failure(
    cluster: SparkCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in cluster.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("PYTHONPATH", raising=False)
    started = cluster.workers
    kills = PlannedFailure("executor", 2), PlannedFailure("worker", 4), PlannedFailure("primaries", 6)
    wanted = setup(*kills, master=cluster.master)
    report = drill(wanted, baseline=without_spark(wanted))
    assert report["different_batches"] == []
    assert report["equal_to_failure_free"] is True
    assert report["failed"] == ["executor", "worker", "n1", "n2", "n3", "n4"]
    assert report["batches"]["accurate"] + report["batches"]["corrected"] == BATCHES
    assert sum(map(alive, started.values())) == 1


@pytest.mark.drill
def test_a_killed_worker_is_started_again_and_only_running_ones_can_be_killed(cluster: SparkCluster) -> None:
    cluster.restart_worker(0)
    before = cluster.workers[1]
    cluster.kill_worker(1)
    assert not alive(before)
    with pytest.raises(RequestError, match="worker 1: not running; running workers: 0"):
        cluster.kill_worker(1)
    cluster.restart_worker(1)
    assert cluster.ended() is None


@pytest.mark.drill
def test_all_listen_on_loopback_alone_and_the_secret_is_in_one_file_that_only_its_owner_reads(cluster: SparkCluster) -> None:
    processes = [process for process in children(cluster._supervisor.pid) if alive(process.pid)]
    listening = {address for one in processes for address in listened(one)}
    assert listening
    assert all(address.removeprefix("::ffff:").startswith("127.") for address in listening)
    defaults = Path(cluster.environment["SPARK_CONF_DIR"]) / "spark-defaults.conf"
    assert stat.S_IMODE(defaults.stat().st_mode) == 0o600
    assert stat.S_IMODE(cluster.folder.stat().st_mode) == 0o700
    secret = dict(line.split(" ", 1) for line in defaults.read_text().splitlines())["spark.authenticate.secret"]
    assert len(secret) >= 32
    assert not [one for one in processes if alive(one.pid) and any(secret in word for word in one.cmdline())]


def listened(process: psutil.Process) -> set[str]:
    """The addresses where a process listens; none if it has ended since."""
    try:
        return {link.laddr.ip for link in process.net_connections("inet") if link.status == psutil.CONN_LISTEN}
    except (psutil.NoSuchProcess, FileNotFoundError):
        return set()


OWNER = """
import json, time
from ppa_core.process.spark_cluster import launch_spark
cluster = launch_spark(1, 1, 512)
print(json.dumps([str(cluster.folder), cluster._supervisor.pid, *cluster.workers.values()]), flush=True)
time.sleep(60)
"""


@pytest.mark.drill
def test_everything_is_gone_when_the_owner_is_killed() -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen([sys.executable, "-c", OWNER], stdout=subprocess.PIPE, env=environment) as owner:
        assert owner.stdout
        folder, *pids = json.loads(owner.stdout.readline())
        assert all(map(alive, pids))
        owner.send_signal(signal.SIGKILL)
    end = time.monotonic() + 10
    while time.monotonic() < end and (any(map(alive, pids)) or Path(folder).exists()):
        time.sleep(0.05)
    assert not any(map(alive, pids))
    assert not Path(folder).exists()


def alive(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def test_the_package_is_shipped_whole_and_under_the_same_name_while_it_is_the_same(tmp_path: Path) -> None:
    name, data = package()
    package.cache_clear()
    assert package() == (name, data)
    (tmp_path / name).write_bytes(data)
    code = "import ppa_core.driver.jobs, ppa_core.worker.stage, ppa_core.queries; print(ppa_core.__file__)"
    environment = {**os.environ, "PYTHONPATH": name}
    command = [sys.executable, "-c", code]
    told = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
    assert name in told.stdout


def test_what_cannot_be_started_killed_or_reached_is_refused_with_the_remedy() -> None:
    with pytest.raises(RequestError, match="workers: 0 is too small; the minimum is 1"):
        launch_spark(0, 1, 1024)
    with pytest.raises(BadInput, match="--fail worker: only a Spark cluster has workers: add --master"):
        setup(PlannedFailure("worker", 3), master=None)
    nodes = [Node("n1", "r1", "primary", "redis://:x@127.0.0.1:6379/0")]
    check_reach(None, nodes)
    check_reach("spark://127.0.0.1:7077", nodes)
    with pytest.raises(BadInput, match=r"node n1: the workers of spark://192\.0\.2\.99:7077 cannot reach .*--nodes-file"):
        check_reach("spark://192.0.2.99:7077", nodes)
