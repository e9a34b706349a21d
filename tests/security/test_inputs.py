"""Whoever feeds records tries to end the pipeline: with small files and entries that take much."""

from __future__ import annotations

import gzip
import json
import os
import pickle
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from redis import Redis

from ppa_core.cli import main
from ppa_core.driver.config import Config
from ppa_core.driver.records import Settings
from ppa_core.engine.run_events import BatchFinished, Ended, OutputPublished
from ppa_core.errors import BadInput
from ppa_core.nodes.embedded import launch
from ppa_core.pipeline.sinks import read_sink
from ppa_core.pipeline.sources import worldcup98
from ppa_core.pipeline.sources.files import Files, open_files
from ppa_core.pipeline.sources.formats import read_bytes
from ppa_core.pipeline.sources.limits import Limits
from ppa_core.pipeline.sources.redis_stream import RedisStream
from ppa_core.pipeline.sources.server import RedisServer
from ppa_core.process.driver import Driver
from tests.security.bombs import MEASURED, SCHEMA, dictionary_bomb, good, numbers, reasons, wide_csv
from tests.support.stored import EVERYTHING

ROOT = Path(__file__).parents[2]


def measured(source: Files, batches: int) -> dict[str, Any]:
    """What a driver and its reader find and take, in MiB."""
    told = pickle.dumps((source, batches))
    run = subprocess.run([sys.executable, "-c", MEASURED], input=told, capture_output=True, check=True, cwd=ROOT)
    found: dict[str, Any] = json.loads(run.stdout)
    return found


# --- small files that take much


def test_a_parquet_file_of_some_hundred_bytes_and_10_gb_is_passed_over_and_the_rest_is_read(tmp_path: Path) -> None:
    good(tmp_path / "a.parquet", range(5))
    dictionary_bomb(tmp_path / "b.parquet")
    good(tmp_path / "c.parquet", range(5, 9))
    source = open_files(tmp_path, "parquet", 2, SCHEMA)
    took = measured(source, 3)
    assert [n for batch in took["numbers"] for n in batch] == list(range(9)), (
        "the bomb is in the middle, and is not tried again"
    )
    assert took["own"] < 500
    assert took["reader"] < 1700, "memory_bytes and what the process has anyway"
    assert "memory_bytes" in (reasons(source, 0) | reasons(source, 1) | reasons(source, 2))["b.parquet"]
    assert source.refused_so_far() == 1
    good(tmp_path / "d.parquet", [9])
    source.seal(3)
    source.release(3)
    source.seal(4)
    assert (numbers(source, 3), numbers(source, 4)) == ([9], [])
    assert (tmp_path / "b.parquet").exists(), "what is not ours is not touched"
    assert "memory_bytes" in str((source.journal.note("consumed") or {})["b.parquet"])


def test_the_first_file_of_a_directory_may_be_a_bomb(tmp_path: Path) -> None:
    limits = Limits(columns=100)
    wide_csv(tmp_path / "a.csv", 101)
    with pytest.raises(BadInput, match=r"a\.csv: it has 101 columns, above the limit columns of 100"):
        open_files(tmp_path, "csv", 1, limits=limits)
    good(tmp_path / "b.csv", range(3))
    source = open_files(tmp_path, "csv", 1, limits=limits)
    assert source.schema == SCHEMA
    source.seal(0)
    assert numbers(source, 0) == [0, 1, 2]


def test_a_small_file_of_endless_rows_does_not_occupy_the_pipeline(tmp_path: Path) -> None:
    rows = 3_000_000
    pq.write_table(pa.table({"word": pa.nulls(rows, pa.string()), "n": np.zeros(rows, np.int64)}), tmp_path / "a.parquet")
    assert (tmp_path / "a.parquet").stat().st_size < 20_000
    good(tmp_path / "b.parquet", range(3))
    source = open_files(tmp_path, "parquet", 1, SCHEMA, max_rows=1000, limits=Limits(batch_bytes=8 << 20))
    source.seal(0)
    assert numbers(source, 0) == [0, 1, 2]
    assert "decompress to about" in reasons(source, 0)["a.parquet"]


def test_a_parquet_file_that_claims_rows_without_end_and_values_that_are_too_long(tmp_path: Path) -> None:
    content = bytearray(good(tmp_path / "a.parquet", range(3)).read_bytes())
    claims = bytes(content).replace(b"\x16\x06", b"\x16\x86\x80\x80\x80\x80\x80\x20")  # 3 rows in the footer, as 2^45
    footer = int.from_bytes(content[-8:-4], "little") + len(claims) - len(content)
    (tmp_path / "a.parquet").write_bytes(claims[:-8] + footer.to_bytes(4, "little") + b"PAR1")
    pq.write_table(pa.table({"word": ["x", "y" * 2000, None], "n": [1, 2, 3]}), tmp_path / "b.parquet")
    source = open_files(tmp_path, "parquet", 1, SCHEMA, limits=Limits(line_bytes=1000))
    source.seal(0)
    assert numbers(source, 0) == [1, 3]
    assert "a.parquet" in reasons(source, 0)
    assert reasons(source, 0)["b.parquet"] == "column 'word': a value of more than 1000 bytes, the limit line_bytes"
    source.seal(1)
    assert source.refused(1).count == 0


