"""Another user of the machine attacks the ports, sockets, files and command lines of a running Spark driver.

Every attack is shown to succeed on a plain Spark session, without what this package does for its own.
"""

from __future__ import annotations

import json
import os
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
from pyspark import SparkConf

from ppa_core.driver.authentication import check_cluster, protection
from ppa_core.driver.config import Config
from ppa_core.driver.records import Settings
from ppa_core.engine.run_events import OutputPublished
from ppa_core.errors import BadInput
from ppa_core.nodes.embedded import EmbeddedNodes, launch
from ppa_core.process.driver import Driver, DriverExited
from tests.security.transport import Stranger

ROOT = Path(__file__).parents[2]
MASTER = "spark://127.0.0.1:7077"
FORGED = b"a task binary that runs what its author likes"
BLOCK = "broadcast_123456_piece0"
NOBODY = 65534

PLAIN = """
import json, sys
from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import SparkSession

class Exposed:
    def reveal(self):
        return "what the driver knows"

spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").config("spark.driver.host", "127.0.0.1") \\
    .config("spark.driver.bindAddress", "127.0.0.1").config("spark.log.level", "OFF") \
    .config("spark.broadcast.compress", "false").getOrCreate()
context, jvm = spark.sparkContext, spark.sparkContext._jvm
kept = context.broadcast("the password of a node")
ensure_callback_server_started(context._gateway)
target = context._gateway.gateway_property.pool.put(Exposed())
tag = jvm.scala.reflect.ClassTag.apply(jvm.java.lang.Class.forName("java.lang.Object"))
level = jvm.org.apache.spark.storage.StorageLevel.MEMORY_ONLY_SER()
metadata = jvm.org.apache.spark.network.netty.BlockReplicationMetadata(level, tag, jvm.scala.Option.empty(), False)
written = jvm.org.apache.spark.serializer.JavaSerializer(context._jsc.sc().conf()).newInstance().serialize(metadata, tag)
print(json.dumps([target, bytes(written.array())[: written.limit()].hex()]), flush=True)
sys.stdin.read()
"""


@dataclass(frozen=True)
class Plain:
    """A Spark session that is not protected: what a stranger needs to know of it."""

    pid: int
    exposed: str
    metadata: bytes


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plain]:
    folder = str(tmp_path_factory.mktemp("plain"))
    environment = {**os.environ, "TMPDIR": folder, "SPARK_LOCAL_DIRS": folder, "PYSPARK_PYTHON": sys.executable}
    command = [sys.executable, "-c", PLAIN]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, cwd=folder) as running:
        assert running.stdout
        exposed, metadata = json.loads(running.stdout.readline())
        yield Plain(running.pid, exposed, bytes.fromhex(metadata))
        running.communicate(timeout=60)


@pytest.fixture(scope="module")
def nodes() -> Iterator[EmbeddedNodes]:
    with launch(primaries=1, standbys=1, racks=1, memory_mb=64) as running:
        yield running


