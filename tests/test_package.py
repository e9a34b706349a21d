"""What is installed, and what programs use of it: the wheel, the command, the names of `ppa_core`."""

from __future__ import annotations

import inspect
import os
import re
import shutil
import socket
import subprocess
import sys
import time
import tomllib
import urllib.request
from contextlib import suppress
from pathlib import Path

import pytest

import ppa_core
from monitoring.main import main as monitoring
from pages.__main__ import command
from ppa_core.cli import main

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PATIENCE = 120.0


def test_these_names_and_no_others_are_for_programs() -> None:
    assert sorted(ppa_core.__all__) == [
        "BadInput", "Pipeline", "PpaError", "Result", "RunConfig", "Unavailable", "load_topology", "open_files", "operators",
        "plan", "read_sink", "run",
    ]  # fmt: skip
    assert set(ppa_core.__all__) <= set(dir(ppa_core))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = ppa_core.nothing


@pytest.mark.parametrize("name", ppa_core.__all__)
def test_each_name_is_documented_and_its_own(name: str) -> None:
    found = getattr(ppa_core, name)
    assert inspect.getdoc(found)
    assert f"`{name}`" in (ppa_core.__doc__ or "")
    if name not in ("load_topology", "operators"):
        assert found.__name__ == name


def test_planning_and_defining_load_no_spark() -> None:
    code = "import sys, ppa_core as p; p.plan(p.load_topology('tree'), 8); p.Pipeline, p.RunConfig, p.operators, p.open_files"
    code += "; assert not {'pyspark', 'streamlit', 'redis'} & set(sys.modules), sorted(sys.modules)"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, timeout=PATIENCE)


def names(requirements: list[str]) -> set[str]:
    return {re.split(r"[<>=;\[ ]", text)[0].replace("_", "-").lower() for text in requirements}


def test_the_pins_have_all_dependencies_and_the_image_no_test_tools() -> None:
    run, everything = (
        names(re.findall(r"^([\w.-]+)==", (ROOT / file).read_text(), re.MULTILINE))
        for file in ("requirements-run.txt", "requirements.txt")
    )
    needed, more = names(PROJECT["dependencies"]), names(PROJECT["optional-dependencies"]["dev"])
    assert needed <= run
    assert needed | more <= everything
    assert more & run == {"setuptools"}  # which a package of the runtime needs


def test_the_dashboards_packages_are_a_group_of_their_own_that_nothing_else_needs() -> None:
    groups = re.split(r"^    # ---- (\w+)", (ROOT / "pyproject.toml").read_text().partition("\n]\n")[0], flags=re.MULTILINE)
    assert groups[1::2] == ["runtime", "dashboard"]
    dashboard = {re.split("[<>=]", name)[0] for name in re.findall(r'^    "([^"]+)"', groups[4], re.MULTILINE)}
    assert dashboard == {"streamlit", "plotly", "kaleido"}
    code = f"import sys; sys.modules.update(dict.fromkeys({sorted(dashboard)}))  # importing one of them fails"
    code += "\nimport ppa_core.driver.main, ppa_core.driver.host, ppa_core.worker.stage, ppa_core.application.running"
    code += "\nimport monitoring.attached, monitoring.main, ppa_core.cli as cli"
    code += "\nsys.exit(cli.main(['plan', 'tree', '--budget', '8', '--json']))"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, timeout=PATIENCE, stdout=subprocess.DEVNULL)


def test_the_settings_of_the_dashboard_are_options_and_what_is_given_replaces_them() -> None:
    told = command(["--server.port", "8600", "--server.address=0.0.0.0"])
    assert told[:2] == ["run", str(ROOT / "app.py")]
    assert "--server.address=127.0.0.1" not in told
    assert {"--client.showErrorDetails=none", "--server.headless=true", "--server.allowedHosts=::1"} <= set(told)
    assert told[-3:] == ["--server.port", "8600", "--server.address=0.0.0.0"]
    assert (ROOT / ".streamlit" / "config.toml").resolve() == ROOT / "pages" / "server" / "config.toml"


def test_the_monitors_commands_are_those_of_ppa_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PPA_MONITOR_URL", raising=False)
    for words, code in (
        ("status", 1), ("tail", 1), ("incidents", 1), ("audit", 1), ("report --incident last --json", 1), ("send pause", 1),
        ("report --incident last", 2), ("send no-such-command", 2), ("send set-budget many", 2),
    ):  # fmt: skip
        argv = [*words.split(), "--directory", str(tmp_path)]
        ours, its = main(argv), capsys.readouterr()
        theirs, same = monitoring(argv), capsys.readouterr()
        assert (ours, its) == (theirs, same)
        assert (ours, its.out) == (code, "")
        assert its.err.startswith("error: ")
    assert main(["--json", "status", "--directory", str(tmp_path)]) == 1
    with pytest.raises(SystemExit):
        main(["status", "--help"])
    assert "python -m ppa_core status" in capsys.readouterr().out


def test_other_commands_load_nothing_of_the_monitors_redis() -> None:
    code = "import sys; from ppa_core.cli.main import _parser; _parser(); assert 'redis' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, timeout=PATIENCE)


@pytest.mark.slow
def test_what_is_installed_plans_and_serves_the_dashboard_from_any_folder(tmp_path: Path) -> None:
    source, target, folder = tmp_path / "source", tmp_path / "installed", tmp_path / "empty"
    ignored = shutil.ignore_patterns("__pycache__")
    for name in ("ppa_core", "monitoring", "pages"):
        shutil.copytree(ROOT / name, source / name, ignore=ignored)
    for name in ("app.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source / name)
    pip = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "--no-deps",
        "--no-build-isolation",
    ]
    subprocess.run([*pip, "--target", target, source], check=True, timeout=PATIENCE)
    shutil.rmtree(source)
    assert (target / "monitoring" / "templates" / "report.html").is_file()
    (folder / ".streamlit").mkdir(parents=True)
    (folder / ".streamlit" / "config.toml").write_text('[server]\naddress = "0.0.0.0"\n')  # of another program
    (folder / "app.py").write_text("raise SystemExit('not this one')\n")
    own = {**os.environ, "PYTHONPATH": str(target)}

    def told(*words: str) -> str:
        return subprocess.run(
            [sys.executable, target / "bin" / "ppa", *words], cwd=folder, env=own, check=True, timeout=PATIENCE,
            capture_output=True, text=True,
        ).stdout  # fmt: skip

    assert told("--version").strip() == ppa_core.__version__
    assert told("--help").startswith("usage: ppa ")
    assert '"tasks": ["S.1"' in told("plan", "tree", "--budget", "8", "--json")

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with (folder / "log").open("wb") as log:
        words = [sys.executable, "-m", "pages", "--server.port", str(port)]
        dashboard = subprocess.Popen(words, cwd=folder, env=own, stdout=log, stderr=log)
    try:
        assert _answers(dashboard, f"http://127.0.0.1:{port}/_stcore/health"), (folder / "log").read_text()
        with pytest.raises(OSError, match="refused"):  # only on loopback
            socket.create_connection(("127.0.0.2", port), timeout=5)
    finally:
        dashboard.terminate()
        dashboard.wait(20)


def _answers(process: subprocess.Popen[bytes], url: str) -> bool:
    end = time.monotonic() + PATIENCE
    while process.poll() is None and time.monotonic() < end:
        with suppress(OSError), urllib.request.urlopen(url, timeout=5) as answer:
            return bool(answer.status == 200)
        time.sleep(0.2)
    return False
