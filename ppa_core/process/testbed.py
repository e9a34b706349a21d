"""A test bed of hosts on this machine: hosts in racks that can be killed, hung and cut off the network, one by one.

Each host is a network namespace with a Spark worker and two nodes, a primary and a standby. The Spark master is in a namespace
`control`, and the driver belongs there too. All processes are children of a supervisor (`supervisor.py` says why): processes,
namespaces and the folder with their secrets are gone when this process ends, even if it is killed.
"""

from __future__ import annotations

import json
import secrets
import signal
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ppa_core.closeable import Closeable
from ppa_core.errors import RequestError, Unavailable
from ppa_core.nodes.acl import DATA_RULES, DATA_USER
from ppa_core.nodes.node_servers import NodeServers
from ppa_core.nodes.servers import ASSERTED_VARIABLE
from ppa_core.placement.nodes import Cluster, Node
from ppa_core.process.bed_names import new_bed_name, remove_stale_beds
from ppa_core.process.bed_network import CONTROL_ADDRESS, MOST_HOSTS, BedNetwork
from ppa_core.process.namespaces import check_usable, signal_until, state_of
from ppa_core.process.spark_daemons import LEAST_MEMORY, SparkDaemons, require_java
from ppa_core.process.supervised import Supervised
from ppa_core.safety.owned import written_whole

_PRIMARY_PORT, _STANDBY_PORT = 6379, 6380


