"""The program's settings: read from the environment in one place, handed to the dashboard, and never shown."""

from __future__ import annotations

import argparse
import json
import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import msgspec
import psutil
import pytest

from monitoring.connection import Address
from monitoring.reader import MonitorReader
from ppa_core import settings
from ppa_core.cli import serving
from ppa_core.settings import SETTINGS_FROM_STDIN, ProgramSettings
from tests.test_direction import ROOT, modules

VARIABLES = {
    "PPA_FOLDER": "/kept",
    "PPA_MONITOR_URL": "redis://:hunter2@host",
    "PPA_MONITOR_READ_URL": "redis://reader:hunter2@host",
    "PPA_OPERATOR_KEY": "hunter2 key",
    "PPA_OPERATOR_PASSWORD_HASH": "hunter2 hash",
    "PPA_SINK_PASSWORD": "hunter2 sink",
    "PPA_SOURCE_PASSWORD": "hunter2 source",
    "PPA_REDIS_SERVER": "/bin/redis",
    "PPA_PATCHED_REDIS": "1",
}
OTHERS = {
    "ppa_core.process.driver": "Java's options",
    "ppa_core.process.spark_daemons": "Spark's and Java's variables",
    "ppa_core.driver.authentication": "Spark's variables",
    "ppa_core.driver.session": "Java and Python for Spark",
    "ppa_core.pipeline.sources.reading": "what a child needs of the system",
    "ppa_core.nodes.servers": "what a child needs of the system",
    "ppa_core.cli.serving": "what the dashboard needs of the system",
    "pages.shared.frame": "the web server's proxies",
}
"""Modules that read variables of others than this program."""


def test_every_variable_is_a_setting_and_no_secret_is_shown() -> None:
    found = ProgramSettings.read(VARIABLES)
    assert found == ProgramSettings(
        Path("/kept"), None, "redis://:hunter2@host", "redis://reader:hunter2@host", "hunter2 key", "hunter2 hash",
        "hunter2 sink", "hunter2 source", "/bin/redis", True,
    )  # fmt: skip
    assert "hunter2" not in repr(found)
    assert found.monitor_directory == Path("/kept/monitor")
    assert ProgramSettings.read(dict.fromkeys(VARIABLES, "")) == ProgramSettings.read({}) == ProgramSettings()


def test_variables_are_read_in_one_place_and_nowhere_written() -> None:
    texts = {name: path.read_text(encoding="utf-8") for name, path in modules()}
    reading = {name for name, text in texts.items() if re.search(r"\bos\.(environ|getenv|putenv)\b", text)}
    assert sorted(reading - set(OTHERS)) == ["ppa_core.settings"]
    written = [name for name, text in texts.items() if re.search(r"os\.environ\[.*\] *=|putenv", text)]
    assert written == []


def test_every_variable_is_in_the_documentation() -> None:
    told = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "docs").glob("*.md"))
    assert [name for name in VARIABLES if name not in told] == []
    known = {value for name, value in vars(settings).items() if name.endswith("_VARIABLE")}
    assert known == set(VARIABLES)


def test_settings_travel() -> None:
    for given in (ProgramSettings(), ProgramSettings.read(VARIABLES), ProgramSettings(monitor_folder=Path("m"))):
        assert settings.from_json(settings.to_json(given)) == given


def test_what_are_no_settings_is_refused() -> None:
    for content in (b"", b"[]", b'{"folder": 3}', b'{"patched_redis": "yes"}'):
        with pytest.raises(msgspec.DecodeError):
            settings.from_json(content)


def test_serve_gives_its_monitor_to_the_dashboard_and_no_password_of_sinks_and_sources(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PPA_SINK_PASSWORD", "hunter2")
    monkeypatch.setenv("PPA_SOURCE_PASSWORD", "hunter2")
    wanted = argparse.Namespace(monitor_url=None, monitor_directory=str(tmp_path / "m"), patched_redis=False)
    with serving._monitor(wanted) as given:
        assert Address.find(directory=given.monitor_directory, settings=given) == Address(directory=tmp_path / "m")
        assert MonitorReader(Address(directory=given.monitor_directory)).pipelines() == []
        assert (given.sink_password, given.source_password, given.patched_redis) == (None, None, False)
    wanted.monitor_url, wanted.patched_redis = "redis://127.0.0.1:1", True  # one that is away may be back
    before = dict(os.environ)
    with serving._monitor(wanted) as given:
        assert (given.monitor_url, given.patched_redis) == ("redis://127.0.0.1:1", True)
    assert dict(os.environ) == before


DASHBOARD = """
import json, sys
from streamlit.web import cli
def shown(options, prog_name):
    from monitoring import access, connection
    from ppa_core.settings import current
    found = connection.Address.find()
    places = str(found.directory), str(access.HASH_PATH)
    print(json.dumps([found.current("reader"), *places, current().patched_redis, options[-2:]]))
cli.main = shown
from pages.__main__ import main
main(sys.argv[1:])
"""


@pytest.mark.slow
def test_the_dashboard_has_the_settings_that_it_is_given_and_not_those_of_its_environment() -> None:
    given = ProgramSettings(Path("/kept"), Path("/m"), "redis://:hunter2@host", "redis://r:x@host", patched_redis=True)
    command = [sys.executable, "-c", DASHBOARD, SETTINGS_FROM_STDIN, "--server.port", "1"]
    environment = {**os.environ, "PPA_MONITOR_URL": "redis://other", "PPA_FOLDER": "/other", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        command, input=settings.to_json(given), env=environment, cwd=ROOT, capture_output=True, check=True, timeout=120
    )
    assert json.loads(done.stdout) == ["redis://r:x@host", "/m", "/kept/operator.hash", True, ["--server.port", "1"]]
    del command[3]
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, check=True, timeout=120)
    assert json.loads(done.stdout) == ["redis://other", "/other/monitor", "/other/operator.hash", False, ["--server.port", "1"]]


@pytest.mark.slow
def test_a_dashboard_of_serve_has_no_setting_in_its_environment_or_on_its_command_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        free_port = probe.getsockname()[1]
    for name, value in VARIABLES.items():
        if name != "PPA_FOLDER":
            monkeypatch.setenv(name, value)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    with serving._dashboard(settings.current(), "127.0.0.1", free_port, ()) as place:
        assert place == f"http://127.0.0.1:{free_port}"
        (child,) = [one for one in psutil.Process().children() if SETTINGS_FROM_STDIN in one.cmdline()]
        assert "hunter2" not in f"{child.cmdline()} {child.environ()}"
        assert not [name for name in child.environ() if name.startswith("PPA_")]
