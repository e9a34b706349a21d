"""A test bed of hosts: they reach each other, are silent when cut or hung, return with their data, and leave nothing behind."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psutil
import pytest
from redis.exceptions import ConnectionError as Refused
from redis.exceptions import TimeoutError as Silent

from ppa_core.drills.baseline import without_spark
from ppa_core.drills.drill import DrillEvent, FailureEnded, Setup, drill
from ppa_core.drills.failures import PlannedFailure
from ppa_core.driver.executors import EXECUTOR, WORKER, executors_of, runs
from ppa_core.driver.records import Settings
from ppa_core.engine.run_events import BatchFinished, NodeLost
from ppa_core.errors import RequestError, Unavailable
from ppa_core.placement.files import load_cluster
from ppa_core.process import namespaces
from ppa_core.process.bed_names import bed_namespace, new_bed_name, remove_stale_beds
from ppa_core.process.bed_network import CONTROL_ADDRESS, BedNetwork
from ppa_core.process.namespaces import Namespace, all_names, check_usable, state_of
from ppa_core.process.testbed import TestBed, launch_testbed
from ppa_core.redis_client import open_redis

ROOT = Path(__file__).parents[2]
SECONDS = 0.7


@pytest.fixture(scope="module")
def usable() -> None:
    """Skips the test, with the reason, where network namespaces or bridges cannot be made."""
    try:
        check_usable()
        with_network({"r1": ["h1"]}, lambda network: None)
    except Unavailable as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def bed(usable: None) -> Iterator[TestBed]:
    before = links()
    with launch_testbed(hosts=4, racks=2, cores=4, memory_mb=512, node_memory_mb=64) as running:
        assert links() == before
        yield running
    assert not [name for name in all_names() if name.startswith(running.name)]
    assert not running.folder.exists()
    assert links() == before


def with_network(racks: dict[str, list[str]], use: Callable[[BedNetwork], None]) -> None:
    network = BedNetwork(new_bed_name(), racks)
    try:
        network.create()
        use(network)
    finally:
        for namespace in network.namespaces:
            namespace.remove()


def links() -> str:
    """The interfaces, addresses and routes of this machine's own network."""
    commands = (["ip", "-brief", "link"], ["ip", "-brief", "address"], ["ip", "route", "show", "table", "all"])
    return "\n".join(subprocess.run(one, capture_output=True, text=True, check=True).stdout for one in commands)


def listening(namespace: Namespace, address: str) -> socket.socket:
    return namespace.call(lambda: socket.create_server((address, 7)))


def reaches(namespace: Namespace, address: str) -> bool:
    """Whether a connection is accepted; not if it times out. Anything else is an error."""
    try:
        namespace.call(lambda: socket.create_connection((address, 7), timeout=SECONDS).close())
    except TimeoutError:
        return False
    return True


def within(seconds: float, holds: Callable[[], bool]) -> bool:
    end = time.monotonic() + seconds
    while not holds() and time.monotonic() < end:
        time.sleep(0.05)
    return holds()


def ask(bed: TestBed, node: str, value: str | None = None) -> str | None:
    """Read a value in a node, from the control namespace; or write it first."""

    def request() -> str | None:
        with open_redis(bed.cluster[node].url, SECONDS, decode_responses=True) as client:
            if value is not None:
                client.set("ppa:test", value)
            return str(found) if (found := client.get("ppa:test")) else None

    return bed.network.control.call(request)


# ---------------------------------------------------------------------------------------------------------------- network


@pytest.mark.slow
def test_a_cut_host_is_silent_both_ways_and_a_cut_rack_reaches_itself_alone(usable: None) -> None:
    def use(network: BedNetwork) -> None:
        h1, h2, h3 = (network.hosts[host] for host in ("h1", "h2", "h3"))
        places = [(namespace, network.addresses[host]) for host, namespace in network.hosts.items()]
        servers = [listening(*place) for place in (*places, (network.control, CONTROL_ADDRESS))]
        try:
            everyone = [*network.addresses.values(), CONTROL_ADDRESS]
            assert all(reaches(namespace, address) for namespace in (h1, h2, h3, network.control) for address in everyone)
            network.set_link("h1", up=False)
            assert network.cut == {"h1"}
            assert not reaches(h1, CONTROL_ADDRESS)
            assert not reaches(network.control, network.addresses["h1"])
            assert not reaches(h2, network.addresses["h1"])
            assert reaches(h2, network.addresses["h3"])
            network.set_link("h1", up=True)
            assert reaches(network.control, network.addresses["h1"])
            network.set_link("r1", up=False)
            assert reaches(h1, network.addresses["h2"])
            assert not reaches(h1, network.addresses["h3"])
            assert not reaches(network.control, network.addresses["h2"])
            assert reaches(h3, CONTROL_ADDRESS)
            network.set_link("r1", up=True)
            assert reaches(h1, network.addresses["h3"])
        finally:
            for server in servers:
                server.close()

    before = links()
    with_network({"r1": ["h1", "h2"], "r2": ["h3"]}, use)
    assert links() == before


