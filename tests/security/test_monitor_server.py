"""Attacks on the embedded monitor: another user of the machine, and a thief of one user's password.

With every server of this machine: what is on the PATH, and the bundled one.
"""

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
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import psutil
import pytest
from redis import Redis
from redis.backoff import NoBackoff
from redis.exceptions import AuthenticationError, NoPermissionError, ResponseError
from redis.retry import Retry

from monitoring import acl, keys
from monitoring.acl import Role
from monitoring.channel import Channel, CommandSender
from monitoring.commands import SetBudget
from monitoring.connection import URL_VARIABLE, Address, Connection, MonitorDown, embedded_url, last_start
from monitoring.monitor import Monitor
from monitoring.reader import MonitorReader
from monitoring.recorded import RecordedRun, Scenario, record
from monitoring.server import MonitorServer, start
from monitoring.signing import Signer
from ppa_core.errors import BadInput, Unavailable
from ppa_core.nodes.servers import PROGRAM_VARIABLE
from ppa_core.settings import ProgramSettings
from tests.monitoring.tester import run
from tests.security.servers import PROGRAMS

NOBODY = 65534
ROOT = Path(__file__).parents[2]
ROLES: tuple[Role, ...] = get_args(Role)
AS_NOBODY = """
import os, socket, sys
os.setgroups([]); os.setgid(65534); os.setuid(65534)
def tried(what):
    try:
        what()
    except PermissionError:
        return "refused"
    except OSError as error:
        return repr(error)
    return "open"
path, secret, folder = sys.argv[1:]
tried_to = lambda: socket.socket(socket.AF_UNIX).connect(path), lambda: open(secret), lambda: os.listdir(folder)
print(*map(tried, tried_to))
"""
LISTENER = """
import socket, sys, time
listener = socket.socket(socket.AF_UNIX)
listener.bind(sys.argv[1])
listener.listen(100)
print(flush=True)
time.sleep(60)
"""
NOBODYS = [
    ("CONFIG", "GET", "*"), ("CONFIG", "SET", "dir", "/"), ("CONFIG", "REWRITE"), ("DEBUG", "SLEEP", "0"), ("DEBUG", "RELOAD"),
    ("MODULE", "LIST"), ("MODULE", "LOAD", "/x.so"), ("SAVE",), ("BGSAVE",), ("BGREWRITEAOF",), ("FLUSHALL",), ("FLUSHDB",),
    ("SHUTDOWN", "NOSAVE"), ("REPLICAOF", "127.0.0.1", "1"), ("SLAVEOF", "NO", "ONE"), ("SWAPDB", "0", "0"),
    ("ACL", "LIST"), ("ACL", "SETUSER", "default", "on"), ("ACL", "WHOAMI"), ("CLIENT", "LIST"), ("CLIENT", "KILL", "ID", "1"),
    ("CLIENT", "PAUSE", "1"), ("MONITOR",), ("KEYS", "*"), ("SCAN", "0"), ("RANDOMKEY",), ("EVAL", "return 1", "0"),
    ("SCRIPT", "LOAD", "return 1"), ("MIGRATE", "h", "1", "k", "0", "1"), ("DUMP", keys.SCHEMA_KEY), ("INFO",),
    ("RESTORE", keys.SCHEMA_KEY, "0", "x"), ("COPY", keys.SCHEMA_KEY, "x"), ("RENAME", keys.SCHEMA_KEY, "x"),
    ("PUBLISH", "c", "m"),
    ("SUBSCRIBE", "c"), ("SLOWLOG", "GET"), ("LATENCY", "RESET"), ("SYNC",), ("OBJECT", "ENCODING", keys.SCHEMA_KEY),
]  # fmt: skip

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can try as another user")


@pytest.fixture(scope="module", params=PROGRAMS)
def program(request: pytest.FixtureRequest) -> Iterator[str]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(PROGRAM_VARIABLE, request.param)
        yield request.param


