"""`inspect`: the contract's document for a World Cup log, files and streams, and one clear line for whatever is wrong."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from redis import Redis

from ppa_core.cli import main
from ppa_core.nodes.embedded import EmbeddedNodes, launch
from tests.support.stored import EVERYTHING

SAMPLE = Path(__file__).parents[3] / "shared" / "data" / "worldcup98" / "wc_day50_4.head"
NOON = 899_208_000


class Result(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        return json.loads(self.out)


Run = Callable[..., Result]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def call(*argv: str | Path) -> Result:
        try:
            code = main(["inspect", *map(str, argv)])
        except SystemExit as stop:
            code = int(stop.code or 0)
        return Result(code, *capsys.readouterr())

    return call


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Four requests: servers 3 and 35 are two, though their lower five bits agree; one out of order, one of unknown size."""
    path = tmp_path / "log"
    requests = [
        (NOON, 1, 7, 100, 3), (NOON + 2, 2, 7, 2**32 - 1, 35), (NOON + 1, 1, 8, 50, 12), (NOON + 9, 3, 7, 0, 2),
    ]  # fmt: skip
    path.write_bytes(b"".join(struct.pack(">IIIIBBBB", *head, 0, 66, 1, server) for *head, server in requests))
    return path


def test_the_document_of_a_log(run: Run, log: Path) -> None:
    result = run("worldcup98", log, "--json")
    assert (result.code, result.err) == (0, "")
    assert result.document == {
        "requests": 4,
        "bytes": 150,
        "first_time": NOON,
        "last_time": NOON + 9,
        "objects": 2,
        "clients": 3,
        "servers": {"2": 1, "3": 1, "12": 1, "35": 1},
        "out_of_order": 1,
        "unknown_sizes": 1,
    }
    assert list(result.document["servers"]) == ["2", "3", "12", "35"]


@pytest.mark.skipif(not SAMPLE.exists(), reason=f"the real log is not here: {SAMPLE.name} in {SAMPLE.parent.name}")
def test_the_document_of_the_real_sample(run: Run) -> None:
    found = run("worldcup98", SAMPLE, "--json").document
    assert (found["requests"], found["unknown_sizes"], found["first_time"], found["last_time"]) == (
        10_000,
        723,
        897861223,
        897861265,
    )
    assert list(found["servers"]) == [str(number) for number in (*range(6), *range(33, 43), *range(64, 74), 98, 99, 101)]
    assert sum(found["servers"].values()) == 10_000
    assert run("worldcup98", SAMPLE.parent, "--json").document == found


def test_a_log_in_words(run: Run, log: Path) -> None:
    out = run("worldcup98", log).out
    assert "1998-06-30 12:00:00 UTC" in out
    assert "2: 1, 3: 1, 12: 1, 35: 1" in out


def test_an_empty_log_has_no_times(run: Run, tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"")
    found = run("worldcup98", tmp_path / "log", "--json").document
    assert (found["requests"], found["first_time"], found["servers"]) == (0, None, {})
    assert "first time" in run("worldcup98", tmp_path / "log").out


