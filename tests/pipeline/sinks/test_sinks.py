"""Sinks: what was written is read back, after crashes too, once, in the order of batches, and the last revision counts."""

from __future__ import annotations

import datetime as dt
import io
import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from redis import Redis

from ppa_core.errors import BadInput, Unavailable
from ppa_core.nodes.embedded import EmbeddedNodes, launch
from ppa_core.pipeline.sinks import Mode, SinkRecord, open_sink, read_sink
from ppa_core.pipeline.sinks.console import Console
from ppa_core.pipeline.sinks.lines import JsonLines
from ppa_core.pipeline.sinks.records import document, from_document
from tests.support.stored import EVERYTHING

Names = Callable[[str], str]


def record(batch: int, revision: int = 0, status: str = "accurate", rows: int = 3) -> SinkRecord:
    missing = ("O1.1", "O2.3") if status == "tentative" else ()
    table = pa.table({"word": [f"{batch}-{revision}-{i}" for i in range(rows)], "n": pa.array(range(rows), pa.int64())})
    return SinkRecord(batch, revision, status, 0.75 if missing else 1.0, missing, table, 1000.5 + batch)


@pytest.fixture(scope="module")
def embedded() -> Iterator[EmbeddedNodes]:
    with launch(1, 1, 1, 64, EVERYTHING) as started:
        yield started


@pytest.fixture(params=["jsonl", "parquet", "redis"])
def name(request: pytest.FixtureRequest, tmp_path: Path, embedded: EmbeddedNodes) -> str:
    """A sink of each kind, empty."""
    if request.param != "redis":
        return f"{request.param}:{tmp_path / 'out'}"
    url = embedded.cluster["n1"].url
    with Redis.from_url(url) as client:
        client.flushall()
    return f"{url}#out"


def write(name: str, *records: SinkRecord) -> None:
    sink = open_sink(name)
    for each in records:
        sink(each)
    sink.close()


def latest(name: str) -> list[SinkRecord]:
    return list(read_sink(name))


# --- every kind


def test_what_was_written_is_read_back_with_status_of_and_missing_tasks(name: str) -> None:
    written = [record(0), record(1, 0, "tentative"), record(2, rows=0)]
    write(name, *written)
    assert latest(name) == written
    assert [found.at for found in latest(name)] == [1000.5, 1001.5, 1002.5]


def test_modes_of_reading(name: str) -> None:
    tentative = [record(batch, 0, "tentative") for batch in (1, 2, 3)]
    correction = record(2, 1, "correction")
    write(name, record(0), *tentative, correction, record(4))
    assert latest(name) == [record(0), tentative[0], correction, tentative[2], record(4)]
    assert list(read_sink(name, "accurate")) == [record(0), correction, record(4)]
    write(name, record(1, 1, "correction"))
    assert [found.batch for found in read_sink(name, Mode.ACCURATE)] == [0, 1, 2, 4]


def test_the_same_record_again_after_a_restart_is_read_once_and_the_last_counts(name: str) -> None:
    write(name, record(0), record(1, 0, "tentative"))
    write(name, record(1, 0, "tentative"), record(1, 0, "accurate"), record(0))
    assert latest(name) == [record(0), record(1)]
    assert list(read_sink(name, "accurate")) == [record(0), record(1)]


def test_a_lower_revision_never_replaces_a_higher_one(name: str) -> None:
    write(name, record(0, 0, "tentative"), record(0, 1, "correction"), record(0, 0, "tentative"))
    assert latest(name) == [record(0, 1, "correction")]


def test_types_that_json_does_not_have_are_read_back(name: str) -> None:
    table = pa.table(
        {
            "f": [1.5, float("inf"), None], "g": pa.array([0.1, -2.5, 0], pa.float32()), "b": [b"\x00\xff", b"", None],
            "t": pa.array([0, 1, None], pa.timestamp("s")), "u": pa.array([1, 2, 3], pa.timestamp("us", "UTC")),
            "d": [dt.date(1998, 6, 30), None, dt.date(2000, 1, 1)], "s": ["é\n\"", "", None], "l": [[1], [], None],
            "o": [True, None, False], "i": pa.array([1, 2, 2**63 - 1], pa.int64()), "k": pa.array([1, 2, 3], pa.uint8()),
        }
    )  # fmt: skip
    written = SinkRecord(0, 0, "accurate", 1.0, (), table, 1.0)
    write(name, written)
    (found,) = latest(name)
    assert found.table.schema == table.schema
    assert found == written


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.text(max_size=5),
            st.floats(allow_nan=False),
            st.integers(-(2**63), 2**63 - 1),
            st.binary(max_size=5),
        ),
        max_size=5,
    )
)
def test_a_record_is_the_same_after_json(rows: list[tuple[str, float, int, bytes]]) -> None:
    types = (pa.string(), pa.float64(), pa.int64(), pa.binary())
    columns = [pa.array([row[i] for row in rows], kind) for i, kind in enumerate(types)]
    written = SinkRecord(1, 2, "correction", 0.5, ("a",), pa.table(columns, names=list("abcd")), 3.25)
    assert from_document(json.loads(json.dumps(document(written), allow_nan=False))) == written