@pytest.fixture(scope="module")
def open_folder() -> Iterator[Path]:
    """A folder that everybody can enter, so that what is refused in it is refused by the monitor's own."""
    folder = Path(tempfile.mkdtemp(prefix="ppa-open-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def server(program: str, open_folder: Path) -> Iterator[MonitorServer]:
    name = str(list(PROGRAMS).index(program))
    with start(open_folder / name / "monitor") as started:
        record(started.address, Scenario(batches=70))
        yield started


@pytest.fixture
def address(server: MonitorServer) -> Address:
    return server.address


def client(address: Address, role: Role) -> Any:
    return Redis.from_url(address.current(role), protocol=2, driver_info=None)


def socket_of(directory: Path) -> Path:
    return Path(last_start(directory)["socket"])


def tried_as_nobody(directory: Path) -> list[str]:
    command = [sys.executable, "-c", AS_NOBODY, str(socket_of(directory)), str(directory / "server.json"), str(directory)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True, cwd="/")
    return done.stdout.split()


# --------------------------------------------------------------------------------------------- another user of the machine


@needs_root
def test_another_user_can_neither_connect_nor_read_the_passwords(server: MonitorServer) -> None:
    assert tried_as_nobody(server.address.directory) == ["refused", "refused", "refused"]


def test_it_listens_on_a_private_socket_and_no_port(server: MonitorServer) -> None:
    path = socket_of(server.address.directory)
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE((server.address.directory / "server.json").stat().st_mode) == 0o600
    assert not psutil.Process(server.pid or 0).net_connections("inet")


def test_no_password_is_on_a_command_line_or_in_the_environment(server: MonitorServer) -> None:
    passwords = list(last_start(server.address.directory)["passwords"].values())
    assert len(set(passwords)) == len(ROLES)
    process = psutil.Process(server.pid or 0)
    seen = " ".join([*process.cmdline(), *process.environ().values()])
    assert not any(password in seen for password in passwords)


@pytest.mark.parametrize("long", [False, True])
def test_socket_of_a_deep_folder_lies_in_a_private_one_that_goes_with_its_owner(
    program: str, open_folder: Path, long: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    deep = open_folder / ("d" * 60) / ("e" * 60) / f"monitor{long}{list(PROGRAMS).index(program)}"
    temporary = open_folder / ("t" * 90 if long else "t")
    temporary.mkdir(exist_ok=True)
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    with start(deep) as server:
        path = socket_of(deep)
        assert path.parent.parent == (Path("/tmp") if long else temporary)
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        assert len(str(path)) <= 103
        run(Connection(server.address), ("SET", "ppa:monitor:x", 1))
        server.kill()
        server.restart()
        assert run(Connection(server.address, role="reader"), ("GET", "ppa:monitor:x")) == [b"1"]
        if os.geteuid() == 0:
            assert tried_as_nobody(deep) == ["refused", "refused", "refused"]
    assert not path.parent.exists()
    with start(deep) as server:
        assert run(Connection(server.address, role="reader"), ("GET", "ppa:monitor:x")) == [b"1"]


def test_a_folder_that_another_made_in_place_of_a_gone_one_is_told_no_password(open_folder: Path) -> None:
    directory, fake = open_folder / "gone", open_folder / "fake"
    directory.mkdir(mode=0o700)
    fake.mkdir()
    passwords = dict.fromkeys(ROLES, "p" * 30)
    (directory / "server.json").write_text(json.dumps({"socket": str(fake / "s"), "passwords": passwords, "pid": 1}))
    heard: list[bytes] = []
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(fake / "s"))
        listener.listen()
        listener.settimeout(0.5)
        thread = threading.Thread(target=lambda: heard.append(_heard(listener)))
        thread.start()
        with pytest.raises(MonitorDown, match="no monitor has been started"):
            MonitorReader(Address(directory=directory)).pipelines()
        thread.join()
        assert heard == [b""]
        with start(directory) as server:  # nor does it keep the monitor from starting
            assert run(Connection(server.address), ("PING",)) == [True]
            assert socket_of(directory).parent == directory


def _heard(listener: socket.socket) -> bytes:
    try:
        with listener.accept()[0] as caller:
            return caller.recv(1000)
    except TimeoutError:
        return b""


def test_a_process_that_is_not_the_server_is_never_killed_as_one(open_folder: Path) -> None:
    directory = open_folder / "stranger"
    directory.mkdir(mode=0o700)
    path = str(directory / "monitor.sock")
    (directory / "server.json").write_text(json.dumps({"socket": path, "passwords": {}, "pid": os.getpid() + 1}))
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen(100)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("monitoring.embedded._END_SECONDS", 0.2)
            with pytest.raises(Unavailable, match=f"process {os.getpid()} of user {os.getuid()} listens on .* end it first"):
                start(directory)


def test_a_server_whose_owner_is_gone_is_ended_before_another_one_opens_its_history(open_folder: Path) -> None:
    directory = open_folder / "orphan"
    directory.mkdir(mode=0o700)
    path = str(directory / "monitor.sock")
    with subprocess.Popen([sys.executable, "-c", LISTENER, path], stdout=subprocess.PIPE) as orphan:
        assert orphan.stdout
        assert orphan.stdout.readline()
        (directory / "server.json").write_text(json.dumps({"socket": path, "passwords": {}, "pid": orphan.pid}))
        with start(directory) as server:
            assert orphan.wait(20) == -signal.SIGKILL
            assert run(Connection(server.address), ("PING",)) == [True]


# --------------------------------------------------------------------------------------------------- each user's password


@pytest.mark.parametrize("role", ROLES)
def test_what_nobody_may_nobody_can(address: Address, role: Role) -> None:
    with client(address, role) as user:
        for command in NOBODYS:
            with pytest.raises(ResponseError, match=r"has no permissions|command not allowed"):
                user.execute_command(*command)


def test_without_a_password_nothing_is_answered(server: MonitorServer) -> None:
    path = socket_of(server.address.directory)
    with Redis(unix_socket_path=str(path), protocol=2, retry=Retry(NoBackoff(), 0)) as stranger:
        for command in (("PING",), ("INFO",), ("CONFIG", "GET", "*"), ("GET", keys.SCHEMA_KEY)):
            with pytest.raises(AuthenticationError):
                stranger.execute_command(*command)
        for attempt in (("AUTH", ""), ("AUTH", "default", ""), ("AUTH", "writer", ""), ("AUTH", "writer", "writer")):
            with pytest.raises((AuthenticationError, ResponseError)):
                stranger.execute_command(*attempt)


WRITES = [
    ("SET", "{info}", "x"), ("DEL", "{info}"), ("UNLINK", "{info}"), ("EXPIRE", "{info}", "0"), ("HSET", "{now}", "life", "x"),
    ("HDEL", "{now}", "life"), ("XADD", "{events}", "*", "r", "x"), ("XADD", "{events}", "MAXLEN", "0", "*", "r", "x"),
    ("XTRIM", "{events}", "MAXLEN", "0"), ("XDEL", "{events}", "1-0"), ("ZADD", keys.PIPELINES_KEY, "1", "x:y"),
    ("ZREM", keys.PIPELINES_KEY, "x"), ("SET", "{outcome}", "x"), ("SET", keys.SCHEMA_KEY, "99"), ("PERSIST", "{info}"),
    ("GETSET", "{info}", "x"), ("APPEND", "{info}", "x"), ("SETRANGE", "{info}", "0", "x"),
    ("XGROUP", "CREATE", "{events}", "g", "$"),
]  # fmt: skip


def named(command: tuple[str, ...]) -> list[str]:
    pipeline = RecordedRun(Scenario(batches=70)).info.pipeline
    events = keys.series(pipeline, keys.EVENTS)
    places = {"info": keys.info(pipeline), "now": keys.now(pipeline), "events": events, "outcome": keys.outcome(pipeline, "1")}
    return [word.format(**places) for word in command]


@pytest.mark.parametrize("role", ["reader", "sender"])
def test_neither_reader_nor_sender_can_alter_or_delete(address: Address, role: Role) -> None:
    with client(address, role) as user:
        for command in WRITES:
            with pytest.raises(NoPermissionError):
                user.execute_command(*named(command))


def test_a_reader_cannot_send_a_command(address: Address) -> None:
    pipeline = RecordedRun(Scenario()).info.pipeline
    with client(address, "reader") as user, pytest.raises(NoPermissionError):
        user.xadd(keys.commands(pipeline), {"body": b"x"})


def test_a_sender_reads_nothing_and_cannot_take_back(address: Address) -> None:
    pipeline = RecordedRun(Scenario()).info.pipeline
    commands = keys.commands(pipeline)
    with client(address, "sender") as user:
        sent = user.xadd(commands, {"body": b"x"})
        for command in (
            ("GET", keys.info(pipeline)), ("GET", keys.outcome(pipeline, "1")), ("HGETALL", keys.now(pipeline)),
            ("XRANGE", commands, "-", "+"), ("XREAD", "STREAMS", commands, "0"), ("ZREVRANGE", keys.PIPELINES_KEY, "0", "9"),
            ("XDEL", commands, sent), ("DEL", commands), ("UNLINK", commands), ("EXPIRE", commands, "0"),
        ):  # fmt: skip
            with pytest.raises(NoPermissionError):
                user.execute_command(*command)


@pytest.mark.parametrize("role", ROLES)
def test_keys_that_are_not_the_monitors_are_nobodys(address: Address, role: Role) -> None:
    with client(address, role) as user:
        for command in (("GET", "x"), ("SET", "ppa:other", "1"), ("XADD", "ppa:monitorx", "*", "a", "b"), ("UNLINK", "x")):
            with pytest.raises(NoPermissionError):
                user.execute_command(*command)


def test_each_has_what_it_needs(server: MonitorServer) -> None:
    """The program works on with these users: records, commands and outcomes, and nothing is refused."""
    script = Scenario(run="whole", batches=70)
    address, info, signer = server.address, RecordedRun(script).info, Signer(b"k" * 32)
    with Monitor(address, info) as monitor:
        pass
    assert (monitor.writer.refused, monitor.writer.complaint, monitor.writer.dropped) == (0, "", 0)
    record(address, script)
    reader, operator, channel = MonitorReader(address), CommandSender(address, signer), Channel(address, info.pipeline, signer)
    assert info.pipeline in reader.pipelines()
    assert reader.incidents(info.pipeline)
    assert reader.state(info.pipeline) is not None
    id_ = operator.send(info.pipeline, SetBudget(3), "anna")
    (token,) = channel.poll()
    channel.acknowledge(token.id, "done", "3")
    outcome = operator.wait(info.pipeline, id_, 10)
    assert outcome is not None
    assert outcome.outcome == "done"
    assert not channel.trouble
    assert not reader.bad
    for each in (reader, operator, channel):
        each.close()


def test_users_of_the_docs_are_those_of_the_embedded_monitor() -> None:
    text = (ROOT / "docs" / "monitoring.md").read_text()
    for role in ROLES:
        assert f"user {role} on >PASSWORD resetchannels {acl.RULES[role]} +info\n" in text


def test_the_url_of_a_user_for_reading_is_used_for_reading_only(server: MonitorServer) -> None:
    sender, reading = server.address.current("sender"), server.address.current("reader")
    assert embedded_url(server.address.directory, "sender") == sender
    found = Address.find(settings=ProgramSettings.read({URL_VARIABLE: sender, "PPA_MONITOR_READ_URL": reading}))
    assert (found.current("writer"), found.current("sender"), found.current("reader")) == (sender, sender, reading)
    assert reading not in repr(found)
    assert MonitorReader(found).pipelines()
    assert Address.find(settings=ProgramSettings(monitor_read_url=reading)).read_url is None
    with pytest.raises(BadInput, match="PPA_MONITOR_READ_URL"):
        Address(sender, read_url="http://x")
