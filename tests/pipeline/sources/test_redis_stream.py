"""Redis streams as live sources, on a real server: seals, restarts, entries that are malformed or gone, and the password."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from redis import Redis

from ppa_core.errors import BadInput, Unavailable
from ppa_core.nodes.embedded import EmbeddedNodes, launch
from ppa_core.pipeline.sources import redis_stream
from ppa_core.pipeline.sources.live import Changed, LiveSource, NotSealed
from ppa_core.pipeline.sources.redis_stream import RedisStream
from ppa_core.pipeline.sources.server import RedisServer, split_key
from ppa_core.pipeline.tables import digest, encode
from ppa_core.placement.nodes import Node
from tests.support.stored import EVERYTHING

ROOT = Path(__file__).parents[3]
SCHEMA = pa.schema({"word": pa.string(), "n": pa.int64()})


@pytest.fixture(scope="module")
def embedded() -> Iterator[EmbeddedNodes]:
    with launch(1, 1, 1, 64, EVERYTHING) as started:
        yield started


@pytest.fixture
def node(embedded: EmbeddedNodes) -> Node:
    node = embedded.cluster["n1"]
    with Redis.from_url(node.url) as client:
        client.flushall()
    return node


@pytest.fixture
def client(node: Node) -> Iterator[Any]:
    with Redis.from_url(node.url) as opened:
        yield opened


def numbers(source: RedisStream, batch: int) -> list[list[int]]:
    return [source.read(task, batch)["n"].to_pylist() for task in range(source.tasks)]


def add(client: Any, key: str, *values: int) -> None:
    for value in values:
        client.xadd(key, {"word": f"w{value}", "n": value, "more": "ignored"})


def test_entries_are_dealt_and_later_ones_are_in_later_batches(node: Node, client: Any) -> None:
    source = RedisStream(RedisServer(node.url), "in", SCHEMA, 2)
    assert isinstance(source, LiveSource)
    assert source.seal(0)
    add(client, "in", 1, 2, 3)
    assert source.seal(1)
    add(client, "in", 4)
    assert source.seal(1)
    assert source.seal(2)
    assert [numbers(source, batch) for batch in range(3)] == [[[], []], [[1, 3], [2]], [[4], []]]
    assert source.read(0, 1).to_pylist()[0] == {"word": "w1", "n": 1}


def test_a_new_process_reads_and_seals_on(node: Node, client: Any) -> None:
    source = RedisStream(RedisServer(node.url), "in", SCHEMA, 2, partition_by="word", max_entries=3)
    add(client, "in", *range(5))
    source.seal(0)  # and the driver dies
    add(client, "in", 5)
    code = (
        "import json, pickle, sys; from ppa_core.pipeline.tables import digest, encode\n"
        "source = pickle.load(sys.stdin.buffer)\n"
        "for batch in range(3): source.seal(batch)\n"
        "print(json.dumps([digest(encode(source.read(t, b))) for b in range(3) for t in range(2)]))"
    )
    run = subprocess.run([sys.executable, "-c", code], input=pickle.dumps(source), capture_output=True, check=True, cwd=ROOT)
    add(client, "in", 6)
    assert json.loads(run.stdout) == [digest(encode(source.read(t, b))) for b in range(3) for t in range(2)]
    assert [sorted(n for part in numbers(source, batch) for n in part) for batch in range(3)] == [[0, 1, 2], [3, 4, 5], []]


def test_a_stream_for_each_task(node: Node, client: Any) -> None:
    source = RedisStream(RedisServer(node.url), "in", SCHEMA, 2, per_task=True, max_entries=2)
    add(client, "in:0", 1, 2, 3)
    add(client, "in:1", 10)
    source.seal(0)
    source.seal(1)
    assert [numbers(source, batch) for batch in (0, 1)] == [[[1, 2], [10]], [[3], []]]


def test_malformed_entries_are_refused_and_counted(node: Node, client: Any) -> None:
    add(client, "in", 1)
    bad = [
        {"word": "a"},
        {"word": "a", "n": "x"},
        {"word": b"\xff", "n": "1"},
        {"n": "2", "word": "\x80\x04N."},
        {"other": "1"},
    ]
    ids = [client.xadd("in", fields) for fields in bad]
    client.xadd("in", {"word": "", "n": " 7 "})
    client.xadd("in", {"word": "empty", "n": ""})
    source = RedisStream(RedisServer(node.url), "in", SCHEMA, 1)
    source.seal(0)
    assert source.read(0, 0)["n"].to_pylist() == [1, 2, 7, None]
    refused = source.refused(0)
    assert [entry.line for entry in refused.first] == [ids[i].decode() for i in (0, 1, 2, 4)]
    assert [entry.reason for entry in refused.first][:2] == ["missing field 'n'", "column 'n': 'x' is not int64"]
    source.seal(1)
    assert (refused.count, source.refused(1).count, source.refused_so_far()) == (4, 0, 4)


def test_seals_are_bounded_after_release_and_out_of_order_ones_are_refused(node: Node, client: Any) -> None:
    source = RedisStream(RedisServer(node.url), "in", SCHEMA, 1)
    with pytest.raises(NotSealed, match="no batch is sealed"):
        source.seal(3)
    for batch in range(10):
        add(client, "in", batch)
        source.seal(batch)
    source.release(8)
    assert sorted(client.hkeys("ppa:source:in:run")) == [b"8", b"9"]
    source.release(100)
    add(client, "in", 10)
    source.seal(10)
    assert numbers(source, 10) == [[10]]
    with pytest.raises(NotSealed, match="start a new run"):
        source.read(0, 3)
    with pytest.raises(NotSealed, match="not sealed"):
        source.read(0, 11)


def test_entries_that_are_gone_are_noticed(node: Node, client: Any) -> None:
    source = RedisStream(RedisServer(node.url), "in", SCHEMA, 1)
    add(client, "in", 1, 2, 3)
    source.seal(0)
    redis_stream._entries.cache_clear()
    client.xtrim("in", maxlen=2, approximate=False)
    with pytest.raises(Changed, match="3 entries were sealed, but only 2 are left"):
        source.read(0, 0)


def test_a_server_that_is_away_seals_nothing_for_now() -> None:
    with launch(1, 0, 1, 16, EVERYTHING) as started:
        url = started.cluster["n1"].url
        source = RedisStream(RedisServer(url), "in", SCHEMA, 1)
        assert source.seal(0)
        started.kill("n1")
        assert not source.seal(1)
        with pytest.raises(Unavailable, match="is the server running"):
            source.read(0, 0)
        started.restart("n1")
        with pytest.raises(NotSealed, match="the seals were lost"):
            source.seal(1)


def test_the_password_is_in_no_error_and_no_repr(node: Node) -> None:
    assert node.password
    wrong = node.url.replace(node.password, "hunter2")
    source = RedisStream(RedisServer(wrong), "in", SCHEMA, 1)
    with pytest.raises(Unavailable) as caught:
        source.seal(0)
    shown = f"{source!r} {caught.value} {''.join(traceback.format_exception(caught.value))} {RedisServer(node.url)!r}"
    assert "hunter2" not in shown
    assert node.password not in shown
    for url in ("http://:hunter2@host", "redis://:hunter2/x@host", "redis://:hunter2@", "redis://:hunter2@host:6379", "#key"):
        with pytest.raises(BadInput) as refused:
            split_key(url, None)
        assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize(
    "options",
    [
        {"tasks": 0},
        {"max_entries": 0},
        {"key": ""},
        {"partition_by": "x"},
        {"partition_by": "n", "per_task": True},
        {"server": "redis://x"},
    ],
)
def test_what_cannot_be_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(BadInput):
        RedisStream(**({"server": RedisServer("redis://localhost"), "key": "in", "schema": SCHEMA, "tasks": 1} | options))