@pytest.mark.slow
def test_a_cut_host_stays_silent_for_longer_than_arp_takes_to_give_up(usable: None) -> None:
    def use(network: BedNetwork) -> None:
        network.set_link("h1", up=False)
        for namespace, address in ((network.control, network.addresses["h1"]), (network.hosts["h1"], CONTROL_ADDRESS)):
            with pytest.raises(TimeoutError, match="timed out"):
                namespace.call(lambda address=address: socket.create_connection((address, 7), timeout=5.0))  # type: ignore[misc]

    with_network({"r1": ["h1"]}, use)


def test_where_it_cannot_run_the_remedy_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "which", lambda name: None)
        with pytest.raises(Unavailable, match="needs the program 'ip': 'apt-get install iproute2' installs it"):
            launch_testbed()
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(Unavailable, match="only root may: start it as root"):
        launch_testbed()
    monkeypatch.setattr(namespaces, "_program", lambda name: "/bin/false")
    with pytest.raises(Unavailable, match=r"'ip netns add ppa-bed-x-h1' failed: .*SYS_ADMIN and NET_ADMIN"):
        bed_namespace("ppa-bed-x", "h1").create()
    for numbers, reason in (
        ((0, 1), "hosts: 0 is too small"),
        ((300, 1), "hosts: 300 is too large"),
        ((2, 3), "racks: 3 racks for 2 hosts"),
    ):
        with pytest.raises(RequestError, match=reason):
            launch_testbed(*numbers)


LISTENS = "import socket, time; server = socket.create_server(('0.0.0.0', 4567)); print(flush=True); time.sleep(60)"


def test_the_executors_of_a_driver_in_another_namespace_are_known(usable: None) -> None:
    namespace = bed_namespace(new_bed_name(), "control")
    namespace.create()
    sleeps = [sys.executable, "-c", "import time; time.sleep(60)", EXECUTOR, "--driver-url", "spark://driver@10.77.0.1:4567"]
    try:
        driver = subprocess.Popen([*namespace.prefix, sys.executable, "-c", LISTENS], stdout=subprocess.PIPE)
        with driver, subprocess.Popen(sleeps) as executor:
            assert driver.stdout
            driver.stdout.readline()
            try:
                assert within(10, lambda: [found.pid for found in executors_of(driver.pid)] == [executor.pid])
                assert executors_of(executor.pid) == []
            finally:
                driver.kill()
                executor.kill()
    finally:
        namespace.remove()


# -------------------------------------------------------------------------------------------------------------------- bed


@pytest.mark.slow
@pytest.mark.drill
def test_hosts_have_nodes_and_a_nodes_file_that_only_its_owner_reads(bed: TestBed) -> None:
    assert bed.racks == {"r1": ("h1", "h2"), "r2": ("h3", "h4")}
    known = {node.name: (node.rack, node.role, node.host) for node in bed.cluster.nodes}
    assert (known["n1"], known["s4"]) == (("r1", "primary", "h1"), ("r2", "standby", "h4"))
    assert load_cluster(bed.nodes_file) == bed.cluster
    assert stat.S_IMODE(bed.nodes_file.stat().st_mode) == 0o600
    assert bed.ended() == []
    for node in bed.cluster.nodes:
        assert bed.addresses[node.host] in node.url
        assert ask(bed, node.name, node.name) == node.name
    done = bed.run_in_control(["sh", "-c", "echo $SPARK_LOCAL_IP; ls $SPARK_CONF_DIR"], capture_output=True, check=True)
    assert done.stdout.split() == [CONTROL_ADDRESS, "log4j2.properties", "spark-defaults.conf"]
    password = bed.cluster["n1"].password
    assert password is not None
    words = [word for pid in bed.processes("h1") for word in psutil.Process(pid).cmdline()]
    assert words
    assert not [word for word in words if password in word]


