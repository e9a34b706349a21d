"""A host's nodes, and a host without Spark."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from ppa_core.nodes.embedded import launch
from tests.driver.parts import World


@pytest.fixture
def nodes() -> Iterator[Any]:
    with launch(2, 2, 2, 32) as running:
        yield running


@pytest.fixture
def world(nodes: Any) -> Iterator[World]:
    made = World(nodes)
    yield made
    made.close()
