"""Directories as live sources: batches stay what they were sealed as, through crashes and new files; bad rows are counted."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ppa_core.errors import BadInput
from ppa_core.pipeline.sources import files as files_module
from ppa_core.pipeline.sources.files import Files, open_files
from ppa_core.pipeline.sources.journal import Journal
from ppa_core.pipeline.sources.live import Changed, LiveSource, NotSealed, RefusedRow
from ppa_core.pipeline.tables import digest, encode

ROOT = Path(__file__).parents[3]
SCHEMA = pa.schema({"word": pa.string(), "n": pa.int64()})
KINDS = ("csv", "jsonl", "parquet")


def put(directory: Path, kind: str, name: str, numbers: Iterable[int]) -> Path:
    """A complete file arrives: written under another name, then renamed."""
    rows = [{"word": f"w{n}", "n": n} for n in numbers]
    draft, path = directory / f".{name}.part", directory / f"{name}.{kind}"
    if kind == "csv":
        draft.write_text("word,n\n" + "".join(f"{row['word']},{row['n']}\n" for row in rows))
    elif kind == "jsonl":
        draft.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        pq.write_table(pa.Table.from_pylist(rows, SCHEMA), draft, row_group_size=4)
    return draft.rename(path)


def numbers(source: Files, batch: int) -> list[int]:
    return sorted(n for task in range(source.tasks) for n in source.read(task, batch)["n"].to_pylist())


def fresh(source: Files, batches: Iterable[int]) -> list[str]:
    """The digests of what another process reads."""
    code = (
        "import json, pickle, sys; from ppa_core.pipeline.tables import digest, encode\n"
        "source, batches = pickle.load(sys.stdin.buffer)\n"
        "print(json.dumps([digest(encode(source.read(t, b))) for b in batches for t in range(source.tasks)]))"
    )
    told = pickle.dumps((source, list(batches)))
    run = subprocess.run([sys.executable, "-c", code], input=told, capture_output=True, check=True, cwd=ROOT)
    found: list[str] = json.loads(run.stdout)
    return found


def digests(source: Files, batches: Iterable[int]) -> list[str]:
    return [digest(encode(source.read(task, batch))) for batch in batches for task in range(source.tasks)]


# --- sealing


@pytest.mark.parametrize("kind", KINDS)
def test_files_that_arrive_later_are_in_later_batches_and_a_new_process_reads_the_same(tmp_path: Path, kind: str) -> None:
    put(tmp_path, kind, "b", range(10))
    source = open_files(tmp_path, kind, 3, SCHEMA)
    assert isinstance(source, LiveSource)
    assert source.seal(0)
    put(tmp_path, kind, "a", range(100, 105))
    assert source.seal(1)
    assert source.seal(2)
    assert [numbers(source, batch) for batch in range(3)] == [list(range(10)), list(range(100, 105)), []]
    put(tmp_path, kind, "c", range(5))
    assert source.seal(1), "sealed already"
    assert numbers(source, 1) == list(range(100, 105))
    assert fresh(source, range(3)) == digests(source, range(3))
    assert [source.read(task, 0).num_rows for task in range(3)] == [4, 3, 3]


@pytest.mark.parametrize("kind", KINDS)
def test_a_large_file_is_spread_over_batches_before_newer_ones(tmp_path: Path, kind: str) -> None:
    put(tmp_path, kind, "m", range(25))
    source = open_files(tmp_path, kind, 2, SCHEMA, max_rows=10)
    source.seal(0)
    put(tmp_path, kind, "a", range(100, 103))
    for batch in (1, 2, 3):
        open_files(tmp_path, kind, 2, SCHEMA, max_rows=10).seal(batch)
    assert [numbers(source, batch) for batch in range(4)] == [
        list(range(10)),
        list(range(10, 20)),
        [*range(20, 25), *range(100, 103)],
        [],
    ]


@settings(max_examples=15, deadline=None)
@given(st.lists(st.integers(0, 12), max_size=5), st.integers(1, 7), st.integers(1, 4), st.sampled_from(KINDS), st.booleans())
def test_every_row_is_in_one_batch_and_task(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], most: int, tasks: int, kind: str, by_key: bool
) -> None:
    directory = tmp_path_factory.mktemp("files")
    source = open_files(directory, kind, tasks, SCHEMA, max_rows=most, key="word" if by_key else None)
    first, batch = 0, 0
    for i, size in enumerate(sizes):
        put(directory, kind, f"f{i}", range(first, first + size))
        first += size
        source.seal(batch)
        batch += 1
    for _ in range(first // most + 1):
        source.seal(batch)
        batch += 1
    found = [numbers(source, b) for b in range(batch)]
    assert sorted(n for part in found for n in part) == list(range(first))
    assert all(len(part) <= most for part in found)


def test_a_crash_while_sealing_leaves_nothing_or_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path, "csv", "a", range(5))
    source = open_files(tmp_path, "csv", 1, SCHEMA)

    def die(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(os, "link", die)
        with pytest.raises(KeyboardInterrupt):
            source.seal(0)
    with pytest.raises(NotSealed, match="batch 0: it is not sealed"):
        source.read(0, 0)
    with monkeypatch.context() as patch:
        patch.setattr(Journal, "_sync", die)  # after the link
        with pytest.raises(KeyboardInterrupt):
            source.seal(0)
    put(tmp_path, "csv", "b", range(5, 9))
    source.seal(0)
    source.seal(1)
    assert (numbers(source, 0), numbers(source, 1)) == ([0, 1, 2, 3, 4], [5, 6, 7, 8])
    assert not list((tmp_path / ".ppa").glob("*.tmp"))


def test_of_two_drivers_that_seal_at_once_the_first_wins(tmp_path: Path) -> None:
    put(tmp_path, "csv", "a", range(5))
    source = open_files(tmp_path, "csv", 1, SCHEMA)
    late = source._next([])
    put(tmp_path, "csv", "b", range(5, 9))
    source.seal(0)
    source.journal.add(0, late)
    assert numbers(source, 0) == list(range(9))


def test_what_a_dead_driver_left_of_a_copy_goes_with_its_batch(tmp_path: Path) -> None:
    put(tmp_path, "csv", "a", range(5))
    source = open_files(tmp_path, "csv", 1, SCHEMA)
    source._next([])
    (tmp_path / ".ppa" / f".rows-000000000-{'0' * 16}.arrow.{'1' * 16}.unfinished").write_bytes(b"draft")
    for batch in (0, 1):
        source.seal(batch)
    assert len(list((tmp_path / ".ppa").iterdir())) == 5
    source.release(1)
    assert {path.name for path in (tmp_path / ".ppa").iterdir()} == {"batch-000000001.json", "consumed.json"}


def test_batches_are_sealed_one_after_the_other(tmp_path: Path) -> None:
    source = open_files(tmp_path, "csv", 1, SCHEMA)
    for batch in (1, -1):
        with pytest.raises(NotSealed, match="no batch is sealed"):
            source.seal(batch)
    source.seal(0)
    with pytest.raises(NotSealed, match="the last sealed batch is 0"):
        source.seal(2)


def test_released_batches_leave_little_and_what_they_took_is_not_taken_again(tmp_path: Path) -> None:
    source = open_files(tmp_path, "csv", 1, SCHEMA, max_rows=4)
    for batch in range(20):
        put(tmp_path, "csv", f"f{batch:02}", range(batch * 3, batch * 3 + 3))
        source.seal(batch)
    source.release(18)
    assert source.journal.batches() == [18, 19]
    for batch in (20, 21):
        source.seal(batch)
    (tmp_path / "f00.csv").unlink()
    source.release(100)
    assert source.journal.batches() == [21]
    assert not list((tmp_path / ".ppa").glob("*rows-*")), "the copies go with their seals; the last batch has no rows"
    assert "f00.csv" not in (source.journal.note("consumed") or {})
    assert source.seal(3), "it was sealed once"
    with pytest.raises(NotSealed, match=r"batch 3: it was already released; start a new run"):
        source.read(0, 3)
    assert numbers(source, 21) == []


# --- files that change


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_that_changes_after_it_was_sealed_changes_no_batch_and_is_named_once(tmp_path: Path, kind: str) -> None:
    path = put(tmp_path, kind, "a", range(5))
    source = open_files(tmp_path, kind, 1, SCHEMA)
    source.seal(0)
    before = digests(source, [0])
    put(tmp_path, kind, "a", range(100_000, 100_700))
    put(tmp_path, kind, "b", [7])
    for batch in (1, 2):
        source.seal(batch)
    assert [(entry.file, entry.reason[:6]) for entry in source.refused(1).first] == [(f"a.{kind}", "it had")]
    assert (numbers(source, 1), numbers(source, 2), source.refused(2).count) == ([7], [], 0)
    path.unlink()
    assert fresh(source, [0]) == before
    assert source.seal(3), "what was wholly read may go"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("gone", [True, False])
def test_of_a_file_that_changes_when_read_in_part_the_rest_is_refused(tmp_path: Path, kind: str, gone: bool) -> None:
    path = put(tmp_path, kind, "a", range(5))
    source = open_files(tmp_path, kind, 1, SCHEMA, max_rows=2)
    source.seal(0)
    if gone:
        path.unlink()
    else:
        put(tmp_path, kind, "a", range(9))
    put(tmp_path, kind, "b", [7])
    for batch in (1, 2):
        source.seal(batch)
    assert [numbers(source, batch) for batch in range(3)] == [[0, 1], [7], []]
    assert [entry.file for entry in source.refused(1).first] == [f"a.{kind}"]
    assert ("it was removed" if gone else "it was changed") in source.refused(1).first[0].reason
    assert source.refused(2).count == 0


def test_a_copy_that_is_not_what_was_written_is_not_read(tmp_path: Path) -> None:
    put(tmp_path, "csv", "a", range(5))
    source = open_files(tmp_path, "csv", 1, SCHEMA)
    source.seal(0)
    (copy,) = (tmp_path / ".ppa").glob("rows-*")
    assert copy.stat().st_mode & 0o777 == 0o600
    content = copy.read_bytes()
    copy.write_bytes(content[:-100] + b"x" * 100)
    with pytest.raises(Changed, match="was changed"):
        source.read(0, 0)
    copy.unlink()
    with pytest.raises(Changed, match="cannot be read"):
        source.read(0, 0)


def test_files_that_are_not_complete_are_left_alone(tmp_path: Path) -> None:
    for name in (".a.csv", "_a.csv", "a.csv.part", "a.csv.tmp", "a.txt"):
        (tmp_path / name).write_text("word,n\nx,1\n")
    (tmp_path / "folder.csv").mkdir()
    source = open_files(tmp_path, "csv", 1, SCHEMA)
    source.seal(0)
    assert numbers(source, 0) == []
    wide = open_files(tmp_path, "csv", 1, SCHEMA, pattern="*.t*", state=tmp_path / "state")
    wide.seal(0)
    assert numbers(wide, 0) == [1]


# --- rows that cannot be read

BAD_CSV = b'word,n\na,1\n"b,2\nc\n\nd,x\r\n\xff,4\ne,5,6\n"f ""g""",7\nx","y\nh,'