class TestBed(Closeable):
    """A running test bed, with hosts h1, h2, … in racks r1, r2, …; on host h1 are the nodes n1 and s1.

    `kill`, `hang`, `resume` and `restart` take the name of a host or a node; killing and hanging a host reaches every process
    in its namespace, Spark's executors and their Python workers included. All stop with `close`, and with the `with` block.
    """

    __test__ = False  # not a test, whatever pytest makes of the name

    def __init__(self, hosts: int, racks: int, cores: int, memory_mb: int, node_memory_mb: int) -> None:
        self.name = new_bed_name()
        self.network = BedNetwork(self.name, _racks(hosts, racks))
        self.cluster = _cluster(self.network)
        self._supervisor = Supervised("the test bed has stopped, because its supervisor process ended; start it again")
        try:
            for namespace in self.network.namespaces:
                self._supervisor.at_end(namespace.removal)  # before it exists: it is removed whatever happens
            self.folder = self._folder()
            self.network.create()
            self._servers = NodeServers(self._supervisor, node_memory_mb, DATA_RULES)
            self._daemons = SparkDaemons(self._supervisor, self.folder, cores, memory_mb)
            self.nodes_file = self.write_nodes_file(self.folder / "nodes.json")
            for node in self.cluster.nodes:
                self._servers.start(node, self.network.hosts[node.host].prefix)
            self._daemons.start_master(CONTROL_ADDRESS, self.network.control.prefix)
            for host in self.hosts:
                self._start_worker(host)
            for node in self.cluster.nodes:
                self._await_node(node)
            for host in self.hosts:
                self._daemons.await_worker(_worker(host))
        except BaseException:
            self.close()
            raise

    # ---------------------------------------------------------------------------------------------------------- what it has

    @property
    def hosts(self) -> tuple[str, ...]:
        return tuple(self.network.hosts)

    @property
    def racks(self) -> dict[str, tuple[str, ...]]:
        """The hosts of each rack."""
        return dict(self.network.racks)

    @property
    def addresses(self) -> dict[str, str]:
        """The address of each host. Spark's executors on a host register with it."""
        return dict(self.network.addresses)

    @property
    def master(self) -> str:
        """The URL of the Spark master; it can be reached from `control` and from the hosts."""
        return self._daemons.master

    @property
    def environment(self) -> dict[str, str]:
        """Environment variables for a program in the namespace `control`.

        The nodes' servers count as patched, because nobody outside the bed can connect to them.
        """
        return self._daemons.environment | {"SPARK_LOCAL_IP": CONTROL_ADDRESS, ASSERTED_VARIABLE: "1"}

    @property
    def prefix(self) -> tuple[str, ...]:
        """A command that replaces itself by another one, in the namespace `control` and with the bed's environment."""
        return (*self.network.control.prefix, "env", *(f"{name}={value}" for name, value in self.environment.items()))

    @property
    def pids(self) -> dict[str, int]:
        """The process id of each node's server that was not killed."""
        return self._servers.pids

    def processes(self, name: str) -> list[int]:
        """All processes of a host, or the one of a node, if it runs."""
        if any(node.name == name for node in self.cluster.nodes):
            return [pid for node, pid in self._servers.pids.items() if node == name]
        return self.network.hosts[self._host(name)].pids()

    def executors(self, host: str) -> list[int]:
        """The process ids of a host's Spark executors."""
        return self._daemons.executors(_worker(host)) if _worker(self._host(host)) in self._daemons.workers else []

    def ended(self) -> list[str]:
        """What ended unexpectedly: the names of nodes, "master", and "worker-" with the name of a host."""
        alive = self._servers.pids
        nodes = [node.name for node in self.cluster.nodes if node.name in alive and not self._servers.runs(node)]
        return [*self._daemons.ended(), *nodes]

    def write_nodes_file(self, path: Path) -> Path:
        """Write a nodes file with the bed's nodes, readable by its owner only, because it contains their passwords."""
        nodes = [
            {"name": node.name, "rack": node.rack, "role": node.role, "url": node.url, "host": node.host}
            for node in self.cluster.nodes
        ]
        with written_whole(path, mode=0o600) as file:
            file.write(json.dumps({"nodes": nodes}, indent=1).encode() + b"\n")
        return path

    def run_in_control(self, command: Sequence[str], **options: Any) -> subprocess.CompletedProcess[str]:
        """Run a program in the namespace `control` until it ends. `options` are those of `subprocess.run`."""
        return subprocess.run([*self.prefix, *command], **{"text": True, **options})

    # -------------------------------------------------------------------------------------------------------- what can fail

    def cut(self, *, host: str | None = None, rack: str | None = None) -> None:
        """Take a link down: that of a host to its switch, or that of a rack's switch to the others.

        Packets no longer arrive, in both directions, and nobody is told. Hosts of a rack that is cut still reach each other.
        """
        self.network.set_link(self._link(host, rack), up=False)

    def mend(self, *, host: str | None = None, rack: str | None = None) -> None:
        """Raise a link again."""
        self.network.set_link(self._link(host, rack), up=True)

    def hang(self, name: str) -> None:
        """SIGSTOP all processes of a host, or a node's server; they have stopped when this returns."""
        signal_until(signal.SIGSTOP, self._pids_of(name), lambda pid: state_of(pid) in "TX")

    def resume(self, name: str) -> None:
        """SIGCONT all processes of a host, or a node's server."""
        signal_until(signal.SIGCONT, self._pids_of(name), lambda pid: state_of(pid) != "T")

    def kill(self, name: str) -> None:
        """SIGKILL all processes of a host, or a node's server; they have ended when this returns."""
        if name not in self.network.hosts:
            self._servers.kill(self.cluster[name])
            return
        signal_until(signal.SIGKILL, self._pids_of(name))
        self._daemons.kill_worker(_worker(name))
        for node in self._nodes_of(name):
            self._servers.kill(node)

    def restart(self, name: str) -> None:
        """Restart a host's Spark worker and nodes, or one node, at the same addresses; nodes are empty. Or only a Spark worker,
        by the name that `ended` gives it.

        What still runs is killed first. RequestError if the host is cut: its worker could not reach the master.
        """
        if host := {_worker(host): host for host in self.hosts}.get(name):
            self._daemons.kill_worker(name)
            self._start_worker(host)
            self._daemons.await_worker(name)
            return
        nodes = self._nodes_of(name) if name in self.network.hosts else [self.cluster[name]]
        if name in self.network.hosts and (cut := {name, self.network.rack_of[name]} & self.network.cut):
            raise RequestError(f"host {name}", f"the link of {min(cut)} is down; mend it first")
        self.kill(name)
        for node in nodes:
            self._servers.start(node, self.network.hosts[node.host].prefix)
        if name in self.network.hosts:
            self._start_worker(name)
            self._daemons.await_worker(_worker(name))
        for node in nodes:
            self._await_node(node)

    def close(self) -> None:
        """Stop all processes and remove the namespaces; they are gone when this returns."""
        self._supervisor.close()

    # ----------------------------------------------------------------------------------------------------------- how it does

    def _folder(self) -> Path:
        try:
            return self._supervisor.folder(f"{self.name}-")
        except OSError as error:
            raise Unavailable(f"the test bed needs a temporary folder: {error}; set TMPDIR") from error

    def _start_worker(self, host: str) -> None:
        self._daemons.start_worker(_worker(host), self.network.addresses[host], self.network.hosts[host].prefix)

    def _await_node(self, node: Node) -> None:
        self.network.hosts[node.host].call(lambda: self._servers.wait(node))  # from its own host, which may be cut

    def _nodes_of(self, host: str) -> list[Node]:
        return [node for node in self.cluster.nodes if node.host == host]

    def _pids_of(self, name: str) -> Callable[[], list[int]]:
        if name in self.network.hosts:
            return self.network.hosts[name].pids
        pid = self._servers.pids.get(self.cluster[name].name)
        if pid is None:
            raise RequestError(f"node {name!r}", "not running")
        return lambda: [pid]

    def _host(self, name: str) -> str:
        if name not in self.network.hosts:
            raise RequestError(f"host {name!r}", f"not in the test bed; its hosts are {', '.join(self.hosts)}")
        return name

    def _link(self, host: str | None, rack: str | None) -> str:
        if host is not None and rack is None:
            return self._host(host)
        if rack is None or host is not None:
            raise RequestError("link", "name either a host or a rack")
        if rack not in self.network.racks:
            raise RequestError(f"rack {rack!r}", f"not in the test bed; its racks are {', '.join(self.network.racks)}")
        return rack


