"""The World Cup log: the real sample against code of its own, damaged files, and the log and its likeness as sources."""

from __future__ import annotations

import gzip
import itertools
import pickle
import struct
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ppa_core.errors import BadInput
from ppa_core.pipeline.sources.day66 import DAY_START, LOADS, REQUESTS, Day66
from ppa_core.pipeline.sources.log_summary import summarise
from ppa_core.pipeline.sources.worldcup98 import RECORD, SCHEMA, SERVERS, WorldCup98, open_log, to_table
from ppa_core.pipeline.tables import digest, encode
from tests.support.worldcup98 import from_table

ROOT = Path(__file__).parents[3]
SAMPLE = ROOT.parent / "shared" / "data" / "worldcup98" / "wc_day50_4.head"
NOON = 899_208_000
needs_sample = pytest.mark.skipif(
    not SAMPLE.exists(), reason=f"the real log is not here: {SAMPLE.name} in {SAMPLE.parent.name}"
)

Request = tuple[int, int, int, int, int, int, int, int]


def unpack(content: bytes) -> list[Request]:
    """The log by other means than the project's."""
    return list(struct.iter_unpack(">IIIIBBBB", content))


def pack(requests: list[Request]) -> bytes:
    return b"".join(struct.pack(">IIIIBBBB", *request) for request in requests)


def request(when: int, server: int = 0, size: int = 100) -> Request:
    return (when, 1, 2, size, 0, 66, 1, server)


def rows(table: pa.Table) -> list[Request]:
    return unpack(from_table(table))


requests = st.lists(
    st.tuples(
        st.integers(NOON, NOON + 50), st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1),
        st.integers(0, 8), st.integers(0, 255), st.integers(0, 12), st.integers(0, 255),
    ),
    min_size=1, max_size=60,
)  # fmt: skip


# --- the format


@needs_sample
def test_the_real_sample_is_what_independent_code_finds_in_it() -> None:
    expected = unpack(SAMPLE.read_bytes())
    found = summarise([SAMPLE])
    assert found.requests == len(expected) == 10_000
    sizes = [r[3] for r in expected]
    assert (found.bytes, found.unknown_sizes) == (sum(s for s in sizes if s != 2**32 - 1), sizes.count(2**32 - 1))
    assert (found.first_time, found.last_time) == (min(r[0] for r in expected), max(r[0] for r in expected))
    assert (found.objects, found.clients) == (len({r[2] for r in expected}), len({r[1] for r in expected}))
    assert found.servers == dict(sorted(Counter(r[7] for r in expected).items()))
    assert len(found.servers) == 29
    assert found.out_of_order == sum(b[0] < a[0] for a, b in itertools.pairwise(expected))
    assert {r[7] for r in expected} == set(SERVERS)


@needs_sample
def test_the_real_sample_as_a_source_has_every_request_once() -> None:
    expected = unpack(SAMPLE.read_bytes())
    source = open_log(SAMPLE, tasks=29, batch_seconds=1.0, speedup=10)
    tables = {(t, b): source.read(t, b) for t in range(29) for b in range(source.batches + 1)}
    assert sorted(r for table in tables.values() for r in rows(table)) == sorted(expected)
    for task, server in enumerate(SERVERS):
        assert [r for b in range(source.batches) for r in rows(tables[task, b])] == [r for r in expected if r[7] == server]
    assert sum(source.rate(t) for t in range(29)) == pytest.approx(10_000 / 43 * 10)
    assert tables[0, 0]["size"].null_count == sum(r[3] == 2**32 - 1 for r in rows(tables[0, 0]))


@settings(max_examples=25, deadline=None)
@given(requests, st.sampled_from([1, 3, 29]), st.sampled_from([2.5, 10.0, 17.3]))
def test_every_request_is_in_one_task_and_batch_however_disordered(
    tmp_path_factory: pytest.TempPathFactory, found: list[Request], tasks: int, speedup: float
) -> None:
    path = tmp_path_factory.mktemp("log") / "wc_day1_1"
    path.write_bytes(pack(found))
    source = open_log(path, tasks, 1.0, speedup)
    read = {(t, b): rows(source.read(t, b)) for t in range(tasks) for b in range(source.batches)}
    assert sorted(r for part in read.values() for r in part) == sorted(found)
    for (_, batch), part in read.items():
        assert all(batch * speedup <= r[0] - source.start < (batch + 1) * speedup for r in part)
    for server in {r[7] for r in found}:
        assert len({t for (t, _), part in read.items() if any(r[7] == server for r in part)}) == 1