def test_rows_of_csv_that_cannot_be_read_are_refused_with_line_and_reason(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(BAD_CSV)
    source = open_files(tmp_path, "csv", 1, SCHEMA)
    source.seal(0)
    assert source.read(0, 0).to_pylist() == [{"word": "a", "n": 1}, {"word": 'f "g"', "n": 7}, {"word": "h", "n": None}]
    refused = source.refused(0)
    assert [entry.line for entry in refused.first] == [3, 4, 6, 7, 8, 10]
    assert (refused.count, source.refused_so_far()) == (6, 6)
    assert refused.first[1] == RefusedRow("a.csv", 4, "1 values for 2 columns")
    assert refused.first[2].reason == "column 'n': 'x' is not int64"
    assert "quote" in refused.first[0].reason


def test_rows_of_json_that_cannot_be_read_are_refused_with_line_and_reason(tmp_path: Path) -> None:
    lines = [
        '{"word": "a", "n": 1, "more": [1, {}]}', "{", '{"word": 5, "n": 1}', '{"word": "b", "n": "2"}', '{"n": 2}', "", "[1]",
        '{"word": "c", "n": 1.5}', '{"word": "d", "n": 99999999999999999999}', '{"word":"e"}{"word":"f"}',
        '{"word": "g", "n": true}', '{"word": "é", "n": -3}', "[" * 100_000,
    ]  # fmt: skip
    (tmp_path / "a.jsonl").write_text("\n".join(lines), encoding="utf-8")
    source = open_files(tmp_path, "jsonl", 1, SCHEMA)
    source.seal(0)
    assert source.read(0, 0).to_pylist() == [{"word": "a", "n": 1}, {"word": None, "n": 2}, {"word": "é", "n": -3}]
    assert [entry.line for entry in source.refused(0).first] == [2, 3, 4, 7, 8, 9, 10, 11, 13]


def test_values_that_must_be_there_and_bad_times(tmp_path: Path) -> None:
    schema = pa.schema([pa.field("n", pa.int64(), nullable=False), pa.field("at", pa.timestamp("us"))])
    (tmp_path / "a.csv").write_text("n,at\n1,2020-01-01 10:00:00\n,2020-01-01\n3,soon\n")
    (tmp_path / "a.jsonl").write_text('{"n": 1, "at": "2020-01-01 10:00:00"}\n{"at": null}\n{"n": 3, "at": "soon"}\n')
    table = pa.table({"n": pa.array([1, None, 3]), "at": ["2020-01-01 10:00:00", None, "soon"]})
    pq.write_table(table, tmp_path / "a.parquet")
    for kind, lines in (("csv", [3, 4]), ("jsonl", [2, 3]), ("parquet", [2, 3])):
        source = open_files(tmp_path, kind, 1, schema, state=tmp_path / f".{kind}")
        source.seal(0)
        assert [str(row["at"]) for row in source.read(0, 0).to_pylist()] == ["2020-01-01 10:00:00"]
        assert source.read(0, 0).schema == schema
        assert [entry.line for entry in source.refused(0).first] == lines


def test_strict_stops_before_the_batch_is_sealed(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(BAD_CSV)
    source = open_files(tmp_path, "csv", 1, SCHEMA, strict=True)
    with pytest.raises(BadInput, match=r"a\.csv: line 3: .*quote.*strict"):
        source.seal(0)
    path.write_text("word,n\na,1\n")
    assert source.seal(0)
    assert numbers(source, 0) == [1]


def test_files_without_the_columns_and_files_that_are_something_else_are_refused_as_a_whole(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("word,m\na,1\nb,2\n")
    (tmp_path / "b.csv").write_bytes(b"")
    pq.write_table(pa.table({"word": ["a", "b"]}), tmp_path / "a.parquet")
    (tmp_path / "b.parquet").write_bytes(b"nothing of the kind")
    whole = put(tmp_path, "parquet", "c", range(50)).read_bytes()
    (tmp_path / "c.parquet").write_bytes(whole[:40] + b"\xff" * 40 + whole[80:])
    for kind, count, reason in (("csv", 2, "missing or duplicate: n"), ("parquet", 53, "missing or duplicate: n")):
        source = open_files(tmp_path, kind, 1, SCHEMA, state=tmp_path / f".{kind}")
        source.seal(0)
        assert source.read(0, 0).num_rows == 0
        assert source.refused(0).count == count
        assert reason in source.refused(0).first[0].reason


def test_a_column_that_is_all_wrong_is_refused_quickly(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("word,n\n" + "a,b\n" * 50_000)
    source = open_files(tmp_path, "csv", 1, SCHEMA)
    source.seal(0)
    assert source.refused(0).count == 50_000
    assert len(source.refused(0).first) == 100


# --- schema


@pytest.mark.parametrize("kind", KINDS)
def test_the_schema_of_the_first_file_is_kept_while_a_run_needs_it(tmp_path: Path, kind: str) -> None:
    with pytest.raises(BadInput, match="give a schema"):
        open_files(tmp_path, kind, 1)
    put(tmp_path, kind, "b", range(3))
    first = open_files(tmp_path, kind, 1).named("run")
    assert first.schema == SCHEMA
    forget = first.begin()
    first.seal(0)
    if kind == "csv":
        (tmp_path / "a.csv").write_text("word,n\nx,1.5\n")
        again = open_files(tmp_path, kind, 1).named("run")
        again.seal(1)
        assert (again.schema, again.refused(1).count, numbers(again, 0)) == (SCHEMA, 1, [0, 1, 2])
        forget()
        assert open_files(tmp_path, kind, 1).schema == pa.schema({"word": pa.string(), "n": pa.float64()})


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"kind": "xml"}, "unknown file format"),
        ({"tasks": 0}, "must be at least 1"),
        ({"tasks": "2"}, "whole numbers"),
        ({"max_rows": 0}, "must be at least 1"),
        ({"key": "nothing"}, "not a column"),
        ({"schema": pa.schema({"a": pa.list_(pa.int64())})}, "text cannot be converted to list"),
    ],
)
def test_what_cannot_be_is_refused(tmp_path: Path, options: dict[str, Any], reason: str) -> None:
    with pytest.raises(BadInput, match=reason):
        open_files(tmp_path, **({"kind": "csv", "tasks": 1, "schema": SCHEMA} | options))


def test_a_directory_that_is_not_there_is_named(tmp_path: Path) -> None:
    source = open_files(tmp_path / "nothing", "csv", 1, SCHEMA, state=tmp_path / "state")
    with pytest.raises(BadInput, match="nothing: cannot be read"):
        source.seal(0)


def test_what_is_cached_is_bounded_and_belongs_to_the_seal(tmp_path: Path) -> None:
    assert files_module._rows.cache_info().maxsize == 4
    put(tmp_path, "csv", "a", range(5))
    source = open_files(tmp_path, "csv", 1, SCHEMA)
    source.seal(0)
    assert numbers(source, 0) == [0, 1, 2, 3, 4]
    for path in (tmp_path / ".ppa").iterdir():
        path.unlink()
    put(tmp_path, "csv", "a", range(7))
    source.seal(0)
    assert numbers(source, 0) == list(range(7))
