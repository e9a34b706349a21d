"""Logs: no password in them, whoever writes it where; nothing in them that a terminal obeys; and nobody waits for them."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ppa_core.cli.main import _parser, main
from ppa_core.cli.running import config_of
from ppa_core.driver.config import Config
from ppa_core.driver.outbox import Outbox
from ppa_core.driver.records import Settings
from ppa_core.engine.run_events import RunEvent
from ppa_core.placement.nodes import Node
from ppa_core.process import driver, run
from ppa_core.safety.masking import remember, remember_more
from ppa_core.terminal import logs
from ppa_core.terminal.logs import LogSettings, Threads, about, configured, of_run

ROOT = Path(__file__).parents[2]
SECRET = "s3cret-Passw0rd"
URL = f"redis://me:{SECRET}@127.0.0.1:1"

log = logging.getLogger("ppa_core.test")


@pytest.fixture(autouse=True)
def forget() -> Iterator[None]:
    yield
    remember(())
    of_run("")


def fails() -> None:
    known = {"url": URL}
    raise ValueError(f"cannot use {URL} nor {known!r}: AUTH {SECRET} was refused")


def documents(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.parametrize("as_json", [False, True])
def test_no_password_in_messages_arguments_or_tracebacks(
    as_json: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    remember_more([URL])
    with configured(LogSettings("debug", str(tmp_path / "log"), as_json)):
        log.info("reading %s", URL)
        log.warning("the password is %s", SECRET, extra={"cause": URL})
        log.debug("options %r", {"sink": f"{URL}#key"})
        try:
            fails()
        except ValueError:
            log.exception("survived")
        logging.getLogger("another.library").error("AUTH %s", SECRET)
    for told in ((tmp_path / "log").read_text(), capsys.readouterr().err):
        assert SECRET not in told
        assert "survived" in told
        assert "in fails" in told  # the traceback
        assert "another.library" in told
    assert (tmp_path / "log").stat().st_mode & 0o777 == 0o600


def test_no_password_of_a_node_a_sink_or_an_option_in_what_a_driver_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A driver that says all that it was given, on standard error and in its log, and dies."""
    said = {"kind": "log", "at": 1.0, "level": "error", "logger": "ppa_core.x", "process": 1, "batch": 7, "attempt": 9}
    (tmp_path / "program.py").write_text(
        "import json, sys\ngiven = sys.stdin.readline()\nprint(given, file=sys.stderr)\n"
        f"print(json.dumps({said!r} | {{'message': given, 'traceback': 'Traceback …\\n' + given}}), flush=True)\n"
        "sys.exit(1)\n"
    )
    monkeypatch.setattr(driver, "PROGRAM", (sys.executable, str(tmp_path / "program.py")))
    secrets = [f"{SECRET}-{n}" for n in range(3)]
    nodes = (Node("a", "r", "primary", f"redis://:{secrets[0]}@127.0.0.1:1"),)
    options = {"token": secrets[1], "url": f"redis://127.0.0.1:1?password={secrets[2]}"}
    config = Config("tree", options, nodes, (), Settings(), "run", tmp_path / "run", sinks=(f"{URL}#k",))
    noted: list[RunEvent] = []
    with configured(LogSettings("info", str(tmp_path / "log"), True)), pytest.raises(driver.DriverExited) as died:
        run.SupervisedRun(config, noted.append).run()
    texts = [(tmp_path / "run" / "driver.log").read_text(), (tmp_path / "log").read_text(), str(died.value), str(noted)]
    for told in (*texts, capsys.readouterr().err):
        assert SECRET not in told
    assert all("***" in told for told in texts)
    relayed = [one for one in documents(tmp_path / "log") if one["logger"] == "ppa_core.x"]
    assert [(one["batch"], one["attempt"]) for one in relayed] == [(7, 9)] * (run.RESTARTS + 1)


def test_no_password_in_the_log_of_a_command_that_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    nodes = tmp_path / "nodes.json"
    nodes.touch(mode=0o600)
    nodes.write_text(json.dumps({"nodes": [{"name": "a", "rack": "r", "role": "primary", "url": URL}]}))
    words = ["run", "tree", "--nodes-file", str(nodes), "--log-level", "debug", "--log-file", str(tmp_path / "log")]
    assert main([*words, "--sink", f"jsonl:{tmp_path / 'out'}"]) == 1
    told = (tmp_path / "log").read_text()
    assert "Traceback" in told
    assert "NodeDown" in told
    assert SECRET not in told + capsys.readouterr().err