@pytest.fixture(scope="module")
def driver(nodes: EmbeddedNodes, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
    """A driver that has run some batches and goes on."""
    options = {"rate": 20, "window": 2.0, "batch_seconds": 0.5}
    folder, members = tmp_path_factory.mktemp("run"), tuple(nodes.cluster.nodes)
    config = Config("tree", options, members, (), Settings(interval=0.5), "attacked", folder, detailed=True)
    with Driver(config) as running:
        events = running.events()
        next(event for event in events if isinstance(event, OutputPublished) and event.batch == 2)

        def drain() -> None:
            with suppress(DriverExited, ValueError):  # it is killed in the end
                for _ in events:
                    pass

        threading.Thread(target=drain, daemon=True).start()
        yield running


def tree(pid: int) -> list[psutil.Process]:
    process = psutil.Process(pid)
    return [process, *process.children(recursive=True)]


def listening(pid: int) -> list[tuple[str, str, int]]:
    """Program, address and port of all that a process and its children listen on."""
    found = [(name, link) for name, link in connections(pid, "inet") if link.status == psutil.CONN_LISTEN]
    return [(name, link.laddr.ip.removeprefix("::ffff:"), link.laddr.port) for name, link in found]


def connections(pid: int, kind: str) -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    for process in tree(pid):
        with suppress(psutil.Error, FileNotFoundError):  # workers come and go
            found += [(process.name(), link) for link in process.net_connections(kind)]
    return found


def forge(port: int, metadata: bytes) -> bytes | None:
    """What a stranger reads under the name of a block that it has written there itself."""
    with Stranger(port) as stranger:
        stranger.write_block(BLOCK, metadata, FORGED)
        return stranger.read_block(BLOCK)


def read(port: int) -> list[bytes]:
    """The broadcasts that a stranger reads."""
    with Stranger(port) as stranger:
        found = [stranger.read_block(f"broadcast_{i}_piece0") for i in range(200)]
    return [block for block in found if block is not None]


@pytest.mark.drill
def test_a_stranger_neither_reads_nor_writes_blocks(plain: Plain, driver: Driver) -> None:
    ports, weak = java_ports(driver.process.pid), java_ports(plain.pid)
    with ThreadPoolExecutor() as pool:  # one of them waits for the end of a line that never comes
        assert FORGED in pool.map(forge, weak, [plain.metadata] * len(weak))
        assert any(b"the password of a node" in block for blocks in pool.map(read, weak) for block in blocks)
        assert ports
        assert not any(pool.map(forge, ports, [plain.metadata] * len(ports)))
        assert not any(pool.map(read, ports))


def java_ports(pid: int) -> list[int]:
    return [port for name, _, port in listening(pid) if name == "java"]


@pytest.mark.drill
def test_a_stranger_calls_nothing_in_the_driver(plain: Plain, driver: Driver) -> None:
    assert calls(plain.pid, [plain.exposed], "reveal") == ["swhat the driver knows"]
    known = [f"p{i}" for i in range(5)]  # how py4j names what the JVM can call
    for method in ("call", "toString", "onQueryProgress", "reveal"):
        assert calls(driver.process.pid, [*known, "t"], method) == []


@pytest.mark.drill
def test_a_stranger_cannot_fill_the_memory_of_the_callback_server(driver: Driver) -> None:
    python = psutil.Process(driver.process.pid)
    port = next(port for name, _, port in listening(python.pid) if name != "java")
    before = python.memory_info().rss
    with socket.create_connection(("127.0.0.1", port), timeout=10) as link, suppress(OSError):
        for _ in range(200):
            link.sendall(b"x" * (1 << 20))  # no end of a line
        pytest.fail("it took 200 MB from somebody who had not said the token")
    assert python.memory_info().rss < before + (50 << 20)


def calls(pid: int, targets: Sequence[str], method: str) -> list[str]:
    """What the py4j servers of a process and its children answered."""

    def ask(port: int) -> list[str | None]:
        found = []
        for target in targets:
            with Stranger(port) as stranger:
                found.append(stranger.call(target, method))
        return found

    with ThreadPoolExecutor() as pool:
        answers = list(pool.map(ask, [port for _, _, port in listening(pid)]))
    return [answer for some in answers for answer in some if answer is not None]


@pytest.mark.drill
def test_a_driver_listens_on_four_ports_of_loopback_that_ask_for_a_secret_and_on_unix_sockets_in_a_folder_of_its_user(
    driver: Driver,
) -> None:
    found = listening(driver.process.pid)
    assert {address for _, address, _ in found} == {"127.0.0.1"}
    programs = sorted(name for name, _, _ in found)
    assert programs.count("java") == 3  # py4j's gateway, Spark's RPC, the block manager
    assert len(programs) == 4  # and Python's server for calls from the JVM
    sockets = {Path(link.laddr) for _, link in connections(driver.process.pid, "unix") if link.laddr.startswith("/")}
    assert sockets
    for path in sockets:
        assert any(is_private(folder) for folder in path.parents)
        if os.geteuid() == 0:
            with as_nobody(), socket.socket(socket.AF_UNIX) as link, pytest.raises(PermissionError):
                link.connect(str(path))


@contextmanager
def as_nobody() -> Iterator[None]:
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


def is_private(folder: Path) -> bool:
    found = folder.stat()
    return found.st_uid == os.geteuid() and not stat.S_IMODE(found.st_mode) & 0o077


@pytest.mark.drill
def test_no_secret_is_on_a_command_line_and_the_environment_is_its_users_alone(driver: Driver, nodes: EmbeddedNodes) -> None:
    passwords = [node.password for node in nodes.cluster.nodes if node.password]
    environments: dict[str, str] = {}
    words: set[str] = set()
    for process in tree(driver.process.pid):
        with suppress(psutil.Error):
            words |= set(process.cmdline())
            environments |= {name: value for name, value in process.environ().items() if "SECRET" in name or "TOKEN" in name}
            assert not stat.S_IMODE(Path(f"/proc/{process.pid}/environ").stat().st_mode) & 0o077
    assert any("spark.authenticate=true" in word for word in words)
    assert not [word for word in words for secret in (*passwords, *environments.values()) if secret in word]
    assert not [word for word in words if "secret=" in word.lower() or "token=" in word.lower()]


@pytest.mark.drill
def test_blocks_shuffle_files_and_all_that_java_keeps_are_in_a_folder_that_others_cannot_enter(driver: Driver) -> None:
    jvm = next(process for process in tree(driver.process.pid) if process.name() == "java")
    folder = Path(jvm.environ()["SPARK_LOCAL_DIRS"])
    assert is_private(folder)
    assert list(folder.glob("blockmgr-*"))
    assert f"-Djava.io.tmpdir={folder}" in jvm.environ()["JDK_JAVA_OPTIONS"]


def test_a_session_in_a_program_keeps_its_files_and_sockets_in_a_folder_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARK_LOCAL_DIRS", raising=False)
    folder = Path("/tmp/short")
    assert protection(folder) == {
        "spark.authenticate": "true",
        "spark.local.dir": "/tmp/short",
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.python.unix.domain.socket.dir": "/tmp/short",
    }
    long = folder / ("x" * 60)  # no room for a socket: Python's processes are reached by TCP, with a secret
    assert protection(long) == {"spark.authenticate": "true", "spark.local.dir": str(long)}
    monkeypatch.setenv("SPARK_LOCAL_DIRS", "/large/disk")
    assert "spark.local.dir" not in protection(folder)


# --------------------------------------------------------------------------------------------------------- clusters


@contextmanager
def master_in_name_only() -> Iterator[tuple[str, list[bytes]]]:
    """Something that listens as a Spark master would; what it is sent."""
    heard: list[bytes] = []

    def listen() -> None:
        with suppress(OSError):
            while True:
                link, _ = server.accept()
                threading.Thread(target=hear, args=(link,), daemon=True).start()

    def hear(link: socket.socket) -> None:
        with link, suppress(OSError):
            while part := link.recv(65536):
                heard.append(part)

    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=listen, daemon=True).start()
        yield f"spark://127.0.0.1:{server.getsockname()[1]}", heard
        server.shutdown(socket.SHUT_RDWR)


