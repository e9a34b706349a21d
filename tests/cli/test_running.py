"""What `run` and `drill` refuse before anything is started, and what `run` prints."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from ppa_core.cli import main
from ppa_core.cli.running import event_printer
from ppa_core.engine import run_events as e
from ppa_core.engine.event_codec import kind_of
from ppa_core.pipeline.sinks import read_sink

ROOT = Path(__file__).parents[2]
PATH = os.environ["PATH"]


def refused(words: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert main(words.split()) == 2
    told = capsys.readouterr().err.strip().splitlines()
    assert not any("Traceback" in line for line in told)
    return told[-1]


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ("run nothing", "unknown query; choose one of q1, q2, tree"),
        ("run missing.py:f", "no such file: missing.py"),
        ("run tree --set rate=abc", "cannot be created with rate='abc'"),
        ("run tree --set colour=1", "unknown option"),
        ("run tree --set rate", "not of the form NAME=VALUE"),
        ("run tree --sink nowhere", "unknown sink; write one of"),
        ("run tree --master foo", "--master foo: not a Spark master; use spark://HOST:PORT"),
        ("drill tree --fail primaries", "give one --at for each --fail"),
        ("drill tree --fail primaries --at 9 --batches 10", "there must be a batch after the failure"),
        ("drill tree --fail everything --at 3", "not one of none, primaries"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(words: str, reason: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert reason in refused(words, capsys)


def test_a_negative_interval_of_plans_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["run", "tree", "--replan-every", "-1"])
    assert "'-1' is not a whole number of at least 0" in capsys.readouterr().err


def test_folders_of_another_run_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "output-000000001.jsonl").write_text("{}")
    assert "outputs of another run" in refused(f"run tree --sink jsonl:{tmp_path}/out", capsys)
    (tmp_path / "run" / "outputs").mkdir(parents=True)
    assert "embedded nodes are gone" in refused(f"run tree --output {tmp_path}/run", capsys)
    (tmp_path / "file").write_text("")
    assert "cannot be used as an output folder" in refused(f"run tree --output {tmp_path}/file", capsys)


def test_nodes_that_do_not_answer_are_said_before_spark_is_started(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    node = '{{"name": "{0}", "rack": "r{0}", "role": "primary", "url": "redis://:x@127.0.0.1:{1}"}}'
    nodes = tmp_path / "nodes.json"
    nodes.write_text(f'{{"nodes": [{node.format("a", 1)}, {node.format("b", 2)}]}}')
    nodes.chmod(0o600)
    assert main(["run", "tree", "--nodes-file", str(nodes)]) == 1
    assert "no node answers" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("event", "printed"),
    [
        (
            e.BatchFinished(1.0, 7, 0.5, 1, 16_000, 30_000, refused=2, refusals=("a.csv: 4: \x1b",)),
            """  batch      7    0.50 s      16,000 tuples        32,000 tuples/s
! batch      7  2 rows refused: a.csv: 4: \\x1b; …
""",
        ),
        (e.OutputPublished(1.0, 7, 1, "accurate", 1.0, (), 5, ""), ""),
        (
            e.OutputPublished(1.0, 7, 1, "tentative", 0.5, ("O1.1",), 5, ""),
            "! batch      7  tentative  OF 0.5000  1 tasks missing\n",
        ),
        (e.OutputPublished(1.0, 7, 2, "correction", 1.0, (), 5, ""), "! batch      7  correction  OF 1.0000\n"),
        (e.CopyLost(1.0, 7, "n1", "O1.1", ()), "! copy lost: O1.1 on n1 was damaged\n"),
        (e.NodeLost(1.0, 7, "n1", "refused", "r1"), "! node lost: n1\n"),
        (e.NodeBack(1.0, 7, "n1"), "! node back: n1\n"),
        (e.Recovered(1.0, 7, ("O1.1", "O1.2")), "! recovered: 2 tasks\n"),
        (e.DriverDied(1.0, 7, "killed"), "! driver died: killed\n"),
        (e.Paused(1.0, 7), "! paused\n"),
        (e.Heartbeat(1.0, 7, ("n1",), {}), ""),
    ],
)  # fmt: skip
def test_the_lines_that_run_prints(event: e.RunEvent, printed: str, capsys: pytest.CaptureFixture[str]) -> None:
    event_printer(False)(event)
    assert capsys.readouterr().out == printed
    event_printer(True)(event)
    assert json.loads(capsys.readouterr().out)["kind"] == kind_of(event)


@pytest.mark.drill
def test_the_readmes_word_count_prints_its_outputs_names_refused_rows_and_can_be_run_again(tmp_path: Path) -> None:
    (example,) = re.findall(r"^```python\n(.*?)^```$", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    (tmp_path / "words.py").write_text(example)
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.csv").write_text("line\nto be or\nnot to be\ntoo,many\n")
    for run in ("first", "second"):
        words = f"run words.py:words --set folder=in --batches 2 --sink console --sink jsonl:{run}"
        told = subprocess.run(
            [sys.executable, "-m", "ppa_core", *words.split()], cwd=tmp_path, env={"PYTHONPATH": str(ROOT), "PATH": PATH},
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert told.returncode == 0, told.stderr
        assert "batch 0 revision 1: accurate, OF 1.0000, 4 rows" in told.stdout
        assert '{"word": "be", "count": 2' in told.stdout
        assert "1 rows refused: a.csv: 4: 2 values for 1 columns" in told.stdout
        records = read_sink(f"jsonl:{tmp_path / run}")
        tables = [record.table.select(["word", "count"]).to_pydict() for record in records]
        counts = [dict(zip(table["word"], table["count"], strict=True)) for table in tables]
        assert counts == [{"be": 2, "to": 2, "not": 1, "or": 1}] * 2
    assert [path.name for path in (tmp_path / "in" / ".ppa").iterdir()] == ["schema.json"]
