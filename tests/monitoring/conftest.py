"""One real monitor for a module's tests; each test has pipelines of its own in it. Tests have a user who may do anything."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from monitoring import acl
from monitoring.connection import Address, Connection
from monitoring.reader import MonitorReader
from monitoring.records import NodeInfo, PipelineInfo, RunKey
from monitoring.server import MonitorServer, start
from ppa_core.queries.tree import tree
from ppa_core.topology import to_dict
from tests.monitoring.tester import RULES, TESTER, as_tester

_NUMBERS = count()


@pytest.fixture(scope="module", autouse=True)
def powers() -> Iterator[None]:
    acl.RULES[TESTER] = RULES
    yield
    del acl.RULES[TESTER]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MonitorServer]:
    with start(tmp_path_factory.mktemp("monitor") / "m") as started:
        yield started


@pytest.fixture
def address(server: MonitorServer) -> Address:
    return server.address


@pytest.fixture
def connection(address: Address) -> Iterator[Connection]:
    opened = as_tester(address)
    yield opened
    opened.close()


@pytest.fixture
def reader(address: Address) -> Iterator[MonitorReader]:
    opened = MonitorReader(address)
    yield opened
    opened.close()


@pytest.fixture
def info() -> PipelineInfo:
    topology = tree(tasks=(4, 2, 1)).topology()
    nodes = (NodeInfo("n1", "r1", "primary"), NodeInfo("n2", "r2", "primary"), NodeInfo("s1", "s1", "standby"))
    return PipelineInfo(
        "tree", f"run{next(_NUMBERS)}", "tree", to_dict(topology), nodes, 1000.0, 1.0, "greedy", "of", 1, ("O2.1",)
    )


@pytest.fixture
def pipeline(info: PipelineInfo) -> RunKey:
    return info.pipeline


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "monitor"