# --- crashes and bounds


def test_lines_are_read_after_a_crash_at_every_byte_of_the_last_record_and_written_on(tmp_path: Path) -> None:
    write(f"jsonl:{tmp_path / 'whole'}", record(0), record(1))
    content = (tmp_path / "whole" / "output-000000001.jsonl").read_bytes()
    first = content.index(b"\n") + 1
    for cut in range(first, len(content)):
        shutil.rmtree(tmp_path / "out", ignore_errors=True)
        (tmp_path / "out").mkdir()
        path = tmp_path / "out" / "output-000000001.jsonl"
        path.write_bytes(content[:cut])
        assert latest(f"jsonl:{tmp_path / 'out'}") == [record(0)]
        if cut % 16 == 0 or cut > len(content) - 3:
            write(f"jsonl:{tmp_path / 'out'}", record(1), record(2))
            assert latest(f"jsonl:{tmp_path / 'out'}") == [record(0), record(1), record(2)]
            assert [json.loads(line)["batch"] for line in path.read_text().splitlines()] == [0, 1, 2]


def test_a_torn_line_longer_than_what_is_read_at_once_is_dropped(tmp_path: Path) -> None:
    (tmp_path / "output-000000001.jsonl").write_bytes(b'{"batch": 0' + b"x" * 200_000)
    write(f"jsonl:{tmp_path}", record(0))
    assert (tmp_path / "output-000000001.jsonl").read_text().count("\n") == 1
    assert latest(f"jsonl:{tmp_path}") == [record(0)]


def test_after_a_write_that_failed_half_way_the_next_one_is_whole(tmp_path: Path) -> None:
    sink = JsonLines(tmp_path)
    sink(record(0))

    class Full:
        """A disk that takes ten bytes more."""

        def __init__(self, file: Any) -> None:
            self.file, self.left = file, 10

        def write(self, content: Any) -> int:
            if not self.left:
                raise OSError(28, "No space left on device")
            taken, self.left = int(self.file.write(content[: self.left])), 0
            return taken

        def __getattr__(self, name: str) -> Any:
            return getattr(self.file, name)

    disk, sink._file = sink._file, Full(sink._file)
    with pytest.raises(Unavailable, match="No space left"):
        sink(record(1))
    sink._file = disk
    sink(record(1))
    sink.close()
    sink.close()
    assert latest(f"jsonl:{tmp_path}") == [record(0), record(1)]


def test_files_of_lines_are_bounded_and_the_oldest_go(tmp_path: Path) -> None:
    size = len(json.dumps(document(record(10)))) + 1
    for batch in range(10, 20):  # every record by a writer of its own
        sink = open_sink(f"jsonl:{tmp_path}", max_bytes=2 * size + 5, keep=3)
        sink(record(batch))
        sink.close()
    files = sorted(path.name for path in tmp_path.iterdir())
    assert files == [f"output-{number:09}.jsonl" for number in (3, 4, 5)]
    assert all(path.stat().st_size <= 2 * size + 5 for path in tmp_path.iterdir())
    assert latest(f"jsonl:{tmp_path}") == [record(batch) for batch in range(14, 20)]


def test_parquet_files_are_there_wholly_or_not_at_all(tmp_path: Path) -> None:
    write(f"parquet:{tmp_path / 'whole'}", record(1))
    content = (tmp_path / "whole" / "batch-000000001-r0000.parquet").read_bytes()
    name = f"parquet:{tmp_path / 'out'}"
    write(name, record(0))
    torn = tmp_path / "out" / ".batch-000000001-r0000.parquet.unfinished"
    for cut in range(0, len(content), 64):
        torn.write_bytes(content[:cut])
        assert latest(name) == [record(0)]
    write(name, record(1))
    assert not torn.exists()
    assert latest(name) == [record(0), record(1)]
    torn.with_name("batch-000000002-r0000.parquet").write_bytes(content[:50])
    with pytest.raises(BadInput, match=r"batch-000000002-r0000.parquet: not a record of a sink"):
        list(read_sink(name))


def test_a_stream_keeps_the_last_entries(embedded: EmbeddedNodes) -> None:
    url = embedded.cluster["n1"].url
    with Redis.from_url(url) as client:
        client.flushall()
        sink = open_sink(f"{url}#out", max_entries=3)
        for batch in range(10):
            sink(record(batch))
        assert client.xlen("out") == 3
        assert latest(f"{url}#out") == [record(batch) for batch in (7, 8, 9)]
        client.xadd("out", {"other": "x"})
        with pytest.raises(BadInput, match="not a record of a sink"):
            latest(f"{url}#out")
        client.set("text", "x")
        with pytest.raises(BadInput, match="the key holds a string"):
            open_sink(f"{url}#text")