def test_every_record_has_its_run_batch_attempt_and_cause(tmp_path: Path) -> None:
    of_run("r1")

    def elsewhere() -> None:
        with about(batch=8, attempt=2):
            log.info("there")

    with configured(LogSettings("info", str(tmp_path / "log"), True)):
        with about(batch=3, cause="c1"):
            log.info("here")
            thread = threading.Thread(target=elsewhere)
            thread.start()
            thread.join()
            log.info("named", extra={"batch": 4})
        log.info("after")
        log.debug("not wanted")
    known = [{name: one[name] for name in logs.FIELDS if name in one} for one in documents(tmp_path / "log")]
    assert known == [
        {"run": "r1", "batch": 3, "cause": "c1"}, {"run": "r1", "batch": 8, "attempt": 2},
        {"run": "r1", "batch": 4, "cause": "c1"}, {"run": "r1"},
    ]  # fmt: skip


def test_records_of_threads_that_work_for_a_batch_have_its_batch_attempt_and_cause(tmp_path: Path) -> None:
    of_run("r1")
    outbox, threads = Outbox(), Threads(2)
    gate = threading.Event()
    with configured(LogSettings("info", str(tmp_path / "log"), True)):
        with about(batch=3, attempt=7, cause="c1"):
            outbox.put(lambda: log.info("effect"))
            list(threads.map(log.info, ("one of a pool",)))
            outbox.put(lambda: wait_for(gate))
            outbox.put(lambda: log.info("superseded"), replaces="ledger")
        with about(batch=4, attempt=8):
            outbox.put(lambda: log.info("replaced"), replaces="ledger")
            log.info("of an event without a cause", extra={"batch": 2, "cause": ""})
        gate.set()
        outbox.put(lambda: log.info("of nobody"))
        assert outbox.flush(20)
    known = {one["message"]: [one.get(name) for name in logs.FIELDS] for one in documents(tmp_path / "log")}
    assert known == {
        "effect": ["r1", 3, 7, "c1"], "one of a pool": ["r1", 3, 7, "c1"], "replaced": ["r1", 4, 8, None],
        "of an event without a cause": ["r1", 2, 8, None], "of nobody": ["r1", None, None, None],
    }  # fmt: skip


def wait_for(gate: threading.Event) -> None:
    gate.wait(20)


def test_an_empty_field_does_not_hide_the_one_of_the_block(tmp_path: Path) -> None:
    with configured(LogSettings("info", str(tmp_path / "log"), True)), about(batch=0, cause="c1"):
        log.info("an event without a cause of its own", extra={"batch": 2, "cause": ""})
    (one,) = documents(tmp_path / "log")
    assert (one["batch"], one["cause"]) == (2, "c1")


def test_a_log_file_has_more_than_standard_error_unless_a_level_is_given(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = str(tmp_path / "log")
    words = ["run", "tree", "--log-file", file]
    for more, expected in (
        ([], (["info", "warning"], ["warning"], "info")),
        (["--log-level", "debug"], (["debug", "info", "warning"], ["debug", "info", "warning"], "debug")),
        (["--log-level", "warning"], (["warning"], ["warning"], "warning")),
    ):
        arguments = _parser().parse_args([*words, *more])
        with configured(logs.settings_of(arguments)):
            log.debug("said: debug")
            log.info("said: info")
            log.warning("said: warning")
        written, shown = Path(file).read_text(), capsys.readouterr().err
        Path(file).unlink()
        found = tuple([level for level in logs.LEVELS if f"said: {level}" in text] for text in (written, shown))
        assert (*found, config_of(arguments).log_level) == expected, more
    assert config_of(_parser().parse_args(["run", "tree"])).log_level == "warning"


def test_a_message_cannot_steer_a_terminal_or_pretend_to_be_another_record(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with configured(LogSettings("info", str(tmp_path / "log"))):
        log.info("a name: %s", "\x1b[2J\n2026-01-01T00:00:00.000Z ERROR all is lost")
    for told in ((tmp_path / "log").read_text(), capsys.readouterr().err):
        assert len(told.splitlines()) == 1
        assert "\x1b" not in told


@pytest.mark.parametrize("place", ["nowhere/log", "folder", "pipe"])
def test_a_file_that_cannot_be_written_is_refused_in_one_line(
    place: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    assert main(["run", "tree", "--log-file", str(tmp_path / place)]) == 2
    (told,) = capsys.readouterr().err.splitlines()
    assert "--log-file" in told
    assert "choose another file" in told


def test_nobody_waits_for_a_standard_error_that_takes_nothing(tmp_path: Path) -> None:
    program = (
        "import logging, sys\nfrom ppa_core.terminal.logs import LogSettings, configured\n"
        "log = logging.getLogger('ppa_core')\n"
        "with configured(LogSettings('info', sys.argv[1])):\n    for i in range(5000): log.info('%d %s', i, 'x' * 100)\n"
    )
    environment = {"PYTHONPATH": str(ROOT), "PATH": os.environ["PATH"]}
    reading, writing = os.pipe()
    try:
        command = [sys.executable, "-c", program, str(tmp_path / "log")]
        assert subprocess.run(command, stderr=writing, env=environment, timeout=60, check=False).returncode == 0
    finally:
        os.close(reading)
        os.close(writing)
    assert len((tmp_path / "log").read_text().splitlines()) == 5000  # the file has what the terminal did not take
