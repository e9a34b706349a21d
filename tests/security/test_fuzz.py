"""Fuzzing with fixed seeds: a few hundred mutants of each kind. `make fuzz` tries as many as the time allows."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ppa_core.pipeline.sources.files import open_files
from tests.fuzz.__main__ import TARGETS, fuzz, main
from tests.fuzz.mutating import mutant, mutant_document
from tests.fuzz.target import Runner, run_rounds


@pytest.mark.parametrize("name", TARGETS)
def test_mutants_end_in_no_traceback_and_cost_no_row(name: str, tmp_path: Path) -> None:
    with TARGETS[name](tmp_path) as target:
        assert run_rounds(target, name, seed=1, mutants=300) >= 300


@pytest.mark.parametrize("wanted", [pa.string(), pa.int64()])
def test_a_text_of_a_parquet_file_that_is_no_utf_8_is_refused_and_costs_no_other_row(
    tmp_path: Path, wanted: pa.DataType
) -> None:
    texts = pa.array([b"1", b"\xff\xfe", None, b"4"], pa.binary()).view(pa.string())
    pq.write_table(pa.table({"word": texts}), tmp_path / "a.parquet")
    source = open_files(tmp_path, "parquet", 1, pa.schema({"word": wanted}))
    assert source.seal(0)
    assert [str(word) for word in source.read(0, 0)["word"].to_pylist()] == ["1", "None", "4"]
    (refused,) = source.refused(0).first
    assert "column 'word': " in refused.reason


def test_a_text_of_json_that_is_no_utf_8_is_refused_and_costs_no_other_row(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(b'{"word": "a"}\n{"word": "\xff"}\n{"word": "\\ud800"}\n{"word": "d"}\n')
    source = open_files(tmp_path, "jsonl", 1, pa.schema({"word": pa.string()}))
    assert source.seal(0)
    assert source.read(0, 0)["word"].to_pylist() == ["a", "d"]
    assert source.refused(0).count == 2


def test_the_same_seed_gives_the_same_mutants() -> None:
    document = {"a": [1, {"b": "text"}], "c": None}
    first, again = ([mutant(b"some bytes", r) for _ in range(50)] for r in (Random(7), Random(7)))
    assert first == again
    assert len(set(first)) > 40
    one, two = ([json.dumps(mutant_document(document, r)) for _ in range(50)] for r in (Random(7), Random(7)))
    assert one == two
    assert len(set(one)) > 30


class Broken:
    """A target that fails in its third round."""

    def __init__(self) -> None:
        self.rounds = 0

    def round(self, random: Random) -> int:
        self.rounds += 1
        if self.rounds == 3:
            raise ZeroDivisionError("by zero")
        return 5


def test_a_failure_is_kept_with_how_to_see_it_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runner = Runner(7, tmp_path)
    assert fuzz({"broken": Broken()}, runner, 0.1) == 1
    (path,) = runner.failures
    kept = json.loads(path.read_text())
    assert kept["again"] == "python -m tests.fuzz --only broken --seed 7 --round 2"
    assert kept["failure"][-1] == "ZeroDivisionError: by zero"
    assert f"FAILED: see {path}" in capsys.readouterr().out
    with pytest.raises(AssertionError, match="broken, seed 7, round 2: ZeroDivisionError"):
        run_rounds(Broken(), "broken", 7, 100)


def test_the_command_runs_one_round_again(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--only", "topologies", "--seed", "3", "--round", "4"]) == 0
    assert capsys.readouterr().out == "topologies: 10 mutants, and nothing is wrong\n"
