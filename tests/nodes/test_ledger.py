"""The ledger in real nodes: the newest sound one counts, and a node that is full, gone or silent costs no other node's."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import count

import pytest

from ppa_core.errors import BadInput
from ppa_core.nodes import ledger
from ppa_core.nodes.embedded import EmbeddedNodes, launch
from ppa_core.nodes.store import NodeDown, NodeFull, Store
from tests.security.damage import Vandal

RUNS = count()


@pytest.fixture(scope="module")
def embedded() -> Iterator[EmbeddedNodes]:
    with launch(3, 0, 1, 16) as running:
        yield running


@pytest.fixture
def stores(embedded: EmbeddedNodes) -> Iterator[list[Store]]:
    run = f"ledger{next(RUNS)}"
    with ExitStack() as opened:
        yield [opened.enter_context(Store(node, run)) for node in embedded.cluster.nodes]


def damage(*stores: Store) -> None:
    for store in stores:
        with Vandal(store.node) as vandal:
            vandal.put(f"ppa:{store.run}:ledger", b"text", b"junk")


def fill(store: Store) -> None:
    for batch in range(100):
        store.write("A.1", batch, 1, {"x": str(batch)}, {str(batch): bytes(500_000)}, b"")


def save(stores: Sequence[Store], number: int, text: str) -> list[NodeDown]:
    with ThreadPoolExecutor(4) as threads:
        errors = threads.map(lambda store: ledger.write(store, number, text), stores)
        return [error for error in errors if isinstance(error, NodeDown)]


def test_a_run_that_never_was_has_no_ledger(stores: list[Store]) -> None:
    assert ledger.newest(stores) is None
    assert ledger.newest([]) is None


def test_every_node_gets_it_and_each_alone_is_enough(stores: list[Store]) -> None:
    assert save(stores, 1, "first") == []
    assert save(stores, 2, "second, with ümläuts") == []
    for store in stores:
        assert ledger.newest([store]) == (2, "second, with ümläuts")


def test_of_several_the_highest_number_counts_wherever_it_is(stores: list[Store]) -> None:
    for numbers in (9, 10, 8), (10, 9, 8), (8, 9, 10):
        for store, number in zip(stores, numbers, strict=True):
            store.write_ledger(number, f"state {number}")
        assert ledger.newest(stores) == (10, "state 10")  # by value: as texts, 9 would come last


def test_a_damaged_one_costs_the_node_that_has_it_alone(stores: list[Store]) -> None:
    save(stores, 4, "older")
    save(stores[:2], 5, "newer")
    damage(stores[0])
    assert ledger.newest(stores) == (5, "newer")
    damage(stores[1])
    assert ledger.newest(stores) == (4, "older")


def test_if_all_are_damaged_the_run_is_refused_with_the_remedy(stores: list[Store]) -> None:
    save(stores, 4, "state")
    damage(*stores)
    where = ", ".join(store.node.name for store in stores)
    wanted = (
        f"nodes {where}: its ledger of run {stores[0].run!r} is damaged, and no node has an undamaged one; choose another name"
    )
    with pytest.raises(BadInput, match=re.escape(wanted)):
        ledger.newest(stores)
    save(stores[:1], 5, "written anew")
    assert ledger.newest(stores) == (5, "written anew")


def test_a_node_that_is_gone_is_named_and_the_others_have_it() -> None:
    with launch(3, 0, 1, 16) as embedded, ExitStack() as opened:
        stores = [opened.enter_context(Store(node, "run")) for node in embedded.cluster.nodes]
        save(stores, 1, "first")
        embedded.kill("n2")
        assert [error.node for error in save(stores, 2, "second")] == ["n2"]
        assert ledger.newest(stores) == (2, "second")
        damaged = [store for store in stores if store.node.name != "n2"]
        damage(*damaged)
        with pytest.raises(BadInput, match="nodes n1, n3: "):  # what n2 had, nobody knows
            ledger.newest(stores)
        embedded.restart("n2")
        assert ledger.newest([stores[1]]) is None  # it is back, empty


def test_a_node_that_hangs_is_named_and_the_others_have_it(embedded: EmbeddedNodes) -> None:
    run = f"ledger{next(RUNS)}"
    with ExitStack() as opened:
        stores = [opened.enter_context(Store(node, run, timeout=1.0)) for node in embedded.cluster.nodes]
        save(stores, 1, "first")
        os.kill(embedded.pids["n1"], signal.SIGSTOP)
        try:
            assert [error.node for error in save(stores[:2], 2, "second")] == ["n1"]
            assert ledger.newest(stores[:2]) == (2, "second")
        finally:
            os.kill(embedded.pids["n1"], signal.SIGCONT)


def test_a_full_node_keeps_the_one_it_had_and_is_not_taken_for_lost() -> None:
    with launch(2, 0, 1, 4) as embedded, ExitStack() as opened:
        full, other = (opened.enter_context(Store(node, "run")) for node in embedded.cluster.nodes)
        save([full, other], 1, "first")
        with pytest.raises(NodeFull):
            fill(full)
        assert save([full, other], 2, "x" * 1_000_000) == []
        assert ledger.newest([full]) == (1, "first")
        assert ledger.newest([full, other]) == (2, "x" * 1_000_000)