@pytest.mark.drill
@pytest.mark.parametrize("trusted", [False, True])
def test_a_cluster_without_authentication_gets_nothing_from_a_run_unless_its_network_is_trusted(
    nodes: EmbeddedNodes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trusted: bool
) -> None:
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    with ExitStack() as stack:
        master, heard = stack.enter_context(master_in_name_only())
        members = tuple(nodes.cluster.nodes)
        config = Config("tree", {}, members, (), Settings(batches=1), "r", tmp_path, master, trusted_network=trusted)
        running = stack.enter_context(Driver(config))
        if trusted:
            while not heard:
                assert running.process.poll() is None
                time.sleep(0.1)
        else:
            with pytest.raises(
                BadInput, match=r"--master spark://.*anyone who can connect .* can run code.*or use --trusted-network"
            ):
                list(running.events())
            assert not heard


def conf(**more: str) -> SparkConf:
    known = SparkConf(loadDefaults=False)
    for name, value in more.items():
        known.set(f"spark.{name.replace('_', '.')}", value)
    return known


def test_what_a_cluster_must_have_is_said_before_anyone_connects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    defaults = tmp_path / "spark-defaults.conf"
    for setting in ({}, {"authenticate": "false"}, {"authenticate_secret": "of the cluster"}):
        with pytest.raises(BadInput, match=r"spark\.authenticate is not on"):
            check_cluster(conf(**setting), MASTER, trusted=False)
        check_cluster(conf(**setting), MASTER, trusted=True)
    with pytest.raises(BadInput, match=r"spark-defaults.conf: .*spark.authenticate.secret is missing"):
        check_cluster(conf(authenticate="true"), MASTER, trusted=True)
    whole = conf(authenticate="true", authenticate_secret="of the cluster")
    check_cluster(whole, MASTER, trusted=False)
    defaults.touch(mode=0o600)
    defaults.write_text("spark.authenticate.secret of the cluster")
    check_cluster(whole, MASTER, trusted=False)
    defaults.chmod(0o644)
    with pytest.raises(BadInput, match="every user of this machine can read the secret") as caught:
        check_cluster(whole, MASTER, trusted=False)
    assert "of the cluster" not in str(caught.value)
