"""The proxy that makes a node slow: answers come later by as much as it is told, and all of them come."""

from __future__ import annotations

import time
from pathlib import Path

from ppa_core.drills.delays import Delays
from ppa_core.nodes.embedded import launch
from ppa_core.nodes.store import Store
from tests.support.stored import output


def test_a_node_behind_the_proxy_answers_late_only_while_it_is_told_to(tmp_path: Path) -> None:
    with launch(2, 0, 1, 64) as nodes, Delays([nodes.cluster["n1"]], tmp_path) as delays:
        assert list(delays.nodes) == ["n1"]
        with Store(delays.nodes["n1"], "run") as store:
            store.mark()
            delays.set("n1", 0.3)
            began = time.monotonic()
            assert store.marked()
            assert time.monotonic() - began >= 0.3
            delays.set("n1", 0.0)
            large = bytes(5_000_000)
            store.write_output("A.1", 0, 1, large)
            assert output(store, "A.1", 0, 1) == large