@pytest.mark.slow
@pytest.mark.drill
def test_a_cut_host_does_not_answer_and_answers_again_with_its_data(bed: TestBed) -> None:
    ask(bed, "n1", "before")
    with closing(bed.network.control.call(lambda: open_redis(bed.cluster["n1"].url, SECONDS))) as opened:
        bed.network.control.call(opened.ping)
        bed.cut(host="h1")
        with pytest.raises(Silent):
            opened.ping()  # on a connection from before
        with pytest.raises(Silent):
            ask(bed, "n1")
        with pytest.raises(RequestError, match="host h1: the link of h1 is down; mend it first"):
            bed.restart("h1")
        assert ask(bed, "n2", "x") == "x"
        bed.mend(host="h1")
    assert ask(bed, "n1") == "before"
    bed.cut(rack="r1")
    for node in ("n1", "s1", "n2", "s2"):
        with pytest.raises(Silent):
            ask(bed, node)
    assert ask(bed, "n3", "y") == "y"
    bed.mend(rack="r1")
    assert ask(bed, "n1") == "before"
    for names in ({}, {"host": "h1", "rack": "r1"}, {"host": "r1"}, {"rack": "h1"}):
        with pytest.raises(RequestError):
            bed.cut(**names)


@pytest.mark.slow
@pytest.mark.drill
def test_a_hung_host_or_node_does_not_answer_until_it_is_resumed(bed: TestBed) -> None:
    ask(bed, "n2", "kept")
    processes = bed.processes("h2")
    assert len(processes) == 3
    bed.hang("h2")
    assert {state_of(pid) for pid in processes} == {"T"}
    with pytest.raises(Silent):
        ask(bed, "s2")
    bed.resume("h2")
    assert ask(bed, "n2") == "kept"
    assert bed.processes("h2") == processes
    bed.hang("n2")
    with pytest.raises(Silent):
        ask(bed, "n2")
    assert ask(bed, "s2", "z") == "z"
    bed.resume("n2")
    assert ask(bed, "n2") == "kept"


@pytest.mark.slow
@pytest.mark.drill
def test_a_killed_host_refuses_and_returns_empty_at_the_same_addresses(bed: TestBed) -> None:
    ask(bed, "n4", "lost")
    bed.hang("h4")  # also if it was hung before
    bed.kill("h4")
    assert bed.processes("h4") == []
    assert not {"n4", "s4"} & set(bed.pids)
    with pytest.raises(Refused, match="refused"):
        ask(bed, "n4")
    with pytest.raises(RequestError, match="node 'n4': not running"):
        bed.hang("n4")
    bed.restart("h4")
    assert ask(bed, "n4") is None
    assert len(bed.processes("h4")) == 3
    bed.kill("s4")
    with pytest.raises(Refused, match="refused"):
        ask(bed, "s4")
    bed.restart("s4")
    assert ask(bed, "s4", "new") == "new"
    (worker,) = (pid for pid in bed.processes("h4") if runs(psutil.Process(pid), WORKER))
    os.kill(worker, signal.SIGKILL)
    assert within(10, lambda: bed.ended() == ["worker-h4"])
    bed.restart("worker-h4")
    assert bed.ended() == []
    assert ask(bed, "s4") == "new"
    assert bed.processes("s4") == [bed.pids["s4"]]


JOB = """
import json, socket, sys, time
from ppa_core.driver.session import open_session

def own_address(_):
    time.sleep(1.0)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("10.77.0.1", 9))
        yield probe.getsockname()[0]

spark = open_session(sys.argv[1], 2)
end = time.monotonic() + 60
ran = set()
while len(ran) < int(sys.argv[2]) and time.monotonic() < end:
    ran |= set(spark.sparkContext.parallelize(range(8), 8).mapPartitions(own_address).collect())
status = spark.sparkContext._jsc.sc().getExecutorMemoryStatus().keys().mkString(",")
print(json.dumps({"ran": sorted(ran), "registered": sorted({place.rpartition(":")[0] for place in status.split(",")})}))
"""


@pytest.mark.slow
@pytest.mark.drill
def test_a_spark_job_runs_on_all_hosts_with_their_addresses_and_a_host_hangs_and_resumes_with_its_executor(
    bed: TestBed, tmp_path: Path
) -> None:
    command = [*bed.prefix, sys.executable, "-c", JOB, bed.master, str(len(bed.hosts))]
    log = tmp_path / "log"
    with log.open("w") as errors, subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, cwd=ROOT) as job:
        assert job.stdout
        assert within(90, lambda: len(bed.processes("h3")) > 5)  # worker, nodes, executor, its Python processes
        bed.hang("h3")
        hung = bed.processes("h3")
        assert {state_of(pid) for pid in hung} == {"T"}
        assert set(bed.executors("h3")) < set(hung)
        bed.resume("h3")
        told = job.stdout.read().decode()
        assert job.wait(60) == 0, log.read_text()[-2000:]
    found = json.loads(told.splitlines()[-1])
    assert found["ran"] == sorted(bed.addresses.values())
    assert found["registered"] == sorted([*bed.addresses.values(), CONTROL_ADDRESS])


