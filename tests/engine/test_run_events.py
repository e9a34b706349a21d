"""Events: one codec for all of them, held to its types and bounds."""

from __future__ import annotations

from typing import get_args

import pytest

from ppa_core.engine import run_events as e
from ppa_core.engine.event_codec import NotAnEvent, as_document, decode, encode, kind_of
from ppa_core.engine.event_fields import TaskFigures
from ppa_core.engine.standing import MeasuredRates, Standing

SOME: list[e.RunEvent] = [
    e.OutputPublished(1.5, 3, 2, "correction", 1.0, (), 10, "ab", cause="i1"),
    e.BatchFinished(1.5, 3, 0.5, 1, 10, 20, stats=TaskFigures(("O1.1",), (1,), (2,), (0.1,), (3,), (0,))),
    e.NodeLost(1.5, 3, "n1", "refused", "r1", cause="i1"),
    e.StandingChanged(1.5, 3, Standing(3, ("n1",), ("O1.1",), (0,), ((0,),), ((0, 3),), (-1,))),
    e.RatesMeasured(1.5, 3, MeasuredRates(3, {"O1.1>O2.1": 2.5})),
    e.DriverRestarted(1.5, 3, ("O1.1",), (2, 3), ("n1",), True, cause="i1"),
    e.CommandNumbers(1.5, 3, {"abcdefgh": (4, 1.5)}),
    e.Failed(1.5, -1, "reason", ("place", "reason")),
    e.Paused(1.5, 3),
]


@pytest.mark.parametrize("event", SOME, ids=kind_of)
def test_an_event_comes_back_as_it_was(event: e.RunEvent) -> None:
    assert decode(encode(event)) == event
    assert b"\n" not in encode(event)
    assert as_document(event)["kind"] == kind_of(event)


def test_every_event_has_a_word_and_a_sentence_of_its_own() -> None:
    kinds = get_args(e.RunEvent)
    assert len({kind.__struct_config__.tag for kind in kinds}) == len(kinds)
    assert all(kind.__doc__ and kind.__doc__.strip() for kind in kinds)


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"[]",
        b"[" * 100_000,
        b'{"kind":"unknown","at":1,"batch":1}',
        b'{"kind":"paused","at":1}',
        b'{"kind":"paused","at":"x","batch":1}',
        b'{"kind":"paused","at":NaN,"batch":1}',
        b'{"kind":"paused","at":1,"batch":1e99}',
        b'{"kind":"paused","at":1e300,"batch":1}',
        b'{"kind":"paused","at":1,"batch":99999999999999999999}',
        b'{"kind":"starting","at":1,"batch":1,"what":"\\ud800"}',
        b'{"kind":"starting","at":1,"batch":1,"what":"\xff"}',
        b'{"kind":"starting","at":1,"batch":1,"what":"' + b"x" * 3000 + b'"}',
        encode(SOME[3]).replace(b'"homes":[0]', b'"homes":[]'),
    ],
)
def test_what_is_no_event_is_refused(line: bytes) -> None:
    with pytest.raises(NotAnEvent):
        decode(line)


def test_the_types_are_frozen() -> None:
    with pytest.raises(AttributeError):
        SOME[0].at = 2.0  # type: ignore[misc]
