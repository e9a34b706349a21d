"""A clone that is in use: tests and `--help` neither find what the user keeps in `.ppa`, nor change a byte of it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from monitoring import access, recorded
from monitoring.connection import DIRECTORY
from monitoring.reader import MonitorReader
from monitoring.server import start
from ppa_core.home import FOLDER
from tests import used_clone

ROOT = Path(__file__).parents[2]
LEFT_OUT = (".git", ".venv", ".ppa", "build", "img", "__pycache__", "*_cache", ".hypothesis")
MODULES = (
    "ppa_core",
    "monitoring",
    "monitoring.recorded",
    "benchmarks",
    "benchmarks.engine",
    "benchmarks.dashboard",
    "benchmarks.soak",
    "tests.used_clone",
)
SAMPLE = (
    "tests/pages/test_access.py",
    "tests/pages/test_failover_page.py::test_without_a_password_nobody_can_act",
    "tests/cli/test_running.py",
    "tests/monitoring/test_cli.py::test_a_monitor_that_is_not_there_is_one_line_and_exit_code_1",
)
EVERY_HELP = """
import argparse, contextlib, io
from monitoring.main import main as monitoring
from ppa_core.cli import main as ppa_core
for main in (ppa_core, monitoring):
    told = io.StringIO()
    with contextlib.redirect_stdout(told), contextlib.suppress(SystemExit):
        main(["--help"])
    for word in {line.split()[0] for line in told.getvalue().splitlines() if line.startswith("    ") and line[4] != " "}:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
            main([word, "--help"])
        print(word)
"""


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("used") / "clone"
    shutil.copytree(ROOT, folder, ignore=shutil.ignore_patterns(*LEFT_OUT), symlinks=True)
    used_clone.make(folder)
    yield folder
    shutil.rmtree(folder)


def run(clone: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """As the user would in the clone: with nothing of the tests' own in the environment."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PPA_", "PYTEST_"))}
    return subprocess.run(
        [sys.executable, *words], cwd=clone, env=environment, capture_output=True, text=True, check=False, timeout=600
    )


@pytest.mark.slow
def test_no_help_changes_what_the_user_keeps(clone: Path) -> None:
    before = used_clone.state(clone)
    assert {".ppa/operator.hash", ".ppa/monitor/operator.key", ".ppa/monitor/server.json"} <= {
        line.split()[-1] for line in before
    }
    for module in MODULES:
        told = run(clone, "-m", module, "--help")
        assert told.returncode == 0, told.stderr
        assert "usage:" in told.stdout
    words = run(clone, "-c", EVERY_HELP).stdout.split()
    assert {"run", "serve", "drill", "tail", "send", "inspect"} <= set(words)
    assert used_clone.state(clone) == before


def test_a_recorded_run_goes_into_the_monitor_that_is_named_and_no_other(clone: Path, tmp_path: Path) -> None:
    before = used_clone.state(clone)
    for words in ((), ("--environment",)):
        told = run(clone, "-m", "monitoring.recorded", *words)
        assert told.returncode == 2
        assert "Traceback" not in told.stderr
    assert used_clone.state(clone) == before
    assert recorded.main(["--directory", str(tmp_path / "named")]) == 0
    with start(tmp_path / "named") as server:
        assert [pipeline.name for pipeline in MonitorReader(server.address).pipelines()] == ["tree"]
    assert used_clone.state(clone) == before


@pytest.mark.slow
def test_a_sample_of_the_suite_passes_in_a_used_clone_and_leaves_it_as_it_was(clone: Path) -> None:
    before = used_clone.state(clone)
    told = run(clone, "-m", "pytest", "-n", "0", "-q", "-p", "no:cacheprovider", "-m", "not drill", *SAMPLE)
    assert told.returncode == 0, told.stdout[-3000:]
    assert used_clone.state(clone) == before


def test_what_is_there_is_never_made_anew(clone: Path) -> None:
    before = used_clone.state(clone)
    told = run(clone, "-m", "tests.used_clone", "make", str(clone))
    assert told.returncode == 2
    assert "stays as it is" in told.stderr
    assert used_clone.state(clone) == before


def test_tests_have_a_folder_of_their_own_that_is_empty_at_first(own_folder: Path) -> None:
    assert own_folder == FOLDER
    assert ROOT not in own_folder.resolve().parents
    assert DIRECTORY.parent == access.HASH_PATH.parent == own_folder
    assert not own_folder.exists()
    access.write_hash(access.hash_password("a long password"))
    assert access.find_hash() is not None
    told = subprocess.run(
        [sys.executable, "-c", "from monitoring import access; print(access.find_hash() is not None)"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert told.stdout.strip() == "True", "what tests start looks there too"


def test_the_next_test_finds_nothing_of_it(own_folder: Path) -> None:
    assert not own_folder.exists()
    assert access.find_hash() is None
