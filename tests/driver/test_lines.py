"""What the driver says of itself goes through the pipe as JSON, and is the same at the other end."""

from __future__ import annotations

from monitoring.collector import Collector
from monitoring.recorded import RecordedRun
from ppa_core.driver.main import reported
from ppa_core.engine.event_codec import decode, encode
from ppa_core.engine.run_events import RatesMeasured, StandingChanged
from ppa_core.engine.standing import MeasuredRates
from tests.engine.test_machine import running


def test_standing_and_rates_are_the_same_at_the_other_end_of_the_pipe() -> None:
    world = running(7)
    rates = MeasuredRates(7, {"S.1>A.1": 12.5, "A.1>B.1": 0.0})
    standing = world.machine.standing()
    for event, known in ((StandingChanged(3.0, 7, standing), standing), (RatesMeasured(3.0, 7, rates), rates)):
        assert reported(event, detailed=True) == event
        assert reported(event, detailed=False) is None
        assert Collector(RecordedRun().info).handle(decode(encode(event))) == [known]


def test_rates_differ_only_by_more_than_noise() -> None:
    rates = MeasuredRates(3, {"a>b": 100.0, "a>c": 10.0})
    assert rates.differs(None)
    assert rates.differs(MeasuredRates(3, {"a>b": 100.0}))
    assert not MeasuredRates(9, {"a>b": 102.0, "a>c": 9.0}).differs(rates)
    assert MeasuredRates(9, {"a>b": 102.0, "a>c": 14.0}).differs(rates)
