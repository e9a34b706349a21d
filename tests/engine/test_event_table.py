"""The page of events in the documentation is the one that the types give."""

from __future__ import annotations

from pathlib import Path

from ppa_core.engine.event_table import table

PAGE = Path(__file__).parents[2] / "docs" / "events.md"


def test_the_page_of_events_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == table(), "run: python -m ppa_core.engine.event_table > docs/events.md"