def test_a_csv_of_200_000_columns_is_passed_over_and_one_of_many_columns_is_read(tmp_path: Path) -> None:
    wide_csv(tmp_path / "a.csv")
    wide_csv(tmp_path / "b.csv", 5000)
    source = open_files(tmp_path, "csv", 1, SCHEMA, limits=Limits(line_bytes=4 << 20))
    source.seal(0)
    assert numbers(source, 0) == [1]
    assert reasons(source, 0) == {"a.csv": "it has 200000 columns, above the limit columns of 10000"}
    narrow = open_files(tmp_path, "csv", 1, SCHEMA, state=tmp_path / "state")
    narrow.seal(0)
    assert "its header line has more than 1 MiB" in reasons(narrow, 0)["a.csv"]


@pytest.mark.slow
def test_three_lines_of_60_mb_are_refused_in_bounded_memory_and_the_lines_around_them_are_read(tmp_path: Path) -> None:
    with (tmp_path / "a.csv").open("wb") as file:
        file.write(b"word,n\nw0,0\n")
        for number in (1, 2, 3):
            file.write(b"x" * (60 << 20) + b"\nw%d,%d\n" % (number, number))
    source = open_files(tmp_path, "csv", 1, SCHEMA)
    took = measured(source, 5)
    assert [n for batch in took["numbers"] for n in batch] == [0, 1, 2, 3]
    assert took["own"] < 500
    assert took["reader"] < 500
    told = [entry for batch in range(5) for entry in source.refused(batch).first]
    assert [entry.line for entry in told] == [3, 5, 7]
    assert {entry.reason for entry in told} == {"a line of more than 1 MiB, the limit line_bytes"}


def test_a_line_that_does_not_end_ends_the_file_and_not_the_pipeline(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("word,n\nw0,0\nw1,1\n")
    os.truncate(tmp_path / "a.csv", 1 << 40)  # zeros that are not on the disk
    good(tmp_path / "b.csv", [2])
    source = open_files(tmp_path, "csv", 1, SCHEMA, limits=Limits(file_bytes=1 << 50))
    for batch in (0, 1):
        source.seal(batch)
    assert (numbers(source, 0), numbers(source, 1)) == ([0, 1], [2])
    assert [entry.line for entry in source.refused(1).first] == [4]
    assert "a line of more than 64 MiB" in reasons(source, 1)["a.csv"]
    small = open_files(tmp_path, "csv", 1, SCHEMA, state=tmp_path / "state")
    small.seal(0)
    assert numbers(small, 0) == [2]
    assert reasons(small, 0)["a.csv"] == "it has 1024 GiB, above the limit file_bytes of 64 GiB"


def test_json_of_many_names_of_great_depth_or_of_long_numbers_is_refused(tmp_path: Path) -> None:
    lines = ["".join(f'"{line}x{i}": 1, ' for i in range(100)) for line in range(200)]
    (tmp_path / "a.jsonl").write_text("".join(f'{{{line}"n": 1}}\n' for line in lines))
    with pytest.raises(BadInput, match="more than 10000 different fields"):
        open_files(tmp_path, "jsonl", 1)
    deep, digits = "[" * 300_000 + "]" * 300_000, "9" * 900_000
    hostile = [f'{{"n": {deep}}}', f'{{"n": 2, "more": {deep}}}', f'{{"n": {digits}}}', '{"n": 1e999999999}', '{"n": 3}']
    rows, refusals = read_bytes("jsonl", "\n".join(hostile).encode(), SCHEMA)
    assert (rows, refusals.count) == (2, 3)


def test_lines_of_json_that_only_arrow_refuses_are_refused_quickly(tmp_path: Path) -> None:
    lines = ('{"word": "\\ud800", "n": 1}', '{"word": "a", "n": 1, "n": 2}', '{"word": "a", "n": 1, "q": 1e999}')
    content = "\n".join([*(line for line in lines for _ in range(20_000)), '{"word": "b", "n": 7}'])
    (tmp_path / "a.jsonl").write_text(content)
    source = open_files(tmp_path, "jsonl", 1, SCHEMA, limits=Limits(seconds=10))
    source.seal(0)
    assert (numbers(source, 0), source.refused(0).count) == ([7], 60_000)


def test_values_that_would_end_an_operator_are_refused(tmp_path: Path) -> None:
    """Text that is no text, and times that Python does not have: reading them is easy, using them is not."""
    schema = pa.schema({"word": pa.string(), "at": pa.timestamp("us")})
    times = pa.array([0, 1, 2**62, None], pa.int64()).cast(pa.timestamp("us"))
    words = pa.array([b"a", b"\xff", b"c", b"d"]).view(pa.string())
    pq.write_table(pa.table({"word": words, "at": times}), tmp_path / "a.parquet")
    lines = [
        b'{"word": "a", "at": "1970-01-01"}',
        b'{"word": "\xff", "at": null}',
        b'{"word": "c", "at": "0000-01-01"}',
        b'{"word": "d"}',
    ]
    (tmp_path / "a.jsonl").write_bytes(b"\n".join(lines))
    (tmp_path / "a.csv").write_bytes(b"word,at\na,1970-01-01\n\xff,1970-01-01\nc,0000-01-01\nd,\n")
    for kind, first in (("parquet", 1), ("jsonl", 1), ("csv", 2)):
        source = open_files(tmp_path, kind, 1, schema, state=tmp_path / f".{kind}")
        source.seal(0)
        assert [row["word"] for row in source.read(0, 0).to_pylist()] == ["a", "d"], kind
        assert [entry.line for entry in source.refused(0).first] == [first + 1, first + 2]


@pytest.mark.slow
def test_a_file_that_takes_long_is_given_up(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"word": 5, "n": "x"}\n' * 2_000_000)
    source = open_files(tmp_path, "jsonl", 1, SCHEMA, max_rows=10**7, limits=Limits(seconds=1, memory_bytes=8 << 30))
    source.seal(0)
    assert "more than 1 s of CPU time" in reasons(source, 0)["a.jsonl"]


@pytest.mark.parametrize("limits", [{"columns": 0}, {"line_bytes": "1"}, {"batch_bytes": 1000}, {"seconds": True}])
def test_limits_that_cannot_be_are_refused(limits: dict[str, Any]) -> None:
    with pytest.raises(BadInput, match=r"limit \w+: "):
        Limits(**limits)


# --- logs and streams


def test_a_compressed_log_that_unpacks_to_too_much_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worldcup98, "UNPACKED_BYTES", 50 << 20)
    (tmp_path / "wc_day1.gz").write_bytes(gzip.compress(bytes(60 << 20)))
    with pytest.raises(BadInput, match="decompresses to more than 50 MiB"):
        worldcup98.open_log(tmp_path, 1)