def launch_testbed(
    hosts: int = 4, racks: int = 2, cores: int = 4, memory_mb: int = 1024, node_memory_mb: int = 1024
) -> TestBed:
    """Start a test bed; each Spark worker has `cores` slots and `memory_mb` for an executor, each node `node_memory_mb`.

    Use it as a context manager. Beds that dead processes have left behind are removed. Unavailable, with the remedy, without
    root, iproute2, Java or a Redis server.
    """
    limits = {"hosts": (hosts, 1), "racks": (racks, 1), "cores": (cores, 1), "memory_mb": (memory_mb, LEAST_MEMORY)}
    for what, (number, least) in (limits | {"node_memory_mb": (node_memory_mb, 1)}).items():
        if number < least:
            raise RequestError(what, f"{number} is too small; the minimum is {least}")
    if hosts > MOST_HOSTS:
        raise RequestError("hosts", f"{hosts} is too large; the maximum is {MOST_HOSTS}")
    if racks > hosts:
        raise RequestError("racks", f"{racks} racks for {hosts} hosts; each rack needs a host")
    check_usable()
    require_java()
    remove_stale_beds()
    return TestBed(hosts, racks, cores, memory_mb, node_memory_mb)


def _worker(host: str) -> str:
    return f"worker-{host}"


def _racks(hosts: int, racks: int) -> dict[str, list[str]]:
    """Hosts h1, h2, … over racks r1, r2, …, neighbours together."""
    found: dict[str, list[str]] = {f"r{i + 1}": [] for i in range(racks)}
    for i in range(hosts):
        found[f"r{i * racks // hosts + 1}"].append(f"h{i + 1}")
    return found


def _cluster(network: BedNetwork) -> Cluster:
    """A primary and a standby on each host, with a new password."""
    password = secrets.token_urlsafe(24)

    def url(host: str, port: int) -> str:
        return f"redis://{DATA_USER}:{password}@{network.addresses[host]}:{port}"

    rack_of = network.rack_of
    primaries = [Node(f"n{h[1:]}", rack_of[h], "primary", url(h, _PRIMARY_PORT), h) for h in rack_of]
    return Cluster([*primaries, *(Node(f"s{h[1:]}", rack_of[h], "standby", url(h, _STANDBY_PORT), h) for h in rack_of)])