# --- the console, and the texts that name sinks


def test_the_console_shows_a_record_and_its_first_tuples() -> None:
    out = io.StringIO()
    sink = Console(most_rows=2, out=out)
    sink(record(7, 1, "tentative"))
    hostile = pa.table({"w": ["\x1b[2J"]})
    sink(SinkRecord(8, 0, "accurate", 1.0, (), hostile, 1.0))
    sink.close()
    lines = out.getvalue().splitlines()
    assert lines[0] == "batch 7 revision 1: tentative, OF 0.7500, missing O1.1, O2.3, 3 rows"
    assert lines[1:4] == ['  {"word": "7-1-0", "n": 0}', '  {"word": "7-1-1", "n": 1}', "  … 1 more"]
    assert "\x1b" not in out.getvalue()


def test_the_console_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    open_sink("console")(record(0))
    assert "batch 0 revision 0: accurate" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "write one of"),
        ("xml:out", "write one of"),
        ("jsonl:", "no directory"),
        ("redis://:hunter2@localhost", "no key"),
        ("redis://:hunter2@localhost:port#key", "not a URL"),
        ("http://:hunter2@localhost#key", "write one of"),
    ],
)
def test_a_text_that_names_no_sink_is_refused_without_being_repeated(text: str, reason: str) -> None:
    for use in (open_sink, read_sink):
        with pytest.raises(BadInput, match=reason) as caught:
            use(text)
        assert "hunter2" not in str(caught.value)


def test_other_refusals(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for text in ("jsonl", "parquet"):
        with pytest.raises(BadInput, match="cannot be written"):
            open_sink(f"{text}:{tmp_path / 'file'}")
        with pytest.raises(BadInput, match="cannot be read"):
            list(read_sink(f"{text}:{tmp_path / 'nothing'}"))
        with pytest.raises(BadInput, match="does not have"):
            open_sink(f"{text}:{tmp_path}", nothing=1)
    with pytest.raises(BadInput, match="choose one of latest, accurate"):
        read_sink(f"jsonl:{tmp_path}", "newest")
    with pytest.raises(BadInput, match="cannot be read back"):
        read_sink("console")
    with pytest.raises(BadInput, match="at least 1"):
        open_sink(f"jsonl:{tmp_path}", max_bytes=0)
    with pytest.raises(Unavailable, match="is the server running"):
        open_sink("redis://127.0.0.1:1#key")


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_a_damaged_record_is_named_with_the_remedy(kind: str, tmp_path: Path) -> None:
    sink = open_sink(f"{kind}:{tmp_path}")
    for batch in range(3):
        sink(record(batch))
    sink.close()
    path = sorted(tmp_path.iterdir())[0 if kind == "jsonl" else 1]
    content = bytearray(path.read_bytes())
    at = content.index(b'"rows"', content.index(b'"batch": 1')) + 9 if kind == "jsonl" else 30
    content[at : at + 8] = b"\xff" * 8
    path.write_bytes(content)
    with pytest.raises(BadInput, match="damaged") as caught:
        list(read_sink(f"{kind}:{tmp_path}"))
    assert ("line 2" if kind == "jsonl" else path.name) in caught.value.place


def test_a_redis_key_without_a_sinks_stream_is_refused(embedded: EmbeddedNodes) -> None:
    url = embedded.cluster["n1"].url
    with pytest.raises(BadInput, match="no such key"):
        list(read_sink(f"{url}#never"))


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_what_a_woken_driver_writes_does_not_count(kind: str, tmp_path: Path) -> None:
    """Driver 1 hangs, driver 2 takes over with batch 3, driver 1 wakes and writes what it had computed."""
    place = f"{kind}:{tmp_path / 'out'}"
    old = open_sink(place)
    old(record(0, 1))
    old(record(1, 1, "tentative"))
    old(record(2, 1))
    new = open_sink(place, epoch=2)
    new(replace(record(1, 2, "correction"), epoch=2))
    new(replace(record(3, 1), epoch=2))
    for stray in (record(3, 1, "tentative"), record(4, 1), record(3, 2, "correction")):
        old(stray)
    new(replace(record(5, 1), epoch=2))
    expected = {0: (1, "accurate"), 1: (2, "correction"), 2: (1, "accurate"), 3: (2, "accurate"), 5: (2, "accurate")}
    for mode in Mode:
        assert {one.batch: (one.epoch, one.status) for one in read_sink(place, mode)} == expected
    for sink in (old, new):
        sink.close()