def test_files_of_every_kind(run: Run, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("word,n\na,1\nb,2\n")
    (tmp_path / "b.csv").write_text("word,n\nc,x\nd,4,5\ne,6\n")
    (tmp_path / "a.jsonl").write_text('{"word": "a", "n": 1}\n{\n')
    pq.write_table(pa.table({"word": ["a"], "n": [1]}), tmp_path / "a.parquet")
    found = run("csv", tmp_path, "--json").document
    assert found == {
        "files": 2,
        "rows": 3,
        "columns": {"word": "string", "n": "int64"},
        "refused": 2,
        "refusals": [
            {"file": "b.csv", "line": 2, "reason": "column 'n': 'x' is not int64"},
            {"file": "b.csv", "line": 3, "reason": "3 values for 2 columns"},
        ],
    }
    assert "b.csv: line 3: 3 values" in " ".join(run("csv", tmp_path / "b.csv").out.replace("│", " ").split())
    assert [run(kind, tmp_path, "--json").document["rows"] for kind in ("jsonl", "parquet")] == [1, 1]
    assert run("jsonl", tmp_path / "a.jsonl", "--json").document["refused"] == 1
    assert not (tmp_path / ".ppa").exists(), "to look at files leaves nothing behind"


def test_a_line_that_disagrees_with_those_before_is_refused_and_not_the_file(run: Run, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"n": 1}\n{"n": 2}\n{"n": "x"}\n{"n": 4}\n')
    (tmp_path / "a.csv").write_bytes(b"n,at,day,\xc3\xa9\n1,2020-01-01T10:00:00Z,2020-01-01,\n2,,,\n3,\xff,2020-01-02,\n")
    found = run("jsonl", tmp_path, "--json").document
    assert (found["rows"], found["columns"], found["refused"]) == (3, {"n": "int64"}, 1)
    found = run("csv", tmp_path, "--json").document
    assert (found["rows"], found["refused"]) == (2, 1)
    assert found["columns"] == {"n": "int64", "at": "string", "day": "date32[day]", "é": "string"}


def test_many_refused_rows_are_counted_and_some_are_shown(run: Run, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("n\n" + "1\n" * 10_000 + "x\n" * 300)
    found = run("csv", tmp_path, "--json").document
    assert (found["rows"], found["refused"], len(found["refusals"])) == (10_000, 300, 20)


@pytest.fixture(scope="module")
def embedded() -> Iterator[EmbeddedNodes]:
    with launch(1, 1, 1, 64, EVERYTHING) as started:
        yield started


def test_a_stream(run: Run, embedded: EmbeddedNodes) -> None:
    node = embedded.cluster["n1"]
    with Redis.from_url(node.url) as client:
        ids = [client.xadd("in", {"word": "a", "n": "1"}).decode(), client.xadd("in", {"word": "[red]"}).decode()]
        client.set("text", "x")
    expected = {"entries": 2, "first_id": ids[0], "last_id": ids[1], "fields": {"word": 2, "n": 1}, "sampled": 2}
    assert run("redis-stream", f"{node.url}#in", "--json").document == expected
    assert run("redis-stream", node.url, "in", "--json").document == expected
    assert node.password
    assert node.password not in run("redis-stream", f"{node.url}#in").out
    for key, reason in (("text", "the key holds a string"), ("nothing", "no such key")):
        result = run("redis-stream", node.url, key)
        assert (result.code, reason in result.err, node.password in result.err) == (2, True, False)


@pytest.mark.parametrize(
    ("argv", "reason"),
    [
        (("worldcup98", "nothing"), "error: nothing: cannot be read: No such file or directory"),
        (("worldcup98", "."), "no file named wc_day*"),
        (("worldcup98", "cut"), "error: cut: byte 20: truncated: 7 bytes"),
        (("worldcup98", "text"), "error: text: byte 0: time 1635149385 (2021-10-25"),
        (("worldcup98", "a\0b"), "not a valid file name"),
        (("csv", "nothing"), "error: nothing: cannot be read"),
        (("csv", "a\0b"), "not a valid file name"),
        (("parquet", "text"), "is this parquet?"),
        (("jsonl", "."), "no file named *.jsonl"),
        (("csv", "text", "more"), "only redis-stream takes a KEY"),
        (("redis-stream", "redis://:hunter2@localhost"), "no key"),
        (("redis-stream", "localhost", "key"), "must begin with"),
        (("xml", "text"), "invalid choice"),
        (("csv",), "required: PATH"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, argv: tuple[str, ...], reason: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cut").write_bytes(struct.pack(">IIIIBBBB", NOON, 1, 2, 3, 0, 66, 1, 0) + b"\0" * 7)
    (tmp_path / "text").write_bytes(b"avfI" * 5)
    result = run(*argv)
    warned = any("hunter2" in word for word in argv)  # of the password on the command line
    assert (result.code, result.out, result.err.count("\n")) == (2, "", 1 + warned)
    assert reason in result.err
    assert "hunter2" not in result.err


def test_a_server_that_is_away_is_no_bad_input(run: Run) -> None:
    result = run("redis-stream", "redis://:hunter2@127.0.0.1:1#in")
    assert (result.code, result.err.count("\n")) == (1, 2)
    assert result.err.startswith("warning: the URL contains a password, which every user of this machine can see")
    assert "is the server running" in result.err
    assert "hunter2" not in result.err