@settings(max_examples=50, deadline=None)
@given(requests)
def test_bytes_become_a_table_and_bytes_again(found: list[Request]) -> None:
    table = to_table(np.frombuffer(pack(found), RECORD))
    assert table.schema == SCHEMA
    assert from_table(table) == pack(found)
    assert table["size"].null_count == sum(r[3] == 2**32 - 1 for r in found)


def test_files_of_a_directory_are_read_by_day_and_part_also_packed(tmp_path: Path) -> None:
    (tmp_path / "wc_day2_10").write_bytes(pack([request(NOON + 2)]))
    (tmp_path / "wc_day2_9.gz").write_bytes(gzip.compress(pack([request(NOON), request(NOON + 1)])))
    (tmp_path / "README.md").write_text("not a log")
    assert summarise([tmp_path]).out_of_order == 0
    assert summarise([tmp_path / "wc_day2_10", tmp_path / "wc_day2_9.gz"]).out_of_order == 1
    assert open_log(tmp_path, 1, 1, 10).read(0, 0)["timestamp"].to_pylist() == [NOON, NOON + 1, NOON + 2]


def test_a_log_larger_than_a_block_and_out_of_order_is_read_whole(tmp_path: Path) -> None:
    times = NOON + np.random.default_rng(1).permutation(
        np.arange(100_000) // 100 + np.random.default_rng(2).integers(0, 30, 100_000)
    )
    path = tmp_path / "log"
    path.write_bytes(pack([request(int(when), i % 5) for i, when in enumerate(times)]))
    source = open_log(path, 5, 100)
    assert sum(source.read(t, b).num_rows for t in range(5) for b in range(source.batches)) == 100_000
    assert [source.read(2, b).num_rows for b in (3, 5)] == [
        int(((times[2::5] - source.start) // 100 == b).sum()) for b in (3, 5)
    ]


# --- what is refused


@pytest.mark.parametrize("rest", range(1, 20))
def test_a_truncated_file_is_refused_with_the_byte(tmp_path: Path, rest: int) -> None:
    path = tmp_path / "wc_day1_1"
    path.write_bytes(pack([request(NOON)] * 3)[: 40 + rest])
    with pytest.raises(BadInput, match=rf"wc_day1_1: byte 40: truncated: {rest} bytes"):
        open_log(path, 1)


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ((0, 1, 2, 3, 0, 66, 1, 0), r"time 0 \(1970"),
        ((NOON + 10**8, 1, 2, 3, 0, 66, 1, 0), "outside the lifetime of the site"),
        ((2**32 - 1, 1, 2, 3, 0, 66, 1, 0), "outside the lifetime of the site"),
        ((NOON, 1, 2, 3, 99, 66, 1, 0), "method 99"),
        ((NOON, 1, 2, 3, 0, 66, 200, 0), "type 200"),
    ],
)
def test_a_corrupt_record_is_refused_with_the_byte(tmp_path: Path, wrong: Request, reason: str) -> None:
    path = tmp_path / "log"
    path.write_bytes(pack([request(NOON), request(NOON + 1), wrong, request(NOON + 1), wrong]))
    with pytest.raises(BadInput, match=rf"log: byte 40: .*{reason}"):
        summarise([path])


def test_a_lost_byte_is_noticed(tmp_path: Path) -> None:
    whole = Day66(tasks=1).read(0, 0)
    content = from_table(whole)
    path = tmp_path / "log"
    path.write_bytes(content[:1001] + content[1002:] + b"\0")
    with pytest.raises(BadInput, match=r"log: byte 10[02]0: "):
        summarise([path])


