"""Layouts: every task has one partition; what shares a stage needs no exchange."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ppa_core.errors import BadInput
from ppa_core.pipeline.definition import Pipeline
from ppa_core.queries.tree import tree
from ppa_core.worker.layout import Layout
from tests.support.pipelines import pipelines, source, union


def tasks_of(layout: Layout, stage: int, partition: int) -> tuple[str, ...]:
    """The ids of all tasks of a stage that a partition runs."""
    operators = (layout.pipeline.by_name[name] for name in layout.operators(stage))
    return tuple(operator.task(k) for operator in operators for k in layout.tasks(operator.name, partition))


def crossing(layout: Layout) -> list[tuple[str, str]]:
    return [(stream.source, stream.target) for stream in layout.pipeline.streams if layout.crosses(stream)]


def test_the_tree_on_two_partitions_has_one_exchange() -> None:
    layout = Layout.of(tree(), 2)
    assert layout.stages == 2
    assert (layout.operators(0), layout.operators(1)) == (("S", "O1", "O2", "O3"), ("O4",))
    assert crossing(layout) == [("O3", "O4")]
    assert tasks_of(layout, 0, 1) == (
        *(f"S.{k}" for k in range(9, 17)),
        *(f"O1.{k}" for k in range(5, 9)),
        *("O2.3", "O2.4", "O3.2"),
    )
    assert (tasks_of(layout, 1, 0), tasks_of(layout, 1, 1)) == (("O4.1",), ())


def test_one_partition_needs_no_exchange() -> None:
    assert Layout.of(tree(), 1).stages == 1


def test_a_stream_that_passes_a_stage_goes_through_an_exchange() -> None:
    pipeline = (
        Pipeline("p")
        .source("a", 2, source())
        .operator("b", 2, {"a": ("full", "k")}, union)
        .operator("c", 2, {"b": "one-to-one", "a": "one-to-one"}, union)
    )
    layout = Layout.of(pipeline, 2)
    assert layout.stage_of == {"a": 0, "b": 1, "c": 1}
    assert crossing(layout) == [("a", "b"), ("a", "c")]


def test_there_is_a_partition() -> None:
    with pytest.raises(BadInput, match="at least 1"):
        Layout.of(tree(), 0)


@given(pipelines(), st.integers(1, 6))
def test_tasks_are_spread_and_stages_are_closed(pipeline: Pipeline, partitions: int) -> None:
    layout = Layout.of(pipeline, partitions)
    everywhere = [task for s in range(layout.stages) for p in range(partitions) for task in tasks_of(layout, s, p)]
    assert sorted(everywhere) == sorted(pipeline.topology().tasks)
    for operator in pipeline.operators:
        for p in range(partitions):
            assert all(layout.partition(operator.name, task) == p for task in layout.tasks(operator.name, p))
    for stream in pipeline.streams:
        links = [(up, down) for up in range(stream.up_tasks) for down in stream.downstream(up)]
        stay = all(layout.partition(stream.source, up) == layout.partition(stream.target, down) for up, down in links)
        gap = layout.stage_of[stream.target] - layout.stage_of[stream.source]
        assert gap >= (0 if stay else 1)
        assert layout.crosses(stream) == (gap > 0)
