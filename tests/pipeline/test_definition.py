"""Pipelines: what is refused when they are defined, the topology they give, and where tuples go."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ppa_core.errors import BadInput
from ppa_core.pipeline.definition import Context, Pipeline, Result
from ppa_core.pipeline.streams import Stream, hash_column, route
from ppa_core.queries import load_query
from ppa_core.queries.tree import tree
from ppa_core.topology import Partitioning, load_example, to_dict


class Words:
    schema = pa.schema({"word": pa.string(), "n": pa.int32(), "share": pa.float64()})

    def read(self, task: int, batch: int) -> pa.Table:
        return self.schema.empty_table()

    def rate(self, task: int) -> float:
        return 10.0 * (task + 1)


def same(context: Context, state: Mapping[str, pa.Table], inputs: Sequence[pa.Table]) -> Result:
    return Result(inputs[0])


def words(tasks: int = 2) -> Pipeline:
    return Pipeline("words").source("in", tasks, Words())


def test_the_topology_has_external_sources_with_their_rates() -> None:
    pipeline = (
        words()
        .operator("count", 4, {"in": ("full", "word")}, same, selectivity=0.1)
        .operator("top", 1, {"count": "merge"}, same)
    )
    topology = pipeline.topology({"in.2>count.3": 7.0})
    assert [(o.name, o.tasks, o.rate, o.external, o.selectivity) for o in topology.operators] == [
        ("in", 2, (10.0, 20.0), True, 1.0),
        ("count", 4, None, False, 0.1),
        ("top", 1, None, False, 1.0),
    ]
    assert topology.measured == {"in.2>count.3": 7.0}


def test_the_tree_is_the_topology_that_ships() -> None:
    document = to_dict(load_example("tree"))
    document["operators"][0]["external"] = True
    assert to_dict(load_query("tree").pipeline.topology()) == document


REFUSED: dict[str, tuple[dict[str, Any], str, str]] = {
    "unknown upstream": ({"inputs": {"out": "merge"}}, "operator 'o', input 'out'", "defined before this one: in"),
    "no input": ({"inputs": {}}, "operator 'o'", "no input"),
    "key that is no column": ({"inputs": {"in": ("full", "page")}}, "operator 'o', input 'in'", "it has word, n, share"),
    "key of a bad type": ({"inputs": {"in": ("full", "share")}}, "operator 'o', input 'in'", "type double"),
    "full without key": ({"inputs": {"in": "full"}}, "operator 'o', input 'in'", "needs a key column"),
    "split without key": ({"inputs": {"in": "split"}}, "operator 'o', input 'in'", "needs a key column"),
    "unknown partitioning": ({"inputs": {"in": "any"}}, "operator 'o', input 'in'", "one-to-one, split, merge, full"),
    "one-to-one with other counts": (
        {"inputs": {"in": "one-to-one"}, "tasks": 3},
        "edges[0] 'in'->'o'.partitioning",
        "2 and 3",
    ),
    "merge into more": ({"inputs": {"in": "merge"}, "tasks": 3}, "edges[0] 'in'->'o'.partitioning", "2 and 3"),
    "join with one input": ({"join": True}, "operator 'o'", "a join with one input"),
    "negative lookback_batches": ({"lookback_batches": -1}, "operator 'o'", "it must be a whole number of at least 0"),
    "the same name again": ({"name": "in"}, "operator 'in'", "duplicate operator name"),
    "no tasks": ({"tasks": 0, "inputs": {"in": ("full", "n")}}, "operator 'o'", "a whole number of at least 1"),
    "negative selectivity": ({"selectivity": -1}, "operators[1] 'o'.selectivity", "not a number from 0"),
    "a step that is none": ({"step": 3}, "operator 'o'", "cannot be called"),
    "a function of a table": ({"step": len}, "operator 'o'", "to apply a function to a table, use map(len)"),
    "a schema that is none": ({"schema": {"a": "int"}}, "operator 'o'", "not a pyarrow.Schema"),
    "dictionaries": (
        {"schema": pa.schema({"a": pa.dictionary(pa.int8(), pa.string())})},
        "operator 'o', column 'a'",
        "dictionary",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_does_not_fit_is_refused_when_it_is_defined(case: str) -> None:
    given_, place, reason = REFUSED[case]
    arguments = {"name": "o", "tasks": 2, "inputs": {"in": "one-to-one"}, "step": same, **given_}
    with pytest.raises(BadInput) as caught:
        words().operator(**arguments)
    assert caught.value.place == place
    assert reason in caught.value.reason


def test_a_step_that_says_nothing_of_itself_has_a_memory_without_bound() -> None:
    plain = words().operator("o", 2, {"in": "one-to-one"}, same).by_name["o"]
    assert (plain.schema, plain.join, plain.selectivity, plain.lookback_batches) == (Words.schema, False, 1.0, None)
    assert words().operator("o", 2, {"in": "one-to-one"}, same, lookback_batches=3).by_name["o"].lookback_batches == 3
    assert words().by_name["in"].lookback_batches == 0


def test_a_step_may_say_some_of_its_facts() -> None:
    class Halved:
        selectivity = 0.5

        def __call__(self, context: Context, state: Mapping[str, pa.Table], inputs: Sequence[pa.Table]) -> Result:
            return Result(inputs[0])

        def lookback_batches(self, batch_seconds: float) -> int:
            return round(10 / batch_seconds)

    made = Pipeline("p", 2.0).source("in", 2, Words()).operator("o", 2, {"in": "one-to-one"}, Halved()).by_name["o"]
    assert (made.schema, made.join, made.selectivity, made.lookback_batches) == (Words.schema, False, 0.5, 5)


def test_a_pipeline_is_not_changed_by_a_longer_one() -> None:
    short = words()
    short.operator("o", 2, {"in": "one-to-one"}, same)
    assert [operator.name for operator in short.operators] == ["in"]


def test_unknown_queries_and_options_are_refused() -> None:
    with pytest.raises(BadInput, match="choose one of q1, q2, tree"):
        load_query("treee")
    with pytest.raises(BadInput, match=r"'speed'.*the options are: rate"):
        load_query("tree", speed=3)
    with pytest.raises(BadInput, match="selectivity from 0 to 1"):
        load_query("tree", selectivity=2)
    assert load_query("tree", rate=2000).pipeline == tree(rate=2000)


# ---------------------------------------------------------------------------------------------------------------- routes


def stream(kind: str, n1: int, n2: int, key: str = "k") -> Stream:
    return Stream("a", "b", Partitioning(kind), key, n1, n2)


COUNTS = st.integers(1, 7)
KEYS = st.one_of(
    st.lists(st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1))).map(lambda keys: pa.array(keys, pa.int64())),
    st.lists(st.one_of(st.none(), st.text(max_size=6))).map(lambda keys: pa.array(keys, pa.string())),
)


@given(st.sampled_from(list(Partitioning)), COUNTS, COUNTS, KEYS, st.data())
def test_every_row_goes_to_one_task_that_its_own_task_feeds(
    kind: Partitioning, a: int, b: int, keys: pa.Array, data: st.DataObject
) -> None:
    n1, n2 = {"one-to-one": (a, a), "merge": (a + b, b), "split": (a, a + b), "full": (a, b)}[kind]
    edge = stream(kind, n1, n2)
    up = np.array(data.draw(st.lists(st.integers(0, n1 - 1), min_size=len(keys), max_size=len(keys))), np.int64)
    down = route(pa.table({"k": keys}), edge, up)
    links = {(u, d) for u in range(n1) for d in edge.downstream(u)}
    assert links == {(u, d) for d in range(n2) for u in edge.upstream(d)}
    assert {(int(u), int(d)) for u, d in zip(up, down, strict=True)} <= links
    chosen: dict[tuple[int, object], int] = {}
    for u, key, d in zip(up.tolist(), keys.to_pylist(), down.tolist(), strict=True):
        assert chosen.setdefault((u if kind is Partitioning.SPLIT else 0, key), d) == d or kind not in (
            Partitioning.SPLIT,
            Partitioning.FULL,
        )


@given(st.sampled_from(list(Partitioning)), COUNTS, COUNTS)
def test_links_are_those_of_the_topology(kind: Partitioning, a: int, b: int) -> None:
    n1, n2 = {"one-to-one": (a, a), "merge": (a + b, b), "split": (a, a + b), "full": (a, b)}[kind]
    topology = words(n1).operator("o", n2, {"in": (kind, "n")}, same).topology()
    (edge,) = topology.edges
    ours = stream(kind, n1, n2)
    assert sorted(topology.links(edge)) == [(u, n1 + d) for u in range(n1) for d in ours.downstream(u)]


@given(KEYS, st.integers(0, 5))
def test_hashes_do_not_depend_on_chunks_or_slices(keys: pa.Array, cut: int) -> None:
    whole = hash_column(pa.chunked_array([keys]))
    assert np.array_equal(hash_column(pa.chunked_array([keys[:cut], keys[cut:]])), whole)
    assert np.array_equal(hash_column(pa.chunked_array([keys[cut:]])), whole[cut:])


def test_hashes_never_change() -> None:
    texts, numbers = pa.chunked_array([["", "a", "ab", "ba", None]]), pa.chunked_array([[0, 1, -1, 2**62, None]])
    assert hash_column(texts).tolist() == [
        16294208416658607535, 9710566718592210515, 10576838126389876037, 9722447469037698275, 2361492071075283931,
    ]  # fmt: skip
    assert hash_column(numbers).tolist()[:3] == [16294208416658607535, 10451216379200822465, 16490336266968443936]
    code = (
        "import pyarrow as pa; from ppa_core.pipeline.streams import hash_column as h; print(h(pa.chunked_array([['a']]))[0])"
    )
    elsewhere = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert elsewhere.stdout.strip() == "9710566718592210515"


KEYS_OF_TYPES = [
    *(pa.array([1, 0, 1, None], kind) for kind in (pa.int8(), pa.uint64(), pa.date32(), pa.time32("s"), pa.timestamp("us"))),
    *(pa.array(["b", "", "b", None], kind) for kind in (pa.string(), pa.large_string(), pa.binary())),
    pa.array([True, False, True, None]),
]


@pytest.mark.parametrize("keys", KEYS_OF_TYPES, ids=lambda keys: str(keys.type))
def test_every_type_of_key_is_hashed(keys: pa.Array) -> None:
    one, zero, again, null = hash_column(pa.chunked_array([keys])).tolist()
    assert one == again
    assert len({one, zero, null}) == 3


def test_keys_spread_evenly_also_after_an_earlier_partitioning_by_the_same_key() -> None:
    table = pa.table({"k": [f"page{i}" for i in range(20_000)]})
    nothing = np.zeros(len(table), np.int64)
    first = route(table, stream("full", 1, 2), nothing)
    second = route(table, stream("split", 2, 6), first)
    assert np.bincount(second, minlength=6) == pytest.approx([20_000 / 6] * 6, rel=0.05)
    assert np.array_equal(second, route(table, stream("full", 1, 6), nothing)), (
        "full and split together put a key where full does"
    )
