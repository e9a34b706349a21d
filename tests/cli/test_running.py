"""What `run` and `drill` refuse before anything is started."""

from __future__ import annotations

from pathlib import Path

import pytest

from ppa_core.cli import main


def refused(words: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert main(words.split()) == 2
    told = capsys.readouterr().err.strip().splitlines()
    assert not any("Traceback" in line for line in told)
    return told[-1]


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ("run nothing", "there is none of that name; there are: q1, q2, tree"),
        ("run missing.py:f", "there is no file missing.py"),
        ("run tree --set rate=abc", "cannot be made with rate='abc'"),
        ("run tree --set colour=1", "there is no such option"),
        ("run tree --set rate", "not NAME=VALUE"),
        ("run tree --sink nowhere", "unknown; write one of"),
        ("drill tree --fail primaries", "give one --at for each --fail"),
        ("drill tree --fail primaries --at 9 --batches 10", "no batch comes after it"),
        ("drill tree --fail everything --at 3", "not one of none, primaries"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(words: str, reason: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert reason in refused(words, capsys)


def test_folders_of_another_run_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "output-000000001.jsonl").write_text("{}")
    assert "outputs of another run" in refused(f"run tree --sink jsonl:{tmp_path}/out", capsys)
    (tmp_path / "run" / "offsets").mkdir(parents=True)
    assert "embedded nodes are gone" in refused(f"run tree --output {tmp_path}/run", capsys)
    (tmp_path / "file").write_text("")
    assert "cannot be used as a folder" in refused(f"run tree --output {tmp_path}/file", capsys)


def test_nodes_that_do_not_answer_are_said_before_spark_is_started(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    node = '{{"name": "{0}", "rack": "r{0}", "role": "primary", "url": "redis://:x@127.0.0.1:{1}"}}'
    nodes = tmp_path / "nodes.json"
    nodes.write_text(f'{{"nodes": [{node.format("a", 1)}, {node.format("b", 2)}]}}')
    assert main(["run", "tree", "--nodes-file", str(nodes)]) == 1
    assert "no node answers" in capsys.readouterr().err
