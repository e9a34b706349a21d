"""A supervisor and its children: started, killed, watched from several threads, and gone when their launcher wants it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path

import psutil
import pytest

from ppa_core.errors import Unavailable
from ppa_core.process import supervisor
from ppa_core.process.supervised import Supervised, SupervisorGone

ECHO = "#!/bin/sh\necho started with $(cat)\nexec sleep 600\n"
"""A server that says what it read from standard input."""
FAMILY = "sleep 600 & sleep 600 & echo family; wait"
"""A command that starts others."""
GONE = "the children have ended; start them again"


@pytest.fixture
def supervised() -> Iterator[Supervised]:
    started = Supervised(GONE)
    yield started
    started.close()


@pytest.fixture
def echo(tmp_path: Path) -> str:
    path = tmp_path / "echo"
    path.write_text(ECHO)
    path.chmod(0o700)
    return str(path)


def within(seconds: float, holds: Callable[[], bool]) -> bool:
    end = time.monotonic() + seconds
    while not holds() and time.monotonic() < end:
        time.sleep(0.02)
    return holds()


def runs(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def test_a_child_reads_its_configuration_and_its_log_can_be_read(supervised: Supervised, echo: str) -> None:
    pid = supervised.start("one", echo, "a secret")
    assert within(20, lambda: supervised.state("one").log == "started with a secret\n")
    assert supervised.state("one").running
    assert "secret" not in " ".join(psutil.Process(pid).cmdline())
    supervised.kill("one")
    assert not runs(pid)
    assert not supervised.state("one").running
    supervised.kill("one")  # dead is dead


def test_a_child_that_dies_is_seen_with_its_last_words_and_can_be_started_again(supervised: Supervised, echo: str) -> None:
    pid = supervised.start("one", echo, "first")
    other = supervised.start("other", echo, "other")
    assert within(20, lambda: "first" in supervised.state("one").log)
    os.kill(pid, signal.SIGKILL)
    assert within(20, lambda: not supervised.state("one").running)
    assert supervised.state("one").log == "started with first\n"
    assert supervised.state("other").running
    supervised.kill("one")
    assert supervised.start("one", echo, "second") not in (pid, other)
    assert within(20, lambda: supervised.state("one").log == "started with second\n")


def test_what_cannot_be_started_is_named_with_the_reason(supervised: Supervised, tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match=r"^one: /no/such/server cannot be started: No such file"):
        supervised.start("one", "/no/such/server", "")
    with pytest.raises(Unavailable, match=r"^two: /no/such/command cannot be started: No such file"):
        supervised.run("two", ["/no/such/command"], {}, tmp_path / "log")
    with pytest.raises(Unavailable, match=r"^three: /bin/true cannot be started: .*No such file"):
        supervised.run("three", ["/bin/true"], {}, tmp_path / "none" / "log")
    assert not supervised.state("one").running


def test_a_child_that_reads_nothing_and_ends_at_once_is_no_error(supervised: Supervised) -> None:
    supervised.start("one", "/bin/true", "x" * (1 << 17))
    assert within(20, lambda: not supervised.state("one").running)


def test_a_command_gets_its_environment_and_all_that_it_started_is_killed_with_it(
    supervised: Supervised, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    pid = supervised.run("family", ["/bin/sh", "-c", f"echo $WORD; {FAMILY}"], {"WORD": "hello"}, log)
    assert within(20, lambda: log.read_text() == "hello\nfamily\n")
    members = [pid, *(child.pid for child in psutil.Process(pid).children(recursive=True))]
    assert len(members) == 3
    supervised.kill("family")
    assert not any(map(runs, members))


def test_a_folder_is_its_owners_alone_and_goes_with_the_supervisor(tmp_path: Path) -> None:
    supervised = Supervised(GONE)
    folder = supervised.folder("some-", str(tmp_path))
    assert (folder.parent, folder.stat().st_mode & 0o777) == (tmp_path, 0o700)
    (folder / "file").write_text("x")
    with pytest.raises(OSError, match="No such file"):
        supervised.folder("some-", str(tmp_path / "none"))
    supervised.close()
    assert not folder.exists()


def test_a_command_for_the_end_runs_after_all_children_have_ended(echo: str, tmp_path: Path) -> None:
    supervised, seen = Supervised(GONE), tmp_path / "seen"
    pid = supervised.start("one", echo, "x", prefix=["env", "WORD=hello"])
    supervised.at_end(["/no/such/command"])
    supervised.at_end(["/bin/sh", "-c", f"kill -0 {pid} 2>/dev/null || echo ended > {seen}"])
    assert not seen.exists()
    supervised.close()
    assert seen.read_text() == "ended\n"


def test_close_ends_everything_and_requests_after_it_say_so(echo: str) -> None:
    supervised = Supervised(GONE)
    pids = [supervised.pid, *(supervised.start(name, echo, "") for name in ("one", "two"))]
    os.kill(pids[1], signal.SIGSTOP)  # one that hangs is killed like any other
    supervised.close()
    assert not any(map(runs, pids))
    supervised.close()
    for request in (lambda: supervised.kill("one"), lambda: supervised.state("one"), lambda: supervised.start("one", echo, "")):
        with pytest.raises(SupervisorGone, match=f"^{GONE}$"):
            request()


def test_children_die_with_a_supervisor_that_is_killed_and_every_request_says_so(supervised: Supervised, echo: str) -> None:
    pid = supervised.start("one", echo, "")
    os.kill(supervised.pid, signal.SIGKILL)
    assert within(20, lambda: not runs(pid))
    for _ in range(2):
        with pytest.raises(SupervisorGone, match=f"^{GONE}$"):
            supervised.state("one")


def test_threads_get_the_answers_to_their_own_requests(supervised: Supervised, echo: str) -> None:
    def whole_life(number: int) -> str:
        name = f"child {number}"
        supervised.start(name, echo, name)
        assert within(60, lambda: supervised.state(name).log.endswith("\n"))
        said = supervised.state(name).log
        supervised.kill(name)
        assert not supervised.state(name).running
        return said

    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(whole_life, range(24))) == [f"started with child {number}\n" for number in range(24)]


def test_threads_that_ask_while_the_supervisor_is_killed_are_all_refused(supervised: Supervised) -> None:
    def ask_for_long(_: int) -> None:
        while True:
            supervised.state("one")

    with ThreadPoolExecutor(4) as threads:
        asking = [threads.submit(ask_for_long, number) for number in range(4)]
        time.sleep(0.1)
        os.kill(supervised.pid, signal.SIGKILL)
        assert all(isinstance(one.exception(30), SupervisorGone) for one in asking)


def test_close_waits_for_a_request_of_another_thread_and_all_later_ones_are_refused(echo: str) -> None:
    supervised = Supervised(GONE)
    pids: list[int] = []

    def start_many(thread: int) -> None:
        for number in count():
            pid = supervised.start(f"{thread} {number}", echo, "")
            pids.append(pid)
            time.sleep(0.01)

    with ThreadPoolExecutor(2) as threads:
        starting = [threads.submit(start_many, number) for number in range(2)]
        assert within(20, lambda: len(pids) > 2)
        supervised.close()
        assert all(isinstance(one.exception(30), SupervisorGone) for one in starting)
    assert not any(map(runs, pids))


def test_a_supervisor_whose_launcher_is_another_process_does_nothing() -> None:
    """Its launcher was gone before it could look."""
    command = [sys.executable, "-I", supervisor.__file__, str(os.getppid())]
    done = subprocess.run(command, input=b'["folder", "x"]\n', capture_output=True, timeout=60, check=True)
    assert (done.stdout, done.stderr) == (b"", b"")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_supervisor_that_is_told_to_end_takes_its_children_and_folders_along(
    supervised: Supervised, echo: str, tmp_path: Path, number: signal.Signals
) -> None:
    pid, folder = supervised.start("one", echo, ""), supervised.folder("some-", str(tmp_path))
    os.kill(supervised.pid, number)
    assert within(20, lambda: not runs(pid) and not folder.exists())
    with pytest.raises(SupervisorGone):
        supervised.kill("one")