@pytest.mark.slow
@pytest.mark.drill
def test_a_rack_is_cut_a_host_hangs_one_is_slow_a_node_and_an_executor_are_killed_and_no_output_differs(
    bed: TestBed,
) -> None:
    """State and compute are silent together: the executors there are not waited for. All return."""
    options = {"rate": 100, "window": 4.0, "batch_seconds": 1.0}
    failures = (
        PlannedFailure("rack:r1", 5, "cut", 4.0),
        PlannedFailure("host:h3", 14, "hang", 4.0),
        PlannedFailure("node:n4", 21, "kill", 2.0, alone=True),
        PlannedFailure("host:h1", 22, "slow:300", 3.0, later=0.5),
        PlannedFailure("executor", 28, alone=True),
    )
    wanted = Setup("tree", options, 8, failures, Settings(batches=34, checkpoint_every=4), testbed=(4, 2))
    events: list[Any] = []
    computing = set[str]()

    def watch(event: DrillEvent) -> None:
        events.append(event)
        if isinstance(event, BatchFinished) and event.batch > 20:
            computing.update(host for host in bed.hosts if bed.executors(host))

    report = drill(wanted, watch, without_spark(wanted), bed)
    assert computing == set(bed.hosts), "hosts that were silent have executors again"
    assert report["failed"] == ["n1", "n2", "s1", "s2", "n3", "s3", "n4", "n1", "s1", "executor"]
    assert [event.trouble for event in events if isinstance(event, FailureEnded)] == ["", "", "", ""]
    assert report["different_batches"] == []
    assert report["batches"]["tentative"] == report["batches"]["corrected"]
    suspected = {event.node for event in events if isinstance(event, NodeLost) and event.suspected}
    assert suspected >= {"n1", "n2", "s1", "s2", "n3", "s3"}
    assert bed.ended() == []


# ------------------------------------------------------------------------------------------------------------- afterwards

OWNER = """
import json, time
from ppa_core.process.testbed import launch_testbed
bed = launch_testbed(1, 1, 1, 512, 16)
print(json.dumps([bed.name, str(bed.folder), bed._supervisor.pid, bed.processes("h1")]), flush=True)
time.sleep(600)
"""


@pytest.mark.slow
@pytest.mark.drill
@pytest.mark.parametrize("supervisor_too", [False, True])
def test_everything_is_gone_when_the_owner_is_killed(usable: None, supervisor_too: bool) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    before = links()
    with subprocess.Popen([sys.executable, "-c", OWNER], stdout=subprocess.PIPE, env=environment) as owner:
        assert owner.stdout
        name, folder, supervisor, processes = json.loads(owner.stdout.readline())
        assert len(processes) == 3
        assert {f"{name}-{part}" for part in ("h1", "control", "switches")} <= set(all_names())
        assert name not in remove_stale_beds()  # its owner lives
        if supervisor_too:
            os.kill(supervisor, signal.SIGKILL)
        owner.send_signal(signal.SIGKILL)
    if supervisor_too:
        assert name in remove_stale_beds()
    assert within(10, lambda: not Path(folder).exists())
    assert within(10, lambda: all(state_of(pid) in "ZX" for pid in processes))
    assert not [found for found in all_names() if found.startswith(name)]
    assert links() == before


@pytest.mark.slow
@pytest.mark.drill
def test_the_command_prints_how_to_use_it_and_removes_everything_at_its_end(usable: None) -> None:
    command = [sys.executable, "-m", "ppa_core", "testbed", "--hosts", "1", "--racks", "1", "--memory", "512", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT) as process:
        assert process.stdout
        told = json.loads(process.stdout.readline())
        assert Path(told["nodes_file"]).exists()
        assert [(host["name"], host["rack"], host["nodes"]) for host in told["hosts"]] == [("h1", "r1", ["n1", "s1"])]
        code = "import socket; socket.create_connection(('10.77.1.1', 6379), 2).close(); print('reached')"
        done = subprocess.run([*told["prefix"], sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert done.stdout == "reached\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0
    assert not [found for found in all_names() if found.startswith(told["name"])]
    assert not list(Path(tempfile.gettempdir()).glob(f"{told['name']}-*"))
