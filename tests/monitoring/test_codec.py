"""Records and their bytes: what is written comes back, and nothing else is ever taken for a record."""

from __future__ import annotations

import json
import zlib
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from monitoring import keys, records
from monitoring.codec import MAX_BYTES, MAX_TEXT, Malformed, as_document, dumps, loads
from monitoring.records import Incident, Output, Progress, StoredEvent
from monitoring.task_records import StateChange, TaskColumns
from ppa_core.engine.event_codec import cut
from ppa_core.engine.run_events import FailedOver, NodeLost

KINDS = [*dict.fromkeys([*(series.record for series in keys.SERIES), *keys.NOW.values()]), records.PipelineInfo]

SAMPLES: list[Any] = [
    Output(17, 1763251200.5, 1, "accurate", 1.0),
    Output(18, 1763251201.5, 1, "tentative", 0.375, 12, ("O1.1", "<b>")),
    StoredEvent(NodeLost(1.0, 3, "n1", "refused", cause="19a")),
    StateChange(1.0, 2, "c", {"O1.1": "failed"}),
    Incident("1", 1.0, 2, tentative=((1, 2), (5, 9)), accuracy=0.5),
    Progress(1, 2.0, 3, 4.0, 5.0, (1, 2, 3), {"other": 9}),
]


@pytest.mark.parametrize("record", SAMPLES, ids=lambda record: type(record).__name__)
def test_a_record_comes_back_as_it_was(record: Any) -> None:
    assert loads(type(record), dumps(record)) == record


def test_defaults_at_the_end_are_left_out() -> None:
    assert json.loads(dumps(SAMPLES[0])) == [17, 1763251200.5, 1, "accurate", 1.0]


def test_large_values_are_compressed() -> None:
    event = FailedOver(1.0, 3, "n1", tuple(f"O1.{i}" for i in range(1000)), (), cause="c")
    assert len(dumps(event)) < 4000
    assert loads(StoredEvent, dumps(event)) == StoredEvent(event)


def test_documents_have_names() -> None:
    event = {
        "kind": "node lost",
        "at": 1.0,
        "batch": 3,
        "node": "n1",
        "reason": "refused",
        "rack": "",
        "suspected": False,
        "cause": "19a",
        "id": "5-0",
    }
    assert as_document(replace(SAMPLES[2], id="5-0")) == event
    assert as_document(SAMPLES[3]) == {"at": 1.0, "batch": 2, "cause": "c", "states": {"O1.1": "failed"}}


@pytest.mark.parametrize(
    "content",
    [
        b"", b"null", b"{}", b"[]", b"[1]", b'["1",2,3,"accurate",1]', b'[1,2,3,"wrong",1]', b"[1,2,3", b"\xff\xfe", b"z",
        b"zzz",
        b'[1,NaN,1,"accurate",1]', b'[1,1e999,1,"accurate",1]', b'[1,2,1,"accurate",Infinity]', b'[true,2,1,"accurate",1]',
        b'[1.5,2,1,"accurate",1]', b'[1,2,1,"accurate",1,0,"text"]', b'[1,2,1,"accurate",1,0,[7]]', b"[" * 100_000,
        b'[1,2,1,"accurate",1,0,["\\ud800"]]', b'[1,2,1,"accurate",1,0,["' + b"x" * (MAX_TEXT + 1) + b'"]]',
        b"[" + b"9" * 5000 + b',2,1,"accurate",1]', b'[1,2,1,"accurate",1,0,[],"more"]',
        b"z" + zlib.compress(b"[" + b" " * (MAX_BYTES + 10) + b"]"), b" " * (MAX_BYTES + 1), b"\x80\x04K\x01.",
    ],
)  # fmt: skip
def test_what_is_no_record_is_malformed(content: bytes) -> None:
    with pytest.raises(Malformed):
        loads(Output, content)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@settings(max_examples=20, deadline=None)
@given(content=st.binary(max_size=200))
def test_no_bytes_raise_anything_but_malformed(kind: Any, content: bytes) -> None:
    for tried in (content, b"z" + zlib.compress(content)):
        try:
            loads(kind, tried)
        except Malformed:
            continue


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=12,
)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@settings(max_examples=20, deadline=None)
@given(value=st.lists(json_values, max_size=16))
def test_no_json_raises_anything_but_malformed(kind: Any, value: Any) -> None:
    try:
        found = loads(kind, json.dumps(value).encode())
    except Malformed:
        return
    assert loads(kind, dumps(found)) == found


def test_columns_must_fit_together() -> None:
    good = TaskColumns(1, 2.0, (0, 5), (1.0, 2), (1, 2), (0, 0), (1, 1), (0, 0), (0, 0), (-1, -1), (1, 1))
    assert loads(TaskColumns, dumps(good)) == good
    row = json.loads(dumps(good))
    for bad in ([*row[:2], [0, 6], *row[3:]], [*row[:2], [0], *row[3:]], [*row[:3], [1, "2"], *row[4:]]):
        with pytest.raises(Malformed):
            loads(TaskColumns, json.dumps(bad).encode())


def test_texts_are_cut_to_what_can_be_kept() -> None:
    assert len(cut("x" * 10_000)) == MAX_TEXT
    assert cut("\ud800") == "\\ud800"
