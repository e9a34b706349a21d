"""The command line: events as they come, reports that stand by themselves, one line for every error."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from monitoring.channel import Channel
from monitoring.commands import SetBudget
from monitoring.connection import Address
from monitoring.main import main
from monitoring.reader import MonitorReader
from monitoring.recorded import Scenario, record
from monitoring.records import PipelineInfo
from monitoring.server import MonitorServer
from monitoring.signing import Signer
from monitoring.writer import Writer
from ppa_core.engine.run_events import NodeLost, Paused

ROOT = Path(__file__).parents[2]
MARKUP = '<img src=x onerror="alert(1)">'

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(address: Address, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.delenv("PPA_MONITOR_URL", raising=False)

    def go(*arguments: str) -> tuple[int, str, str]:
        try:
            code = main([*arguments, "--directory", str(address.directory)])
        except SystemExit as exit_:
            code = int(exit_.code or 0)
        said = capsys.readouterr()
        return code, said.out, said.err

    return go


@pytest.fixture(scope="module", autouse=True)
def recorded(server: MonitorServer) -> None:
    record(server.address, Scenario(run="cli"))


def process(*arguments: str, directory: Path, **options: Any) -> subprocess.Popen[str]:
    environment = {name: value for name, value in os.environ.items() if name != "PPA_MONITOR_URL"}
    command = [sys.executable, "-m", "monitoring", *arguments, "--directory", str(directory)]
    return subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options
    )


@pytest.mark.slow
def test_tail_prints_events_as_they_come(address: Address, info: PipelineInfo) -> None:
    writer = Writer(address, info)
    writer.write(Paused(time.time(), 1))
    time.sleep(0.3)
    tail = process("tail", "--json", "--pipeline", str(info.pipeline), directory=address.directory)
    assert tail.stdout
    assert json.loads(tail.stdout.readline())["kind"] == "paused"
    writer.write(NodeLost(time.time(), 2, MARKUP, "refused", cause="c1"))
    line = json.loads(tail.stdout.readline())
    assert (line["kind"], line["cause"], line["node"], line["reason"]) == ("node lost", "c1", MARKUP, "refused")
    assert re.fullmatch(r"\d+-\d+", line["id"])
    tail.send_signal(2)
    _, errors = tail.communicate(timeout=10)
    assert tail.returncode == 130
    assert errors == "error: stopped\n"
    writer.close()


@pytest.mark.slow
def test_report_as_a_process_stands_by_itself(address: Address, tmp_path: Path) -> None:
    target = tmp_path / "report.html"
    made = process("report", "--incident", "last", "--pipeline", "tree@cli", "--html", str(target), directory=address.directory)
    out, errors = made.communicate(timeout=60)
    assert (made.returncode, out) == (0, "")
    assert "report.html" in errors
    text = target.read_text(encoding="utf-8")
    assert "Plotly.newPlot" in text
    assert not re.search(r'<(script|link|img)[^>]+(src|href)="?http', text)


@pytest.mark.slow
def test_metrics_and_the_server_itself_run_as_processes(folder: Path) -> None:
    server = process("serve", directory=folder)
    assert server.stderr
    assert any(
        line.endswith("is running\n") for line in server.stderr
    )  # before it, the log may name a server that is not patched
    second = process("serve", directory=folder)
    assert "already running" in second.communicate(timeout=20)[1]
    metrics = process("serve-metrics", "--port", "0", directory=folder)
    assert metrics.stderr
    url = metrics.stderr.readline().split()[-1]
    with urlopen(url) as answer:
        assert b"ppa_monitor_up 1.0" in answer.read()
    for each in (metrics, server):
        each.send_signal(2)
        each.communicate(timeout=20)
        assert each.returncode == 130
    assert second.returncode == 0


@pytest.mark.slow
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full, the disk that is always full")
def test_closed_output_and_a_full_disk_are_failures_in_one_line(address: Address) -> None:
    command = f'"{sys.executable}" -m monitoring incidents --json --directory "{address.directory}"'
    environment = {name: value for name, value in os.environ.items() if name != "PPA_MONITOR_URL"}
    for where, reason in (("&-", "standard output is closed"), ("/dev/full", "cannot be written: No space left on device")):
        shell = ["sh", "-c", f"{command} >{where}"]
        found = subprocess.run(shell, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60, check=False)
        assert (found.returncode, found.stderr) == (1, f"error: output: {reason}\n")


def test_tail_for_people(run: Run) -> None:
    code, out, _ = run("tail", "--no-follow", "--pipeline", "tree@cli", "--last", "100")
    assert code == 0
    assert "node lost" in out
    assert out.count("\n") == 18


def test_a_report_escapes_every_name(run: Run, address: Address, tmp_path: Path) -> None:
    record(address, Scenario(name=MARKUP, run=MARKUP))
    target = tmp_path / "report.html"
    code, out, _ = run("report", "--incident", "last", "--pipeline", f"{MARKUP}@{MARKUP}", "--html", str(target), "--json")
    assert code == 0
    found = json.loads(out)
    assert found["incident"]["tentative"] == [[61, 72]]
    text = target.read_text(encoding="utf-8")
    assert MARKUP not in text
    assert "&lt;img src=x" in text
    for heading in ("Output fidelity over time", "Predicted and measured", "Recovery of each task", "Time until correction"):
        assert heading in text


def test_a_report_of_one_incident_by_its_id(run: Run, reader: MonitorReader, tmp_path: Path) -> None:
    (incident,) = reader.incidents(reader.find("tree@cli"))
    code, out, _ = run("report", "--incident", incident.id, "--json")
    assert code == 0
    assert len(json.loads(out)["batches"]) > 12


def test_status_and_incidents(run: Run) -> None:
    code, out, _ = run("status", "--pipeline", "tree@cli")
    assert code == 0
    assert "O1.1" in out
    assert len(re.findall(r"^node \w+ \(\w+\): (?:not )?safe to take down", out, re.MULTILINE)) == 8
    code, out, _ = run("status", "--pipeline", "tree@cli", "--json")
    assert json.loads(out)["of"] == 1.0
    code, out, _ = run("incidents", "--pipeline", "tree@cli")
    assert "n1, n3" in out
    code, out, _ = run("incidents", "--pipeline", "tree@cli", "--json")
    assert len(json.loads(out)) == 1


def answering(address: Address, reader: MonitorReader, outcome: str) -> threading.Thread:
    channel = Channel(address, reader.find("tree@cli"), Signer.find(address.directory))

    def go() -> None:
        end = time.monotonic() + 10
        while time.monotonic() < end:
            for token in channel.poll():
                assert token.command == SetBudget(8)
                channel.acknowledge(token.id, outcome, "so it is")
                return
            time.sleep(0.02)

    made = threading.Thread(target=go)
    made.start()
    return made


@pytest.mark.parametrize(("outcome", "wanted"), [("done", 0), ("failed", 1)])
def test_send_waits_for_the_outcome(run: Run, address: Address, reader: MonitorReader, outcome: str, wanted: int) -> None:
    thread = answering(address, reader, outcome)
    code, out, errors = run("send", "set-budget", "8", "--pipeline", "tree@cli", "--who", "ada", "--wait", "5")
    thread.join()
    assert code == wanted
    assert (out if wanted == 0 else errors).strip().endswith("so it is")
    code, out, _ = run("audit", "--json")
    assert code == 0
    assert json.loads(out)["lines"][-1]["who"] == "ada"
    code, out, _ = run("audit")
    assert outcome in out


def test_send_without_an_answer_fails(run: Run) -> None:
    code, _, errors = run("send", "pause", "--pipeline", "tree@cli", "--wait", "0.1")
    assert code == 1
    assert "no answer" in errors


@pytest.mark.parametrize(
    "arguments",
    [
        ["send", "format"], ["send", "set-budget"], ["send", "set-budget", "many"], ["send", "set-budget", "8", "9"],
        ["send", "drain", "n1"], ["send", "fail", "node:n1", "now"], ["send", "fail-over", "node:n1"], ["send", "drain"],
        ["send", "stop", "--who", "a\nb"],
        ["tail", "--pipeline", "nobody"], ["report", "--incident", "x"], ["report", "--incident", "x", "--json"],
        ["report", "--incident", "last", "--pipeline", "tree@cli", "--html", "/nowhere/at/all.html"], ["dance"], [],
        ["tail", "--last", "many"],
    ],
)  # fmt: skip
def test_bad_input_is_one_line_and_exit_code_2(run: Run, arguments: list[str]) -> None:
    code, out, errors = run(*arguments)
    assert (code, out) == (2, "")
    assert errors.startswith("error: ")
    assert errors.count("\n") == 1


def test_a_monitor_that_is_not_there_is_one_line_and_exit_code_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PPA_MONITOR_URL", "redis://:hunter2@127.0.0.1:1")
    for command in (["status"], ["tail"], ["incidents"], ["audit"], ["report", "--incident", "x", "--json"]):
        assert main(command) == 1
        errors = capsys.readouterr().err
        assert errors.startswith("error: the monitor at redis://127.0.0.1:1 does not answer")
        assert "hunter2" not in errors
    monkeypatch.delenv("PPA_MONITOR_URL")
    assert main(["status", "--directory", str(tmp_path / "none")]) == 1
    assert "no monitor has been started" in capsys.readouterr().err
