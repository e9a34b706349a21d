"""What is refused when a pipeline is defined, and what the steps that ship say of themselves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from ppa_core.errors import BadInput
from ppa_core.pipeline import operators as op
from ppa_core.pipeline.definition import Pipeline, PipelineOperator
from ppa_core.topology import Input

WINDOW = op.sliding(10)


@dataclass(frozen=True)
class Empty:
    schema: pa.Schema

    def read(self, task: int, batch: int) -> pa.Table:
        return self.schema.empty_table()

    def rate(self, task: int) -> float:
        return 10.0


SALES = Empty(pa.schema({"shop": pa.string(), "item": pa.int64(), "price": pa.float64(), "tags": pa.list_(pa.string())}))
ITEMS = Empty(pa.schema({"item": pa.int64(), "name": pa.string()}))


def sources() -> Pipeline:
    shops = Empty(pa.schema({"shop": pa.string(), "item": pa.string()}))
    return Pipeline("p", 2.0).source("sales", 2, SALES).source("items", 2, ITEMS).source("shops", 2, shops)


def defined(step: Any, inputs: Any, tasks: int = 4, **options: Any) -> PipelineOperator:
    return sources().operator("o", tasks, inputs, step, **options).by_name["o"]


BY_SHOP = {"sales": ("full", "shop")}
BOTH = {"sales": ("full", "item"), "items": ("full", "item")}
AGGREGATE = "operator 'o', aggregate by shop"

REFUSED: dict[str, tuple[Any, Any, str, str]] = {
    "key that is no column": (op.count(by="page", window=WINDOW), BY_SHOP, "operator 'o', aggregate by page",
        "unknown column 'page'; the input has shop, item, price, tags"),
    "key of a wrong type": (op.count(by="price", window=WINDOW), BY_SHOP, "operator 'o', aggregate by price",
        "column 'price' is of type double; it must be an integer, a string,"),
    "measure of no column": (op.sum("cost", by="shop", window=WINDOW), BY_SHOP, AGGREGATE, "unknown column 'cost'"),
    "count of no column": (op.count("cost", by="shop", window=WINDOW), BY_SHOP, AGGREGATE, "unknown column 'cost'"),
    "sum of a text": (op.sum("shop", by="shop", window=WINDOW), BY_SHOP, AGGREGATE,
        "column 'shop' is of type string; it must be an integer or a floating-point number: cast it first, with map"),
    "mean of a list": (op.mean("tags", by="shop", window=WINDOW), BY_SHOP, AGGREGATE, "of type list<item: string>"),
    "least list": (op.min("tags", by="shop", window=WINDOW), BY_SHOP, AGGREGATE, "of type list<item: string>"),
    "distinct floats": (op.distinct("price", by="shop", window=WINDOW), BY_SHOP, AGGREGATE, "of type double"),
    "a window between batches": (op.count(by="shop", window=op.sliding(5)), BY_SHOP, "operator 'o', window",
        "2.5 batches of 2 s; it must be a whole number of them: change it, or the pipeline's batch_seconds"),
    "tuples of a key apart": (op.count(by="shop", window=WINDOW), {"sales": ("full", "item")}, "operator 'o', input 'sales'",
        "partitioned by 'item', but tuples with the same shop must be in one task; partition by shop"),
    "different columns together": (op.count(by="item", window=WINDOW), BOTH, "operator 'o', aggregate by item",
        "combined inputs must have the same columns: convert them with map"),
    "a join with one input": (op.join("shop", WINDOW), BY_SHOP, "operator 'o', join on shop", "give at least two upstreams"),
    "a join on no column": (op.join("name", WINDOW), BOTH, "operator 'o', join on name", "unknown column 'name'"),
    "a join on no column of the second": (op.join("shop", WINDOW), BOTH, "operator 'o', join on shop, input 2",
        "unknown column 'shop'; the input has item, name"),
    "a join on different types": (op.join("item", WINDOW), {"sales": ("full", "item"), "shops": ("full", "item")},
        "operator 'o', join on item, input 2", "key 'item' is of type string here and int64 in the first input; cast"),
    "a join of equal columns": (op.join("shop", WINDOW), {"sales": ("full", "shop"), "shops": ("full", "shop")},
        "operator 'o', join on shop, input 2", "an earlier input has a column 'item' too; rename"),
    "a join partitioned by another column": (op.join("item", WINDOW), BOTH | {"sales": ("full", "shop")},
        "operator 'o', input 'sales'", "partitioned by 'shop', but tuples with the same item"),
    "top of no column": (op.top(3, "count"), BY_SHOP, "operator 'o', top 3", "unknown column 'count'"),
    "top of lists": (op.top(3, "tags"), BY_SHOP, "operator 'o', top 3", "of type list<item: string>"),
    "top of no measure": (op.top(3, "n", of=op.count(by="shop", window=WINDOW)), BY_SHOP, "operator 'o', top 3",
        "unknown column 'n'; the input has shop, count"),
    "map of no column": (op.map(lambda t: t.select(["page"])), BY_SHOP, "operator 'o', map", "KeyError"),
    "map to no table": (op.flat_map(lambda t: 3), BY_SHOP, "operator 'o', flat_map", "returned int, not a pyarrow.Table"),
    "map to another schema": (op.map(lambda t: t, ITEMS.schema), BY_SHOP, "operator 'o', map", "the schema has (item"),
    "filter of no column": (op.filter(pc.field("page") > 3), BY_SHOP, "operator 'o', filter", "page"),
    "filter that is no condition": (op.filter(lambda t: t["item"]), BY_SHOP, "operator 'o', filter", "int64, not booleans"),
    "an expression that is no condition": (op.filter(pc.field("item")), BY_SHOP, "operator 'o', filter", "evaluate to bool"),
    "rekey of no column": (op.rekey("word", "token"), BY_SHOP, "operator 'o', rekey 'word'", "unknown column 'token'"),
    "rekey to a column": (op.rekey("item", "shop"), BY_SHOP, "operator 'o', rekey 'item'", "duplicate column 'item'"),
    "rekey to a float": (op.rekey("cost", "price"), BY_SHOP, "operator 'o', rekey 'cost'", "the key is of type double"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_does_not_fit_is_refused_when_it_is_defined(case: str) -> None:
    step, inputs, place, reason = REFUSED[case]
    with pytest.raises(BadInput) as caught:
        defined(step, inputs)
    assert caught.value.place == place
    assert reason in caught.value.reason


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: op.count(by=[], window=WINDOW), "no key; give at least one column"),
        (lambda: op.join(["a", "a"], WINDOW), "duplicate key column: a, a"),
        (lambda: op.aggregate(by="shop", window=WINDOW), "no measure"),
        (lambda: op.count(by="shop", window=WINDOW, name="shop"), "the measure 'shop' is also a key"),
        (lambda: op.aggregate(by="shop", window=WINDOW, n=op.Count), "'n' is not a measure; use Count()"),  # type: ignore[arg-type]
        (lambda: op.top(0, "n"), "it must be a whole number, at least 1"),
    ],
)
def test_what_no_input_could_mend_is_refused_at_once(make: Any, reason: str) -> None:
    with pytest.raises(BadInput) as caught:
        make()
    assert reason in caught.value.reason


def test_a_step_says_its_facts_and_the_caller_goes_first() -> None:
    counted = defined(op.count(by="shop", window=op.sliding(20, every=4)), BY_SHOP)
    assert counted.schema == pa.schema({"shop": pa.string(), "count": pa.int64()})
    assert (counted.join, counted.selectivity, counted.lookback_batches) == (False, 1.0, 10)
    joined = defined(op.join("item", WINDOW), BOTH)
    assert joined.schema.names == ["item", "shop", "price", "tags", "name"]
    assert (joined.join, joined.lookback_batches) == (True, 5)
    kept = defined(op.filter(pc.field("price") > 3, selectivity=0.25), BY_SHOP)
    assert (kept.selectivity, kept.lookback_batches) == (0.25, 0)
    told = defined(op.join("item", WINDOW), BOTH, join=False, selectivity=2.0, schema=ITEMS.schema, lookback_batches=7)
    assert (told.join, told.selectivity, told.schema, told.lookback_batches) == (False, 2.0, ITEMS.schema, 7)


def test_a_join_is_correlated_in_the_topology() -> None:
    topology = sources().operator("o", 4, BOTH, op.join("item", WINDOW)).topology()
    assert topology.operators[-1].input is Input.CORRELATED


def test_tuples_that_are_together_already_need_no_key() -> None:
    assert defined(op.count(by="shop", window=WINDOW), {"sales": "one-to-one"}, tasks=2).lookback_batches == 5
    assert defined(op.count(by="shop", window=WINDOW), {"sales": ("full", "item")}, tasks=1).lookback_batches == 5
    assert defined(op.count(by=["shop", "item"], window=WINDOW), {"sales": ("full", "item")}).lookback_batches == 5