@pytest.mark.parametrize("cut", [12, 40, -1])
def test_a_damaged_gzip_is_refused(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "wc_day1_1.gz"
    path.write_bytes(gzip.compress(from_table(Day66(tasks=1, share=0.01).read(0, 0)))[:cut])
    with pytest.raises(BadInput, match="damaged or truncated"):
        summarise([path])


def test_what_is_no_log_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").write_bytes(b"")
    for path, reason in {
        "nothing": "No such file",
        ".": "no file named wc_day",
        "empty": "no request",
        "a\0b": "not a valid file name",
    }.items():
        with pytest.raises(BadInput, match=reason):
            open_log(tmp_path / path, 1)
    with pytest.raises(BadInput, match="at least one task"):
        open_log(tmp_path, 0)


def test_a_log_that_changes_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(pack([request(NOON), request(NOON), request(NOON + 5)]))
    source = open_log(path, 1)
    assert source.read(0, 0).num_rows == 2
    path.write_bytes(pack([request(NOON)] * 4))
    with pytest.raises(BadInput, match="3 records when the source was opened and has 4 now"):
        source.read(0, 5)


# --- the likeness of day 66


def test_day_66_has_the_days_requests_and_the_servers_loads() -> None:
    assert sum(REQUESTS) == 73_291_868
    source = Day66()
    assert sum(source.rate(task) for task in range(29)) == pytest.approx(73_291_868 / 86_400 * 48)
    slow = Day66(batch_seconds=1800, speedup=1, share=0.01)
    halves = [sum(slow.read(task, half).num_rows for task in range(29)) for half in (0, 13, 47, 48)]
    assert halves == pytest.approx([REQUESTS[i] * 0.01 for i in (0, 13, 47, 0)], abs=29)
    by_server = np.array([slow.read(task, 36).num_rows for task in range(29)])
    assert by_server == pytest.approx(np.array(LOADS) / sum(LOADS) * REQUESTS[36] * 0.01, abs=1)


def test_day_66_looks_like_the_log(tmp_path: Path) -> None:
    source = Day66(tasks=1)
    table = source.read(0, 1000)
    assert table.schema == SCHEMA
    times = table["timestamp"].to_numpy()
    assert (np.diff(times) >= 0).all()
    assert (times[0], times[-1]) == (DAY_START + 48_000, DAY_START + 48_047)
    counts = np.sort(np.bincount(table["object"].to_numpy()))[::-1] / table.num_rows
    assert 0.008 < counts[0] < 0.016
    assert 0.3 < counts[:50].sum() < 0.5
    assert set(table["server"].to_pylist()) == set(SERVERS)
    assert 0.05 < table["size"].null_count / table.num_rows < 0.09
    path = tmp_path / "made"
    path.write_bytes(from_table(table))
    assert summarise([path]).requests == table.num_rows


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 40), st.integers(0, 3000))
def test_day_66_has_the_same_requests_however_many_tasks(tasks: int, batch: int) -> None:
    spread, one = Day66(tasks, share=0.01), Day66(1, share=0.01)
    found = Counter(server for task in range(tasks) for server in spread.read(task, batch)["server"].to_pylist())
    assert found == Counter(one.read(0, batch)["server"].to_pylist())


def test_day_66_is_fast() -> None:
    source = Day66(tasks=1)
    source.read(0, 0)
    batch = next(b for b in range(2000) if source._until(28, (b + 1) * 48.0) - source._until(28, b * 48.0) > 2850)
    best = min(_timed(source, batch) for _ in range(5))
    assert source.read(0, batch).num_rows > 40_000
    assert best < 0.05


def _timed(source: Day66, batch: int) -> float:
    began = time.perf_counter()
    source.read(0, batch)
    return time.perf_counter() - began


# --- replay


def test_a_fresh_process_reads_the_same(tmp_path: Path) -> None:
    path = tmp_path / "wc_day66_1"
    path.write_bytes(from_table(Day66(tasks=1, share=0.02).read(0, 900)))
    sources: list[Day66 | WorldCup98] = [Day66(seed=3), Day66(4, share=0.1), open_log(path, 4, 1, 5)]
    digests = [digest(encode(source.read(task, batch))) for source in sources for task in (0, 3) for batch in (0, 2, 70)]
    code = (
        "import pickle, sys; from ppa_core.pipeline.tables import digest, encode\n"
        "sources = pickle.load(sys.stdin.buffer)\n"
        "print(*[digest(encode(s.read(t, b))) for s in sources for t in (0, 3) for b in (0, 2, 70)])"
    )
    run = subprocess.run([sys.executable, "-c", code], input=pickle.dumps(sources), capture_output=True, check=True, cwd=ROOT)
    assert run.stdout.decode().split() == digests
    assert len(set(digests)) > 12