@pytest.mark.slow
def test_large_entries_of_a_stream_are_refused_and_those_around_them_are_read() -> None:
    with launch(1, 1, 1, 256, EVERYTHING) as started:
        url = started.cluster["n1"].url
        with Redis.from_url(url) as client:
            client.xadd("in", {"word": "a", "n": 1})
            client.xadd("in", {"word": "x" * (40 << 20), "n": 2})
            client.xadd("in", {"word": "x" * (2 << 20), "n": 3})
            client.xadd("in", {"word": "b", "n": 4, **{f"f{i}": "" for i in range(11_000)}})
            for number in range(5, 45):
                client.xadd("in", {"word": "y" * 900_000, "n": number})
        source = RedisStream(RedisServer(url), "in", SCHEMA, 1, limits=Limits(batch_bytes=20 << 20))
        found = []
        for batch in range(4):
            assert source.seal(batch)
            found.append(source.read(0, batch)["n"].to_pylist())
        assert [n for batch in found for n in batch] == [1, *range(5, 45)]
        assert max(map(len, found)) < 40, "a batch is bounded in bytes too"
        told = [entry.reason for batch in range(4) for entry in source.refused(batch).first]
        assert [reason.partition(",")[0] for reason in told] == ["an entry of more than 1 MiB"] * 2 + ["11002 fields"]
        assert main(["inspect", "redis-stream", f"{url}#in"]) == 0


# --- a running pipeline


@pytest.mark.drill
def test_bombs_dropped_into_a_running_pipeline_cost_nothing_but_themselves(tmp_path: Path) -> None:
    folder, batches = tmp_path / "in", 9
    folder.mkdir()
    good(folder / "00.parquet", range(10))
    settings = Settings(batches=batches, checkpoint_every=3, interval=0.5)
    told: list[str] = []
    with launch(2, 2, 2, 64) as nodes:
        cluster, sink = tuple(nodes.cluster.nodes), f"jsonl:{tmp_path / 'out'}"
        place = "tests.security.bombs:pipeline"
        config = Config(place, {"folder": str(folder)}, cluster, (), settings, "bombed", tmp_path / "run", sinks=(sink,))
        with Driver(config) as driver:
            for event in driver.events():
                told += event.refusals if isinstance(event, BatchFinished) else []
                if isinstance(event, OutputPublished) and (event.batch, event.revision) == (1, 1):
                    dictionary_bomb(folder / "01.parquet")
                    (folder / "02.parquet").symlink_to("/etc/passwd")
                    good(folder / "03.parquet", range(10))
                if isinstance(event, BatchFinished) and event.batch >= 2 and told:
                    break
            driver.kill()
        dictionary_bomb(folder / "04.parquet")
        good(folder / "05.parquet", range(10))
        with Driver(config) as driver:
            events = list(driver.events())
        assert isinstance(events[-1], Ended)
        told += [reason for event in events if isinstance(event, BatchFinished) for reason in event.refusals]
    counts: Counter[str] = Counter()
    for record in read_sink(sink, "accurate"):
        counts.update(dict(zip(record.table["word"].to_pylist(), record.table["count"].to_pylist(), strict=True)))
    assert counts == Counter({f"w{n}": 3 for n in range(10)})
    assert {reason.partition(":")[0] for reason in told} == {"01.parquet", "02.parquet", "04.parquet"}
